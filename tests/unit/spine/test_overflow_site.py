"""A model with an overflow: what the preview states of it, and the objects by which it happens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from components.gateway.request_log import ASKED_MODEL, marked
from components.network_policies import peer
from components.specs.inference_pool import METRICS_PORT
from components.tenants.gatekeeper import GATEKEEPER_PODS
from floor.headers import SERVED_HEADER
from floor.namespaces import GATEWAY
from stacks.plan.overflows import spare_requests_per_s
from stacks.plan.site_plan import SitePlan, plan_values
from tests.unit.spine.test_platform import Recorder, requested
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("004.14")

NAME, TO = "glm-5-1", "qwen3-32b"
DECIDED: dict[str, Any] = {
    "callers": {"decided_by": "gatekeeper"},
    "usage": {"database_secret": "ledger-database"},
}
OVERFLOWS = {**DECIDED, f"models.{NAME}.overflow": {"to": TO}, "tenants.search.overflow": "accept"}


def planned(changes: dict[str, Any]) -> SitePlan:
    return plan_values(changed(prod(), changes), "Pulumi.prod.yaml")


def test_the_preview_states_what_the_other_model_has_beside_its_own_load() -> None:
    plan = planned(OVERFLOWS)
    proof, target = plan.proofs[NAME], plan.proofs[TO]
    load, own = proof.order.load, target.order.load
    assert load and own
    spare = spare_requests_per_s(proof, target)
    assert spare is not None and 0 < spare < load.requests_per_s
    (text,) = (text for text in plan.texts if text.startswith("overflow:"))
    assert f"{NAME}: while it is full or away, requests of search go to {TO}" in text
    assert (
        f"{TO} carries {spare:.3g} of the {load.requests_per_s:g} requests/s beside its own {own.requests_per_s:g}"
        in text
    )
    # The more its own load takes, the less is left.
    busy = planned({**OVERFLOWS, f"models.{TO}.load.requests_per_s": own.requests_per_s * 0.8})
    less = spare_requests_per_s(busy.proofs[NAME], busy.proofs[TO])
    assert less is not None and less > spare


def test_an_overflow_to_a_model_that_its_own_load_fills_is_a_warning() -> None:
    """By the replicas that there always are."""
    full = planned({**OVERFLOWS, f"models.{TO}.server.scaling": {"least": 2}})
    (warning,) = (problem for problem in full.warnings if problem.path == ("models", NAME, "overflow", "to"))
    assert "with its least 2 replicas" in warning.what
    assert not [problem for problem in planned(OVERFLOWS).warnings if problem.path == warning.path]


def declared(plan: SitePlan, folder: Path) -> dict[str, Any]:
    """Kind and name of each object -> its body."""
    folder.mkdir()
    recorder = Recorder()
    requested(plan.site, folder, recorder)
    bodies = [args.inputs for args in recorder.resources.values() if "kind" in args.inputs]
    # Pulumi registers in no fixed order, and one name may be in two namespaces.
    bodies.sort(key=lambda body: body["metadata"].get("namespace", ""))
    return {f"{body['kind']} {body['metadata']['name']}": body for body in bodies}


@pytest.mark.slow
def test_both_models_pickers_tell_the_gatekeeper_and_what_it_decides_is_seen(tmp_path: Path) -> None:
    plan = planned(OVERFLOWS)
    before, after = declared(planned(DECIDED), tmp_path / "before"), declared(plan, tmp_path / "after")
    assert before.keys() == after.keys()
    assert {label for label in before if before[label] != after[label]} == {
        "EnvoyPatchPolicy front-door",
        "EnvoyProxy inference",
        "ConfigMap callers-tenants",
        "Deployment gatekeeper",
        "PrometheusRule inference-platform",
        *(f"{kind} {model}-epp" for model in (NAME, TO) for kind in ("Deployment", "NetworkPolicy")),
    }
    decided = json.loads(after["ConfigMap callers-tenants"]["data"]["tenants.json"])
    assert decided["overflows"] == {NAME: {"to": TO, "context": plan.named[TO].server.max_model_len}}
    settings = plan.named[NAME].settings
    assert decided["pools"].keys() == {NAME, TO}
    assert decided["pools"][NAME] == {
        "metrics": f"{NAME}-epp.inference-models.svc:{METRICS_PORT}",
        "queue": settings["picker_shedding_threshold"].value,
        "cache": settings["picker_kv_threshold"].value,
    }
    assert [name for name, tenant in decided["tenants"].items() if tenant.get("overflows")] == ["search"]
    for model in (NAME, TO):
        rules = after[f"NetworkPolicy {model}-epp"]["spec"]["ingress"]
        reading = [rule for rule in rules if rule["ports"] == [{"protocol": "TCP", "port": METRICS_PORT}]]
        assert [peer(GATEKEEPER_PODS, GATEWAY) in rule["from"] for rule in reading] == [True]
    assert SERVED_HEADER in json.dumps(after["EnvoyPatchPolicy front-door"])
    logs = after["EnvoyProxy inference"]["spec"]["telemetry"]["accessLog"]["settings"]
    assert [log["format"]["json"]["asked_model"] for log in logs] == [marked(ASKED_MODEL)] * 2
