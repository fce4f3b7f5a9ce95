"""Proxies: what the declared load takes of them, and what they have to request for it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.gateway_latency import EVERYTHING, KEYS
from benchmarks.report import FOLDER
from components.gateway.gateway import envoy_proxy, gateway_config
from components.specs.gateway import GatewaySpec
from stacks.plan.gateway_load import (
    BY_KEYS,
    DECIDED,
    GatewayLoad,
    ProxyNeed,
    ProxyTime,
    advice,
    describe_gateway,
    proxy_need,
    taken_by,
)
from stacks.plan.site_plan import plan_values
from stacks.proof.demand import Load, Spread
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("002.16", "opening 1")

TIME = ProxyTime(request_s=0.002, prompt_kib_s=0.001, token_s=0.0001)
ALIKE = Load(
    requests_per_s=10, prompt_tokens=Spread(p50=512, p95=512), answer_tokens=Spread(p50=300, p95=300), prefix_hit=0
)
LOADS = ("models.glm-5-1.load.requests_per_s", "models.qwen3-32b.load.requests_per_s")


def need_of(changes: dict[str, Any]) -> ProxyNeed:
    plan = plan_values(changed(prod(), changes), "site.yaml")
    need = proxy_need(plan.site, plan.models)
    assert need is not None
    return need


def test_a_request_takes_a_time_of_its_own_and_for_its_prompt_and_its_answer() -> None:
    """2 ms, 2 KiB of prompt and 300 tokens are 34 ms, ten times a second; where no text is written, 4 ms."""
    load = taken_by(TIME, [(ALIKE, 10, True)])
    assert (load.requests_per_s, load.tokens_per_s) == (10, 3000)
    assert load.cores == pytest.approx(0.34)
    assert taken_by(TIME, [(ALIKE, 10, False)]).cores == pytest.approx(0.04)


def test_the_proof_names_a_request_that_is_enough() -> None:
    """Also with a proxy away, and on a slow processor."""
    few = need_of({"gateway.cores": None, "gateway.replicas": 2})
    assert not few.enough
    assert need_of({"gateway.cores": few.wanted, "gateway.replicas": 2}).enough
    assert few.wanted >= few.declared.cores
    assert need_of({"gateway.cores": few.wanted, "gateway.replicas": 3}).wanted < few.wanted
    assert few.full.cores > few.declared.cores


def test_preview_shows_it() -> None:
    changes = {"gateway.cores": None, **dict.fromkeys(LOADS, 3)}
    plan = plan_values(changed(prod(), changes), "site.yaml")
    text = describe_gateway(plan.site, plan.models)
    assert text in plan.texts
    assert text.startswith("gateway: 3 proxies request 0.1 cores each, LESS THAN THE DECLARED LOAD MAY TAKE, with one ")
    assert f"Set gateway.cores: {need_of(changes).wanted:g}" in text
    assert "\n  load        6 requests/s and " in text
    without = plan_values(changed(prod(), {"models": {}, "tenants": {}}), "site.yaml")
    assert describe_gateway(without.site, without.models) == ""


def test_what_it_advises_has_room_on_the_machines() -> None:
    """Of 30 cores, with a machine away, pickers have 12: no two proxies of 12 have the rest, and three of 6 do."""
    site = plan_values(changed(prod(), {"gateway.cores": None, "gateway.replicas": 2}), "site.yaml").site
    far = GatewayLoad(requests_per_s=300, tokens_per_s=100_000, cores=6.0)
    need = ProxyNeed(pods=2, requested=0.1, declared=far, full=far)
    assert need.wanted == 12
    assert advice(site, need) == "Set gateway.cores: 6 and gateway.replicas: 3"
    beyond = replace(need, declared=replace(far, cores=400.0))
    assert advice(site, beyond) == "Each needs 800: add machines of role worker first"


@pytest.mark.parametrize(("site", "time"), [(KEYS, BY_KEYS), (EVERYTHING, DECIDED)])
def test_the_times_are_those_of_the_benchmark(site: str, time: ProxyTime) -> None:
    """To two digits, of Envoy and the processor beside it."""
    tables = json.loads((FOLDER / "gateway_cpu.json").read_text())["tables"]
    rows = next(table["rows"] for table in tables if table["title"].endswith(site))
    proxy = [list(row.values())[1:] for row in rows if row["part"] in ("Envoy", "AI gateway")]
    assert len(proxy) == 2
    measured = [sum(column) / 1000 for column in zip(*proxy, strict=True)]
    assert [time.request_s, time.prompt_kib_s, time.token_s] == pytest.approx(measured, rel=0.05)


def test_envoy_and_the_processor_beside_it_share_what_a_proxy_requests() -> None:
    def requested(spec: GatewaySpec) -> tuple[Any, Any]:
        proxy = envoy_proxy("g", spec, drain_s=60)["spec"]["provider"]["kubernetes"]["envoyDeployment"]
        processor = gateway_config("g", spec)["spec"]["extProc"]["kubernetes"].get("resources", {})
        return proxy["container"]["resources"]["requests"]["cpu"], processor.get("requests", {}).get("cpu")

    assert requested(GatewaySpec(port=80, cores=2)) == ("1200m", "800m")
    assert requested(GatewaySpec(port=80)) == ("100m", None)
