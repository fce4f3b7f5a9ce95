"""Models whose replicas follow the load: what is declared for one, and only for one, and who may set the number."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from components.models.scaling import scaled_object
from components.specs.model_server import PeakSpec, ScalingPlan
from stacks.plan.site_plan import plan_values
from tests.unit.spine.test_platform import Recorder, requested
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("001.24")

MODEL = "qwen3-32b"
RANGE: dict[str, Any] = {f"models.{MODEL}.server.scaling": {"least": 2}}
EXTERNAL = {"monitoring": {"system": "external", "scraper_namespace": "monitoring"}}
PLAN = ScalingPlan(least=2, most=4, peaks=(), requests=31, kv_share=0.85, window_s=300)


def declared(folder: Path, change: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs of each resource, and what the engine gets for it, by name."""
    recorder = Recorder()
    folder.mkdir()
    _, requests = requested(plan_values(changed(prod(), change), "site.yaml").site, folder, recorder)
    return {name: made.inputs for name, made in recorder.resources.items()}, requests


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return declared(tmp_path_factory.mktemp("sites") / "fixed", {})[0]


@pytest.mark.slow
def test_the_number_is_declared_once_and_is_the_clusters_after_that(fixed: dict[str, Any], tmp_path: Path) -> None:
    made, requests = declared(tmp_path / "range", RANGE)
    assert (fixed[f"{MODEL}-server"]["spec"]["replicas"], made[f"{MODEL}-server"]["spec"]["replicas"]) == (4, 2)
    # The engine keeps the number from before, so 4 replicas, a range and 4 again would be no change by the number.
    scaled, plain = (resources[f"{MODEL}-server"]["metadata"]["annotations"] for resources in (made, fixed))
    assert scaled == plain | {"inference-platform/scaled": "2 to 4 replicas"}
    ignored = {name: list(request.ignoreChanges) for name, request in requests.items() if "-server" in name}
    assert ignored == {f"{MODEL}-server": ["spec.replicas"], "glm-5-1-server": []}
    scaled = requests[f"{MODEL}-scaling"]
    after = {urn.rpartition("::")[2] for urn in scaled.dependencies}
    assert {f"{MODEL}-server", "autoscaling-keda", "autoscaling-answering"} <= after
    spec = made[f"{MODEL}-scaling"]["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (2, 4)
    assert spec["scaleTargetRef"]["name"] == made[f"{MODEL}-server"]["metadata"]["name"]
    # A drain may not take the last one while there are as few as there may be.
    assert made[f"{MODEL}-budget"]["spec"]["maxUnavailable"] == 1


@pytest.mark.slow
def test_a_site_without_a_range_has_nothing_of_it(fixed: dict[str, Any], tmp_path: Path) -> None:
    made, _ = declared(tmp_path / "range", RANGE)
    # Its own are called after it; Prometheus looks for its pods, and lets it ask.
    others = {name for name in made.keys() - fixed.keys() if "keda" not in name and "autoscaling" not in name}
    assert others == {f"{MODEL}-scaling", "monitoring-network-policy-prometheus"}
    assert fixed.keys() < made.keys()


@pytest.mark.slow
def test_what_the_autoscaler_does_is_measured_once_a_model_scales(fixed: dict[str, Any], tmp_path: Path) -> None:
    """Also with a KEDA of the cluster's own, whose errors Prometheus does not read."""
    made, _ = declared(tmp_path / "own", {**RANGE, "autoscaling": {"system": "external", "namespace": "scalers"}})

    def seen(resources: dict[str, Any]) -> bool:
        (container,) = resources["monitoring-state"]["spec"]["template"]["spec"]["containers"]
        return "horizontalpodautoscalers" in ",".join(container["args"])

    def alerts(resources: dict[str, Any]) -> bool:
        return "AutoscalerIdle" in str(resources["monitoring-rules"]["spec"])

    assert (seen(made), alerts(made), seen(fixed), alerts(fixed)) == (True, True, False, False)


@pytest.mark.slow
def test_clusters_with_keda_get_no_other_one(tmp_path: Path) -> None:
    """The operator of theirs asks the program's Prometheus, or theirs."""
    made, _ = declared(tmp_path / "own", {**RANGE, "autoscaling": {"system": "external", "namespace": "scalers"}})
    assert not [name for name in made if name.startswith("autoscaling")]
    (rule,) = made["monitoring-network-policy-prometheus"]["spec"]["ingress"]
    assert rule["from"][0]["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "scalers"}
    theirs = {"autoscaling": {"prometheus": "http://prometheus.monitoring:9090"}}
    made, _ = declared(tmp_path / "theirs", {**RANGE, **EXTERNAL, **theirs})
    asked = {trigger["metadata"]["serverAddress"] for trigger in made[f"{MODEL}-scaling"]["spec"]["triggers"]}
    assert asked == {"http://prometheus.monitoring:9090"}


def test_no_answer_is_not_no_load() -> None:
    """KEDA's own defaults take a query without a result for 0, and a replica away."""
    spec = scaled_object(MODEL, "models", {}, PLAN, "http://prometheus")["spec"]
    assert [trigger["metadata"]["ignoreNullValues"] for trigger in spec["triggers"]] == ["false", "false"]
    assert (spec["fallback"]["behavior"], spec["fallback"]["replicas"]) == ("currentReplicasIfHigher", 2)


def test_requests_and_cache_decide_and_a_replica_goes_late() -> None:
    spec = scaled_object(MODEL, "models", {}, PLAN, "http://prometheus")["spec"]
    where = f'{{job="inference-engines", model="{MODEL}"}}'
    assert [(trigger["metadata"]["query"], trigger["metadata"]["threshold"]) for trigger in spec["triggers"]] == [
        (f"sum(vllm:num_requests_running{where}) + sum(vllm:num_requests_waiting{where})", "31"),
        (f"sum(avg by (pod) (vllm:kv_cache_usage_perc{where}))", "0.85"),
    ]
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    assert behavior["stabilizationWindowSeconds"] == PLAN.window_s
    assert behavior["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 60}]


@pytest.mark.slow
def test_a_declared_target_of_the_first_token_is_a_reason_for_one_more(tmp_path: Path) -> None:
    made, _ = declared(tmp_path / "range", RANGE)
    asked = {trigger["name"]: trigger["metadata"] for trigger in made[f"{MODEL}-scaling"]["spec"]["triggers"]}
    assert asked["first-token"]["threshold"] == "1"
    (target,) = re.findall(r"histogram_quantile\(0.95,.*?\) > bool ([0-9.]+)\)", asked["first-token"]["query"])
    assert float(target) * 1000 == prod()["models"][MODEL]["slo"]["ttft_p95_ms"]


def test_a_known_peak_has_its_replicas_before_any_queue() -> None:
    peak = PeakSpec(start="45 7 * * 1-5", end="0 18 * * 1-5", least=3, timezone="Europe/Paris")
    plan = ScalingPlan(least=2, most=4, peaks=(peak,), requests=31, kv_share=0.85, window_s=7200)
    spec = scaled_object(MODEL, "models", {}, plan, "http://prometheus")["spec"]
    assert (spec["triggers"][2]["type"], spec["triggers"][2]["metadata"]) == (
        "cron",
        {"timezone": "Europe/Paris", "start": "45 7 * * 1-5", "end": "0 18 * * 1-5", "desiredReplicas": "3"},
    )


@pytest.mark.parametrize(
    "wrong",
    [
        Wrong(
            {**RANGE, "monitoring": {"system": "none"}},
            f"models.{MODEL}.server.scaling",
            "nothing measures it",
            {f"models.{MODEL}.server.scaling": None},
        ),
        Wrong(
            {**RANGE, **EXTERNAL},
            f"models.{MODEL}.server.scaling",
            "its address is not known",
            {"autoscaling": {"prometheus": "http://prometheus-operated.monitoring:9090"}},
        ),
        Wrong(
            {"autoscaling": {"namespace": "scalers"}},
            "autoscaling.namespace",
            "autoscaling.system keda does not read it",
            {"autoscaling.system": "external"},
        ),
        Wrong(
            {"autoscaling": {"prometheus": "http://prometheus.monitoring"}},
            "autoscaling.prometheus",
            "monitoring.system prometheus_operator does not read it",
            {"autoscaling": None},
        ),
    ],
    ids=lambda wrong: wrong.what,
)
def test_a_range_without_what_it_follows_is_refused(wrong: Wrong) -> None:
    refused_and_fixed(wrong)
