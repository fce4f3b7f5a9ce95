"""A site that drains nodes with a faulty GPU: what the program declares, and what a preview shows and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from components.addons.callers import WATCHER
from components.addons.gpu_stack import GPU_OPERATOR, operator_content
from components.specs.monitoring import GpuFaultsSpec
from services.watcher import variables
from services.watcher.settings import NodeOffer, WatcherSettings, settings_of
from stacks.plan.gpu_faults import node_offers
from stacks.plan.site_plan import SitePlan, plan_file, plan_values
from stacks.program.addons import addon_site, charts_of
from tests.unit.spine.test_platform import ROOT, Recorder, declare
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("opening 25")

KEY = "monitoring.gpu_faults"
DRAINS = {f"{KEY}.on_fault": "drain"}
BOTH = {**DRAINS, f"{KEY}.new_nodes": "check"}
ALERTS = {"GpuNodeDrained", "GpuFaultHeld", "GpuSourcesDisagree", "WatcherBlind", "NodeUnchecked"}


def planned(change: dict[str, Any]) -> SitePlan:
    return plan_values(changed(prod(), change), "site.yaml")


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    return declare(planned(BOTH).site, tmp_path_factory.mktemp("site"))[0]


def pod(recorder: Recorder) -> dict[str, Any]:
    spec: dict[str, Any] = recorder.resources["watcher-pod"].inputs["spec"]["template"]["spec"]
    return spec


def settings(recorder: Recorder) -> WatcherSettings:
    (container,) = pod(recorder)["containers"]
    (text,) = [arg for arg in container["args"] if arg.startswith("--settings=")]
    return settings_of(text.removeprefix("--settings="))


def rules_of(recorder: Recorder) -> list[tuple[str, dict[str, Any]]]:
    """Each rule of its roles, with the role's namespace."""
    return [
        (args.inputs["metadata"].get("namespace", ""), rule)
        for name, args in recorder.resources.items()
        if name.startswith("watcher-") and "rules" in args.inputs
        for rule in args.inputs["rules"]
    ]


def test_the_watcher_knows_the_nodes_and_those_that_the_proof_can_lose(recorder: Recorder) -> None:
    given = settings(recorder)
    names = [f"hgx-{number}" for number in range(1, 5)]
    assert given.nodes == dict.fromkeys(names, NodeOffer(resource="nvidia.com/gpu", count=8, gpus=8))
    assert given.may_lose == frozenset(names)
    assert (given.drains, given.checks, given.validator is not None) == (True, True, True)
    assert pod(recorder)["securityContext"]["runAsNonRoot"]
    assert pod(recorder)["containers"][0]["securityContext"]["readOnlyRootFilesystem"]


def test_it_may_mark_nodes_and_evict_replicas_and_little_else(recorder: Recorder) -> None:
    """What suffices is shown by the lab's test, against an API server; here that it is no more."""
    granted = rules_of(recorder)
    rules = {
        (space, resource, verb) for space, rule in granted for resource in rule["resources"] for verb in rule["verbs"]
    }
    (marked,) = [rule["resourceNames"] for _, rule in granted if "patch" in rule["verbs"]]
    assert marked == [f"hgx-{number}" for number in range(1, 5)]
    assert rules == {
        ("", "nodes", "list"),
        ("", "nodes", "patch"),
        ("default", "events", "create"),
        ("gpu-operator", "pods", "list"),
        ("inference-models", "pods", "list"),
        ("inference-models", "pods/eviction", "create"),
        ("inference-monitoring", "leases", "create"),
        ("inference-monitoring", "leases", "get"),
        ("inference-monitoring", "leases", "update"),
    }


