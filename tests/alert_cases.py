"""A healthy site as Prometheus sees it, and for each alert the series that change when its fault happens.

`promtool test rules` runs the cases in the lab tier; the unit tier holds that no alert lacks one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from components.specs.promises import LatencyPromise, ModelPromise, SitePromise

PROMISE = SitePromise(
    models=(
        ModelPromise(
            model="chat",
            targets=(
                LatencyPromise(metric="ttft", percentile=95, seconds=2.0),
                LatencyPromise(metric="itl", percentile=99, seconds=0.1),
            ),
            itl_mean_s=0.04,
            requests_per_s=2.0,
            replicas=2,
            gpus=16,
            start_budget_s=1200,
            shedding_queue=8,
        ),
    ),
    availability_percent=99.9,
    node_gpus={"hgx-1": 8},
    tiers={"acme": "interactive"},
    jobs=("inference-engines", "inference-proxies"),
)

_ENGINE = 'job="inference-engines", model="chat", model_name="chat", pod="chat-a"'
_PROXY = 'job="inference-proxies", pod="envoy-a"'
_LISTENER = f'{_PROXY}, envoy_http_conn_manager_prefix="http-10080"'
_CLUSTER = f'{_PROXY}, envoy_cluster_name="httproute/inference-models/chat/rule/0"'
_OBJECT = 'job="kube-state-metrics"'
_POD = f'{_OBJECT}, namespace="inference-models", pod="chat-a", container="engine"'
_GPUS = f'{_OBJECT}, node="hgx-1", resource="nvidia_com_gpu", unit="integer"'
_VOLUME = 'job="storage", volume="pvc-1", pvc="chat-weights", node="hgx-1"'

TTFT, ITL = "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds"


@dataclass(frozen=True)
class Values:
    """What a series has: its first value, and what is added every minute."""

    first: float = 0.0
    each_minute: float = 0.0

    def over(self, minutes: int) -> str:
        """In promtool's notation."""
        return f"{self.first:g}+{self.each_minute:g}x{minutes}"


def constant(value: float) -> Values:
    return Values(value)


def grows(by: float) -> Values:
    """A counter, by so much per minute."""
    return Values(0.0, by)


def engine(metric: str, more: str = "") -> str:
    return f"{metric}{{{_ENGINE}{more}}}"


def listener(status_class: int) -> str:
    return f'envoy_http_downstream_rq_xx{{{_LISTENER}, envoy_response_code_class="{status_class}"}}'


def cluster(metric: str, more: str = "") -> str:
    return f"{metric}{{{_CLUSTER}{more}}}"


def gpu(metric: str, number: int = 0) -> str:
    return f'{metric}{{job="gpus", node="hgx-1", gpu="{number}", modelName="NVIDIA H200"}}'


def histogram(metric: str, shares: Mapping[str, float], per_minute: float) -> dict[str, Values]:
    """Buckets by their upper bound, with the share of values up to it."""
    return {engine(f"{metric}_bucket", f', le="{bound}"'): grows(share * per_minute) for bound, share in shares.items()}


def itl(mean_s: float, shares: Mapping[str, float]) -> dict[str, Values]:
    """Gaps of this mean, 6,000 per minute."""
    return histogram(ITL, shares, 6000) | {
        engine(f"{ITL}_sum"): grows(6000 * mean_s),
        engine(f"{ITL}_count"): grows(6000),
    }


def ttft(shares: Mapping[str, float]) -> dict[str, Values]:
    """First tokens of 60 requests per minute."""
    return histogram(TTFT, shares, 60) | {engine(f"{TTFT}_count"): grows(60)}


def robustness(state: str) -> dict[str, Values]:
    """Longhorn has a series for each state, and 1 in one of them."""
    return {
        f'longhorn_volume_robustness{{{_VOLUME}, state="{other}"}}': constant(float(other == state))
        for other in ("healthy", "degraded", "faulted")
    }


def deployment(name: str, available: int, wanted: int = 2) -> dict[str, Values]:
    where = f'{{{_OBJECT}, namespace="inference-models", deployment="{name}"}}'
    return {
        f"kube_deployment_spec_replicas{where}": constant(wanted),
        f"kube_deployment_status_replicas_available{where}": constant(available),
    }


