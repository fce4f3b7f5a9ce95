"""Rules and alerts of a site: each asks for what is there, states what to do, and has a case that it fires on."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from components.monitoring import alert_page, cost_queries, queries, recording, rules
from components.monitoring.alerts import models
from components.monitoring.alerts.alert import Alert
from components.specs.promises import HISTOGRAMS, LatencyPromise, Metric
from stacks.facts import metrics
from stacks.plan.idle import gpu_costs
from stacks.plan.promises import latency_promise, model_promise, site_promise
from stacks.plan.site_plan import SitePlan, plan_file
from stacks.program.monitoring import jobs_of, targets_of
from stacks.proof.demand import PERCENTS, LatencyTarget
from tests import promtool
from tests.alert_cases import CASES
from tests.alert_larger_site import LARGER
from tests.alert_site import HEALTHY, PROMISE
from tests.unit import promql
from tests.unit.platform_series import known_series

pytestmark = pytest.mark.row("002.09", "003.19", "004.19")

ROOT = Path(__file__).parents[3]
RUNBOOKS = ROOT / "docs" / "runbooks"
ARGUMENTS = {
    "share": 0.95,
    "window": "5m",
    "metric": "envoy_cluster_upstream_rq_xx",
    "histogram": "vllm:time_to_first_token_seconds",
    "by": "tenant",
    "status_class": "4",
    "state": "failed",
    "part": "vector(1)",
    "whole": "vector(2)",
    "percentile": 95,
    "bound_s": 2.5,
    "histograms": HISTOGRAMS["tpot"],
    "where": queries.ENGINES,
    "minutes": 20,
    "expression": "vector(1)",
    "job": queries.PROXIES,
}


SLICES = {"nvidia.com/mig-1g.18gb": 1 / 7, "nvidia.com/mig-3g.71gb": 1 / 2}


@pytest.fixture(scope="module")
def plan() -> SitePlan:
    return plan_file(ROOT / "Pulumi.prod.yaml")


def figures() -> Iterator[tuple[str, Callable[..., str]]]:
    for name, function in inspect.getmembers(queries, inspect.isfunction):
        if function.__module__ == queries.__name__ and not name.startswith("_"):
            yield name, function


@pytest.mark.parametrize(("name", "figure"), [*figures()])
def test_every_figure_asks_for_what_is_exposed(name: str, figure: Callable[..., str]) -> None:
    required = [
        parameter.name
        for parameter in inspect.signature(figure).parameters.values()
        if parameter.default is inspect.Parameter.empty
    ]
    arguments = {argument: ARGUMENTS.get(argument, "") for argument in required}
    if name == "error_ratio":
        arguments["window"] = "1h"
    assert promql.read(figure(**arguments), known_series()).mistakes == []


def test_slices_are_counted_as_parts_of_gpus_and_missed_like_gpus() -> None:
    """Only on a site that has some; the lab's kube-state-metrics writes every other character as an underscore."""
    sliced = replace(PROMISE, slices=SLICES)
    for rule in [rule for group in rules.groups(sliced) for rule in group["rules"]]:
        assert promql.read(rule["expr"], known_series()).mistakes == []
    changed = {
        str(rule.get("record") or rule.get("alert")): rule["expr"]
        for own, other in zip(rules.groups(sliced), rules.groups(PROMISE), strict=True)
        for rule, before in zip(own["rules"], other["rules"], strict=True)
        if rule != before
    }
    assert set(changed) == {"model:gpus:assigned", "GpusNotOffered"}
    assert 'resource="nvidia_com_mig_1g_18gb"' in changed["model:gpus:assigned"]
    assert " * 0.142857 or " in changed["model:gpus:assigned"]
    assert 'resource=~"nvidia_com_gpu|nvidia_com_mig_1g_18gb|nvidia_com_mig_3g_71gb"' in changed["GpusNotOffered"]


@pytest.mark.parametrize("rule", [rule for group in rules.groups(PROMISE) for rule in group["rules"]], ids=str)
def test_every_rule_asks_for_what_is_exposed(rule: dict[str, str]) -> None:
    assert promql.read(rule["expr"], known_series()).mistakes == []


@pytest.mark.parametrize("alert", promtool.listed().values(), ids=lambda alert: alert.name)
def test_an_alert_states_what_to_do(alert: Alert) -> None:
    rule = alert.rule()
    assert (RUNBOOKS / f"{alert.runbook}.md").is_file()
    assert "runbook_url" not in rule["annotations"], "where the pages are is the site's to state"
    assert rule["annotations"]["runbook"] == f"sitectl docs {alert.runbook}"
    assert alert.summary[0].isupper() or alert.summary.startswith("{{")
    assert not alert.summary.endswith(".")
    assert alert.description.endswith(".")
    # Its labels in the texts are those that its series have.
    named = set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.description))
    assert named <= promql.read(alert.expression, known_series()).labels, alert.name


def test_no_alert_lacks_a_case() -> None:
    alerts = promtool.listed()
    assert {case.alert for case in CASES} == set(alerts)
    assert {alert.severity for name, alert in alerts.items() if name != "Watchdog"} == {"page", "ticket"}


@pytest.mark.parametrize("series", [*HEALTHY, *LARGER])
def test_cases_are_made_of_what_is_exposed(series: str) -> None:
    """A case over series that no part has would hold a rule that never fires."""
    assert promql.read(series, known_series()).mistakes == []