@pytest.mark.slow
def test_a_load_test_has_every_gpu_of_a_node_and_floors_below_what_the_proof_counts_with(tmp_path: Path) -> None:
    """The watcher starts it by a label alone: it may read the test's pods, and make none."""
    plan = planned({**DRAINS, f"{KEY}.new_nodes": "load_test"})
    there = declare(plan.site, tmp_path)[0]
    body = there.resources["watcher-load-test-h200-sxm-8"].inputs["spec"]["template"]["spec"]
    (test,) = body["initContainers"]
    assert test["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert body["nodeSelector"] == {variables.LOAD_TEST: "h200-sxm-8"}
    assert {entry["key"] for entry in body["tolerations"]} == {"nvidia.com/gpu", variables.CHECK}
    assert test["image"] == plan.versions.images.vllm
    assert {"--tflops=564", "--memory=3192", "--all-reduce=218"} <= set(test["args"])
    assert body["securityContext"]["runAsNonRoot"]
    assert test["securityContext"]["readOnlyRootFilesystem"]
    given = settings(there)
    assert {offer.load_test for offer in given.nodes.values()} == {"h200-sxm-8"}
    assert given.load_tests == ("inference-monitoring", "app.kubernetes.io/name=gpu-load-test")
    verbs = [rule["verbs"] for _, rule in rules_of(there) if "pods" in rule["resources"]]
    assert verbs == [["list"]] * 3
    assert "h200-sxm-8: at least 564 TFLOP/s bf16, 3192 GB/s memory, 218 GB/s all-reduce" in plan.gpu_faults_text


def test_slices_have_no_load_test() -> None:
    """None reaches another one, so there is nothing to sum among."""
    site = plan_file(ROOT / "tests" / "fixtures" / "sites" / "valid" / "slices.yaml").site
    monitoring = site.monitoring.model_copy(update={"gpu_faults": GpuFaultsSpec(new_nodes="load_test")})
    offers = node_offers(site.model_copy(update={"monitoring": monitoring}))
    assert [offer.load_test for offer in offers.values()] == ["h200-sxm-8", "h200-sxm-8", ""]


@pytest.mark.slow
def test_it_reaches_prometheus_and_is_measured_and_nothing_is_there_without_it(
    recorder: Recorder, tmp_path: Path
) -> None:
    def measured(resources: dict[str, Any]) -> set[str]:
        groups = resources["monitoring-rules"].inputs["spec"]["groups"]
        return {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule} & ALERTS

    opened = recorder.resources["monitoring-network-policy-prometheus"].inputs["spec"]["ingress"]
    assert "watcher" in json.dumps(opened)
    assert f"monitoring-monitor-{WATCHER.key}" in recorder.resources
    assert measured(recorder.resources) == ALERTS
    without = declare(planned({}).site, tmp_path)[0].resources
    assert not [name for name in without if "watcher" in name]
    assert measured(without) == set()


def test_what_gpus_are_known_by_runs_on_a_node_that_is_tainted() -> None:
    """Else a new node would never offer GPUs, and the exporter's pod could not restart to forget an Xid."""

    def tolerated(change: dict[str, Any]) -> set[str]:
        plan = planned(change)
        values = operator_content(addon_site(plan, GPU_OPERATOR, charts_of(plan))).releases[0].values
        return {entry["key"] for entry in values["daemonsets"]["tolerations"]}

    assert tolerated(BOTH) - tolerated({}) == {variables.FAULT, variables.CHECK}


def test_a_preview_names_the_nodes_that_are_drained_and_those_that_are_not() -> None:
    assert planned({}).gpu_faults_text == ""
    text = planned(BOTH).gpu_faults_text
    assert "may be drained  hgx-1, hgx-2, hgx-3, hgx-4" in text
    assert "new nodes       take replicas once" in text
    assert "nodes now       stay in service where a replica is ready" in text
    # Without its priority, the large model has no room when one of its nodes is out.
    short = planned({**DRAINS, "models.glm-5-1.server.priority": None})
    assert "may be drained  hgx-3, hgx-4:" in short.gpu_faults_text
    assert "not drained     hgx-1: glm-5-1 would have 1 of 2 replicas" in short.gpu_faults_text
    assert set(short.texts) >= {short.gpu_faults_text}


@pytest.mark.parametrize(
    "wrong",
    [
        Wrong(
            {**DRAINS, "cluster.gpu_stack": "external"},
            f"{KEY}.on_fault",
            "no monitor reads it",
            {"cluster.gpu_stack": "operator"},
        ),
        Wrong({f"{KEY}.on_fault": "reboot"}, f"{KEY}.on_fault", "", DRAINS),
        Wrong(
            {**DRAINS, "models.glm-5-1.server.replicas": 3},
            f"{KEY}.on_fault",
            "drains no node",
            {f"{KEY}.on_fault": "alert"},
        ),
    ],
)
def test_a_drain_that_could_never_be_is_refused(wrong: Wrong) -> None:
    refused_and_fixed(wrong)