HEALTHY: Mapping[str, Values] = {
    **{
        f'up{{job="{job}", pod="{pod}"}}': constant(1)
        for job, pod in (("inference-engines", "chat-a"), ("inference-proxies", "envoy-a"))
    },
    listener(2): grows(60),
    listener(4): grows(6),
    listener(5): grows(0),
    cluster("envoy_cluster_upstream_rq_xx", ', envoy_response_code_class="2"'): grows(60),
    cluster("envoy_cluster_upstream_rq_xx", ', envoy_response_code_class="5"'): grows(0),
    cluster("envoy_cluster_upstream_rq_pending_overflow"): grows(0),
    cluster("envoy_cluster_upstream_rq_active_overflow"): grows(0),
    f"envoy_http_ext_proc_streams_failed{{{_LISTENER}}}": grows(0),
    f"envoy_overload_envoy_resource_monitors_fixed_heap_pressure{{{_PROXY}}}": constant(0.3),
    f"envoy_server_days_until_first_cert_expiring{{{_PROXY}}}": constant(300),
    **ttft({"1": 0.97, "2.5": 1, "5": 1, "+Inf": 1}),
    **itl(0.03, {"0.05": 0.995, "0.1": 1, "0.5": 1, "+Inf": 1}),
    engine("vllm:num_requests_running"): constant(4),
    engine("vllm:num_requests_waiting"): constant(0),
    engine("vllm:kv_cache_usage_perc"): constant(0.5),
    engine("vllm:num_preemptions_total"): grows(0),
    engine("vllm:admission_rejections_total", ', reason="queue"'): grows(0),
    engine("vllm:request_success_total", ', finished_reason="stop"'): grows(60),
    'inference_pool_ready_pods{job="inference-pickers", model="chat", name="chat"}': constant(2),
    **deployment("chat", available=2),
    **deployment("chat-epp", available=2),
    f"kube_pod_container_status_restarts_total{{{_POD}}}": constant(1),
    f'kube_job_failed{{{_OBJECT}, namespace="inference-models", job_name="chat-weights", condition="true"}}': constant(
        0
    ),
    f"kube_node_status_capacity{{{_GPUS}}}": constant(8),
    f"kube_node_status_allocatable{{{_GPUS}}}": constant(8),
    f'kube_node_status_condition{{{_OBJECT}, node="hgx-1", condition="Ready", status="true"}}': constant(1),
    **{gpu("DCGM_FI_DEV_SM_CLOCK", number): constant(1900) for number in (0, 1)},
    **{gpu("DCGM_FI_PROF_GR_ENGINE_ACTIVE", number): constant(0.9) for number in (0, 1)},
    gpu("DCGM_FI_DEV_XID_ERRORS"): constant(0),
    gpu("DCGM_FI_DEV_ROW_REMAP_FAILURE"): constant(0),
    gpu("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"): constant(2),
    gpu("DCGM_FI_DEV_GPU_TEMP"): constant(70),
    gpu("DCGM_FI_DEV_MEMORY_TEMP"): constant(80),
    gpu("DCGM_FI_DEV_PCIE_REPLAY_COUNTER"): grows(0.1),
    **robustness("healthy"),
    f"longhorn_volume_actual_size_bytes{{{_VOLUME}}}": constant(700e9),
    f"longhorn_volume_capacity_bytes{{{_VOLUME}}}": constant(900e9),
    'longhorn_node_storage_usage_bytes{job="storage", node="hgx-1"}': constant(5e12),
    'longhorn_node_storage_capacity_bytes{job="storage", node="hgx-1"}': constant(10e12),
    'prometheus_rule_evaluation_failures_total{job="prometheus", rule_group="load"}': grows(0),
    'prometheus_config_last_reload_successful{job="prometheus"}': constant(1),
    'alertmanager_notifications_failed_total{job="alertmanager", integration="webhook", reason="other"}': grows(0),
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A fault."""

    alert: str
    change: Mapping[str, Values | None]
    """Series that differ from the healthy ones; None for those that are gone."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the alert, beside its severity."""
    shown: str = ""
    """Its value as people read it."""
    minutes: int = 60
    """Since the fault began."""
    also: tuple[str, ...] = ()
    """Other alerts that the same fault raises by then."""


def _failing(share: float) -> dict[str, Values]:
    return {listener(2): grows(66 * (1 - share) - 6), listener(5): grows(66 * share)}


_MODEL = {"model": "chat"}
_GPU = {"node": "hgx-1", "gpu": "0", "modelName": "NVIDIA H200"}
_OF_VOLUME = {"volume": "pvc-1", "pvc": "chat-weights"}
_BUDGET = ("ErrorBudgetBurnsFastest", "ErrorBudgetBurnsFast", "ErrorBudgetBurnsSlow", "ErrorBudgetBurnsSlowest")

CASES = (
    Case(alert="Watchdog", change={}, shown="1"),
    # From the start of a series all windows see the same share, so the slower ones fire with the faster ones.
    Case(alert="ErrorBudgetBurnsFastest", change=_failing(0.02), shown="2%", minutes=10, also=_BUDGET[1:]),
    Case(alert="ErrorBudgetBurnsFast", change=_failing(0.01), shown="1%", minutes=60, also=_BUDGET[2:]),
    Case(alert="ErrorBudgetBurnsSlow", change=_failing(0.004), shown="0.4%", minutes=300, also=_BUDGET[3:]),
    Case(alert="ErrorBudgetBurnsSlowest", change=_failing(0.002), shown="0.2%", minutes=300),
    Case(
        alert="ModelFails",
        change={
            cluster("envoy_cluster_upstream_rq_xx", ', envoy_response_code_class="2"'): grows(54),
            cluster("envoy_cluster_upstream_rq_xx", ', envoy_response_code_class="5"'): grows(6),
        },
        labels=_MODEL,
        shown="10%",
    ),
    Case(
        alert="PickersDoNotAnswer",
        change={f"envoy_http_ext_proc_streams_failed{{{_LISTENER}}}": grows(30)},
        shown="500m",
    ),
    Case(
        alert="ProxyMemoryHigh",
        change={f"envoy_overload_envoy_resource_monitors_fixed_heap_pressure{{{_PROXY}}}": constant(0.75)},
        labels={"pod": "envoy-a"},
        shown="75%",
    ),
    Case(
        alert="CertificateExpires",
        change={f"envoy_server_days_until_first_cert_expiring{{{_PROXY}}}": constant(13)},
        labels={"pod": "envoy-a"},
        shown="13",
        minutes=90,
    ),
    Case(
        alert="ModelLatencyAboveTarget",
        change=ttft({"1": 0.5, "2.5": 0.8, "5": 1, "+Inf": 1}),
        labels={"model": "chat", "metric": "ttft", "percentile": "95"},
        shown="4.375s",
    ),
    Case(
        alert="ModelSlowerThanPromised",
        # Within the target of p99, and above the 40 ms of the proof's slow end.
        change=itl(0.05, {"0.05": 0.5, "0.1": 1, "0.5": 1, "+Inf": 1}),
        labels=_MODEL,
        shown="50ms",
    ),
    Case(
        alert="ModelQueueGrows",
        change={engine("vllm:num_requests_waiting"): constant(12)},
        labels=_MODEL,
        shown="12",
    ),
    Case(
        alert="ModelRefusesRequests",
        change={cluster("envoy_cluster_upstream_rq_active_overflow"): grows(3)},
        labels=_MODEL,
        shown="5%",
    ),
    Case(
        alert="ModelRefusesRequests",
        change={engine("vllm:admission_rejections_total", ', reason="queue"'): grows(1.2)},
        labels=_MODEL,
        shown="2%",
    ),
    Case(
        alert="ModelCacheFull",
        change={engine("vllm:kv_cache_usage_perc"): constant(0.98)},
        labels=_MODEL,
        shown="98%",
    ),
    Case(
        alert="ModelPreemptsRequests",
        change={engine("vllm:num_preemptions_total"): grows(6)},
        labels=_MODEL,
        shown="10%",
    ),
    Case(
        alert="ModelHasNoReplica",
        change={
            **deployment("chat", available=0),
            'inference_pool_ready_pods{job="inference-pickers", model="chat", name="chat"}': constant(0),
        },
        labels={"deployment": "chat"},
        shown="0",
        minutes=5,
    ),
    Case(
        alert="ReplicaMissing",
        change={
            **deployment("chat", available=1),
            'inference_pool_ready_pods{job="inference-pickers", model="chat", name="chat"}': constant(1),
        },
        labels={"deployment": "chat"},
        shown="1",
    ),
    Case(
        alert="ReplicaRestarts",
        change={f"kube_pod_container_status_restarts_total{{{_POD}}}": grows(0.1)},
        labels={"pod": "chat-a", "container": "engine"},
        shown="6",
    ),
    Case(
        alert="PickerSeesTooFewReplicas",
        change={'inference_pool_ready_pods{job="inference-pickers", model="chat", name="chat"}': constant(1)},
        labels=_MODEL,
        shown="1",
    ),
    Case(
        alert="WeightsJobFailed",
        change={
            f'kube_job_failed{{{_OBJECT}, namespace="inference-models", job_name="chat-weights", condition="true"}}': (
                constant(1)
            )
        },
        labels={"job_name": "chat-weights"},
        shown="1",
    ),
    Case(
        alert="GpusNotOffered",
        change={
            f"kube_node_status_capacity{{{_GPUS}}}": constant(7),
            f"kube_node_status_allocatable{{{_GPUS}}}": constant(7),
        },
        labels={"node": "hgx-1"},
        shown="1",
    ),
    # Its device plugin never started: there is no series of the resource.
    Case(
        alert="GpusNotOffered",
        change={f"kube_node_status_capacity{{{_GPUS}}}": None, f"kube_node_status_allocatable{{{_GPUS}}}": None},
        labels={"node": "hgx-1"},
        shown="8",
    ),
    Case(
        alert="NodeNotReady",
        change={
            f'kube_node_status_condition{{{_OBJECT}, node="hgx-1", condition="Ready", status="true"}}': constant(0)
        },
        labels={"node": "hgx-1"},
        shown="0",
    ),
    Case(alert="GpuXidError", change={gpu("DCGM_FI_DEV_XID_ERRORS"): constant(79)}, labels=_GPU, shown="79"),
    Case(alert="GpuRowRemapFailed", change={gpu("DCGM_FI_DEV_ROW_REMAP_FAILURE"): constant(1)}, labels=_GPU, shown="1"),
    Case(
        alert="GpuMemoryErrors",
        change={gpu("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"): grows(0.1)},
        labels=_GPU,
        shown="6",
    ),
    Case(alert="GpuHot", change={gpu("DCGM_FI_DEV_GPU_TEMP"): constant(88)}, labels=_GPU, shown="88"),
    Case(alert="GpuHot", change={gpu("DCGM_FI_DEV_MEMORY_TEMP"): constant(96)}, labels=_GPU, shown="96"),
    Case(alert="GpuSlowedDown", change={gpu("DCGM_FI_DEV_SM_CLOCK"): constant(950)}, labels=_GPU, shown="50%"),
    Case(alert="GpuBusErrors", change={gpu("DCGM_FI_DEV_PCIE_REPLAY_COUNTER"): grows(5)}, labels=_GPU, shown="300"),
    Case(alert="VolumeFaulted", change=robustness("faulted"), labels=_OF_VOLUME, shown="1"),
    Case(alert="VolumeDegraded", change=robustness("degraded"), labels=_OF_VOLUME, shown="1"),
    Case(
        alert="VolumeNearlyFull",
        change={f"longhorn_volume_actual_size_bytes{{{_VOLUME}}}": constant(855e9)},
        labels=_OF_VOLUME,
        shown="95%",
    ),
    Case(
        alert="StorageNodeNearlyFull",
        change={'longhorn_node_storage_usage_bytes{job="storage", node="hgx-1"}': constant(7.5e12)},
        labels={"node": "hgx-1"},
        shown="75%",
    ),
    Case(
        alert="TargetDown",
        change={'up{job="inference-engines", pod="chat-a"}': constant(0)},
        labels={"job": "inference-engines", "pod": "chat-a"},
        shown="0",
    ),
    Case(
        alert="TargetsMissing",
        change={'up{job="inference-engines", pod="chat-a"}': None},
        labels={"job": "inference-engines"},
        shown="1",
    ),
    Case(
        alert="RulesFail",
        change={'prometheus_rule_evaluation_failures_total{job="prometheus", rule_group="load"}': grows(1)},
        labels={"rule_group": "load"},
        shown="5",
    ),
    Case(
        alert="PrometheusConfigurationRefused",
        change={'prometheus_config_last_reload_successful{job="prometheus"}': constant(0)},
        shown="0",
    ),
    Case(
        alert="AlertsDoNotArrive",
        change={
            'alertmanager_notifications_failed_total{job="alertmanager", integration="webhook", reason="other"}': grows(
                2
            )
        },
        labels={"integration": "webhook"},
        shown="30",
    ),
)
