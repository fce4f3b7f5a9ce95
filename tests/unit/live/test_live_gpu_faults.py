"""The check that no GPU reports an uncorrected fault, with faults that no lab can have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from components.addons import gpu_counters
from components.monitoring.alerts import hardware
from stacks.plan.placement import Node
from stacks.plan.placing import nodes_of
from stacks.plan.site_plan import SitePlan, plan_file
from tests.live import test_live_monitoring as monitoring
from tests.live.running import Object, RunningSite

pytestmark = pytest.mark.row("opening 5", "000.09", "002.09")

PROD = plan_file(Path(__file__).parents[3] / "Pulumi.prod.yaml")
NODES = [node.name for node in nodes_of(PROD.site) or ()]
XID = "DCGM_FI_DEV_XID_ERRORS"
REMAPPED = "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"
REMAP_FAILED = "DCGM_FI_DEV_ROW_REMAP_FAILURE"
ALERTS = {alert.name: alert.expression for alert in hardware.gpus()}
Gpu = tuple[str, str]
EVERY: Mapping[Gpu, float] = {(node, str(gpu)): 0 for node in NODES for gpu in range(8)}
check = monitoring.test_no_gpu_reports_an_uncorrected_fault


@dataclass(frozen=True, kw_only=True)
class Measured(RunningSite):
    """A site whose Prometheus has these values of its GPUs, and finds these conditions of alerts to hold."""

    values: Mapping[str, Mapping[Gpu, float]]
    holding: Mapping[str, Mapping[Gpu, float]] = field(default_factory=dict)

    def prometheus(self, path: str, **parameters: str) -> Object:
        assert path == "query"
        asked = parameters["query"]
        if asked in ALERTS.values():
            return samples(next((of for name, of in self.holding.items() if ALERTS[name] == asked), {}))
        (values,) = (of for name, of in self.values.items() if f"({name}{{" in asked)
        return samples(values)


def samples(values: Mapping[Gpu, float]) -> Object:
    """As Prometheus answers."""
    vector = [{"metric": {"node": node, "gpu": gpu}, "value": [0, str(of)]} for (node, gpu), of in values.items()]
    return {"resultType": "vector", "result": vector}


def measured(
    values: Mapping[str, Mapping[Gpu, float]] | None = None,
    *,
    plan: SitePlan = PROD,
    holding: Mapping[str, Mapping[Gpu, float]] | None = None,
) -> Measured:
    """The reference site with eight healthy GPUs per node; values: metrics that are otherwise."""
    every = {XID: EVERY, REMAPPED: EVERY, REMAP_FAILED: EVERY, **(values or {})}
    return Measured(name="prod", plan=plan, endpoint="", keys={}, kubeconfig={}, values=every, holding=holding or {})


def unseen(_: str) -> None:
    """No evidence."""


def test_gpus_without_a_fault_pass_with_the_last_xid_of_each() -> None:
    evidence: list[str] = []
    check(measured({XID: {**EVERY, (NODES[0], "3"): 31}, REMAPPED: {**EVERY, (NODES[0], "1"): 2}}), evidence.append)
    assert evidence[0] == f"{NODES[0]}: 8 of 8 GPUs measured, 2 rows ever remapped, last Xids 31"
    assert evidence[1] == f"{NODES[1]}: 8 of 8 GPUs measured, 0 rows ever remapped, last Xids none"


def test_an_exporter_without_a_value_before_the_first_xid_passes() -> None:
    """NVIDIA/dcgm-exporter#700."""
    check(measured({XID: {}}), unseen)


@pytest.mark.parametrize(
    ("alert", "value"), [("GpuXidError", 79.0), ("GpuRowRemapFailed", 1.0), ("GpuMemoryErrors", 2.0)]
)
def test_a_fault_is_found_with_its_gpu(alert: str, value: float) -> None:
    with pytest.raises(AssertionError, match=f"^{NODES[1]} GPU 5: {alert}, {value:g} .docs/runbooks/gpu-unwell.md."):
        check(measured(holding={alert: {(NODES[1], "5"): value}}), unseen)


def test_what_a_gpu_corrects_by_itself_is_no_fault() -> None:
    """Heat, clocks and replays have alerts of their own."""
    others = {name: {(NODES[0], "0"): 1.0} for name in ALERTS if name not in monitoring.UNCORRECTED}
    check(measured(holding=others), unseen)


@pytest.mark.parametrize("metric", [REMAPPED, REMAP_FAILED])
def test_a_gpu_that_is_not_measured_has_not_passed(metric: str) -> None:
    without = {gpu: value for gpu, value in EVERY.items() if gpu != (NODES[0], "7")}
    with pytest.raises(AssertionError, match=f"^{NODES[0]}: 7 of 8 GPUs are measured"):
        check(measured({metric: without}), unseen)


def test_a_cluster_whose_nodes_are_not_listed_has_one_gpu_at_least() -> None:
    cluster = PROD.site.cluster.model_copy(update={"machines": None})
    plan = replace(PROD, site=PROD.site.model_copy(update={"cluster": cluster}))
    check(measured(plan=plan), unseen)
    with pytest.raises(AssertionError, match="no GPU is measured"):
        check(measured({XID: {}, REMAPPED: {}, REMAP_FAILED: {}}, plan=plan), unseen)


def test_a_gpu_that_is_cut_into_slices_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = [Node(name=node, gpu="h200-sxm/1g.18gb", gpus=56) for node in NODES]
    monkeypatch.setattr(monitoring, "nodes_of", lambda _: cut)
    evidence: list[str] = []
    check(measured(), evidence.append)
    assert evidence[0].startswith(f"{NODES[0]}: 8 of 8 GPUs measured")


def test_a_site_whose_gpus_are_measured_by_others_is_skipped() -> None:
    cluster = PROD.site.cluster.model_copy(update={"gpu_stack": "external"})
    plan = replace(PROD, site=PROD.site.model_copy(update={"cluster": cluster}))
    with pytest.raises(pytest.skip.Exception, match="does not let the program install what is measured as gpus"):
        check(measured(plan=plan), unseen)


def test_what_it_asks_for_is_exported() -> None:
    assert {XID, REMAPPED, REMAP_FAILED} <= gpu_counters.FIELDS.keys()
    assert set(monitoring.UNCORRECTED) <= ALERTS.keys()