def test_every_runbook_that_an_alert_leads_to_names_it() -> None:
    for alert in promtool.listed().values():
        assert f"`{alert.name}`" in (RUNBOOKS / f"{alert.runbook}.md").read_text(), (alert.name, alert.runbook)


def test_targets_are_those_of_the_plan(plan: SitePlan) -> None:
    promise = site_promise(plan, 99.9, ["gpus"])
    glm = promise.models[0]
    assert glm.model == "glm-5-1"
    assert glm.targets == (
        LatencyPromise(metric="ttft", percentile=95, seconds=6.0, bound_s=7.5),
        LatencyPromise(metric="itl", percentile=95, seconds=0.075, bound_s=0.075),
    )
    assert (glm.replicas, glm.gpus, glm.requests_per_s) == (2, 16, 0.7)
    assert promise.node_gpus == {f"hgx-{number}": 8 for number in range(1, 5)}
    assert promise.tiers == {"archive": "batch", "search": "interactive"}


def test_a_node_has_as_long_as_its_download_may_take(plan: SitePlan) -> None:
    """Over a slow link it takes a day, and that is no reason for a ticket."""
    fast = site_promise(plan, 99.9, [])
    assert (
        max(model.weights_budget_s for model in fast.models)
        == plan.models["glm-5-1"].stable.settings["download_budget_s"].value
    )
    assert models.fill_minutes(fast) == 236
    one_day = replace(fast, models=(replace(fast.models[0], weights_budget_s=86_400), *fast.models[1:]))
    (alert,) = [alert for alert in models.replicas(one_day) if alert.name == "WeightsNotOnNode"]
    assert alert.minutes == 1440


def test_a_target_is_counted_up_to_the_engines_next_bound() -> None:
    def bound_s(metric: Metric, ms: float) -> float | None:
        return latency_promise(LatencyTarget(metric=metric, percent=95, ms=ms)).bound_s

    assert [bound_s("ttft", ms) for ms in (2500, 2501)] == [2.5, 5]
    assert [bound_s("itl", 40), bound_s("tpot", 60), bound_s("tpot", 80_001)] == [0.05, 0.075, None]
    for metric, (name, *_) in HISTOGRAMS.items():
        assert name in metrics.load()["vllm"].bounds, metric


def test_a_target_beyond_every_bound_has_no_rule() -> None:
    (model,) = [model for model in PROMISE.models if model.model == "chat"]
    beyond = replace(model, targets=(replace(model.targets[0], bound_s=None),))
    recorded = [rule["record"] for rule in recording.measured(replace(PROMISE, models=(beyond,)))]
    assert queries.WITHIN_TARGET not in recorded


def test_every_percentile_that_a_site_may_declare_has_its_comparison() -> None:
    assert models.PERCENTILES == PERCENTS


@pytest.mark.parametrize("own", [True, False])
def test_kube_state_metrics_must_have_a_target_whoever_installs_it(plan: SitePlan, own: bool) -> None:
    jobs = jobs_of(targets_of(plan.site, "inference-models", "inference-gateway"), own=own)
    assert len(jobs) == len(set(jobs))
    assert {"inference-engines", "inference-proxies", "kube-state-metrics"} <= set(jobs)
    assert ("alertmanager" in jobs) == own


def test_decode_is_held_to_the_slow_end_of_the_proof(plan: SitePlan) -> None:
    revision = plan.models["glm-5-1"].stable
    mean = revision.proof.serving["itl_mean"]
    assert mean.span is not None
    assert mean.span.slow is not None
    promised = model_promise(revision).itl_mean_s
    assert promised == pytest.approx(mean.span.slow / 1e3)
    assert promised is not None
    assert promised > mean.value / 1e3


@pytest.mark.row("001.04")
def test_what_gpus_are_proven_to_carry_is_recorded_beside_what_they_are_asked_for(plan: SitePlan) -> None:
    """The figure that idle GPUs are billed by; a model without a load has none, and no series."""
    promise = site_promise(plan, 99.9, [])
    carried = {model.model: model.carried_tokens_per_s for model in promise.models}
    (cost,) = [cost for cost in gpu_costs(plan, 1.0) if cost.model == "glm-5-1"]
    assert carried["glm-5-1"] * 3600 == pytest.approx(cost.tokens)
    bare = replace(promise.models[0], carried_tokens_per_s=0.0)
    for models_of, count in ((promise.models[:1], 1), ((bare,), 0)):
        recorded = [rule["record"] for rule in recording.declared(replace(promise, models=models_of))]
        assert recorded.count(cost_queries.PROVEN_TOKENS) == count


def test_a_part_that_a_site_lacks_has_no_alerts() -> None:
    bare = rules.alerts(PROMISE, rules.Measured(parts=(), servers=False))
    names = {alert.name for alerts in bare.values() for alert in alerts}
    assert not {name for name in names if name.startswith(("Gpu", "Volume", "Storage", "Prometheus"))} - {
        "GpusNotOffered"
    }
    assert not {"RulesFail", "CredentialEnds"} & names


def test_the_object_is_selected_by_its_labels() -> None:
    made = rules.prometheus_rule("inference-monitoring", {"release": "kps"}, PROMISE)
    assert made["metadata"] == {
        "name": "inference-platform",
        "namespace": "inference-monitoring",
        "labels": {"release": "kps"},
    }
    assert made["spec"]["groups"] == rules.groups(PROMISE)


def test_the_page_of_alerts_is_not_stale() -> None:
    assert alert_page.PAGE.read_text() == alert_page.render(), "run `make docs`"
