"""What no alert must fire on although it looks like a fault: a blip, a cause that is over, too few requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.alert_series import CERTIFICATES_LEFT, hour_tokens, portal_failures
from tests.alert_site import (
    HEALTHY,
    ITL,
    OBJECT,
    POD,
    VOLUME,
    Values,
    certificate,
    cilium,
    cluster,
    constant,
    deployment,
    disk,
    dropped,
    ends,
    engine,
    gpu,
    grows,
    histogram,
    itl,
    listener,
    node,
    of_deployment,
    target,
    ttft,
)


@dataclass(frozen=True)
class Course:
    """A series whose speed changes: minutes, and what is added in each of them."""

    speeds: tuple[tuple[int, float], ...]
    first: float = 0.0

    def over(self, _minutes: int) -> str:
        """In promtool's notation."""
        value, parts = self.first, []
        for minutes, speed in self.speeds:
            parts.append(f"{value:.6f}{speed:+g}x{minutes - 1}")
            value += minutes * speed
        return " ".join([*parts, f"{value:.6f}+0x1"])


@dataclass(frozen=True, kw_only=True)
class Silence:
    """Series on which these alerts are silent."""

    why: str
    alerts: tuple[str, ...]
    change: Mapping[str, Values | Course | None]
    minutes: int = 60


_PER_MINUTE = 66
# A window of days that has only so much behind it takes its share of that; every minute is computed.
_ENOUGH_MINUTES = 200
_BURNS = {"Fastest": (60, 5), "Fast": (360, 30), "Slow": (1440, 120), "Slowest": (4320, 360)}
_FACTORS = {"Fastest": 14.4, "Fast": 6.0, "Slow": 3.0, "Slowest": 1.0}


def _errors(*speeds: tuple[int, float]) -> dict[str, Values | Course | None]:
    """Shares of requests that fail, for so many minutes each."""
    failed = Course(tuple((minutes, _PER_MINUTE * share) for minutes, share in speeds))
    answered = Course(tuple((minutes, _PER_MINUTE * (1 - share) - 6) for minutes, share in speeds))
    return {listener(5): failed, listener(2): answered}


def _over(name: str) -> Silence:
    """Ten times too many for a part of the long window, then few for longer than the short one."""
    long, short = _BURNS[name]
    bad, good = min(long // 2, _ENOUGH_MINUTES), short + 2
    speeds = ((bad, 10 * _FACTORS[name] / 1000), (good, _FACTORS[name] / 3000))
    alert = f"ErrorBudgetBurns{name}"
    return Silence(why=f"{alert}: its cause is over", alerts=(alert,), change=_errors(*speeds), minutes=bad + good)


def _blip(name: str) -> Silence:
    """Too many for the short window, after hours without any."""
    long, short = _BURNS[name]
    # The alert waits two minutes.
    good, short = min(long, 2 * _ENOUGH_MINUTES), short + 4
    speeds = ((good, 0.0), (short, 1.5 * _FACTORS[name] / 1000))
    alert = f"ErrorBudgetBurns{name}"
    return Silence(why=f"{alert}: a blip", alerts=(alert,), change=_errors(*speeds), minutes=good + short)


def _nearly(name: str) -> Silence:
    """Nine tenths of the speed that it fires at, for hours."""
    share = 0.9 * _FACTORS[name] / 1000
    alert = f"ErrorBudgetBurns{name}"
    return Silence(
        why=f"{alert}: a little below", alerts=(alert,), change=_errors((_ENOUGH_MINUTES, share)), minutes=200
    )


_STARTS = ("ModelHasNoReplica", "ReplicaMissing", "TargetDown", "EngineTargetDown")
_ENGINE_UP = target("inference-engines", "chat-a", ', model="chat"')
_GENERATION = of_deployment("kube_deployment_metadata_generation", "chat")
_AVAILABLE = of_deployment("kube_deployment_status_replicas_available", "chat")
_NODE_GPUS = 'job="kube-state-metrics", node="hgx-1", resource="nvidia_com_gpu", unit="integer"'
_OF_PROMETHEUS = 'job="storage", volume="pvc-3", pvc="prometheus-db", pvc_namespace="inference-monitoring"'

SILENCES = (
    *map(_over, _BURNS),
    *map(_blip, ("Fastest", "Fast", "Slow")),
    *map(_nearly, _BURNS),
    Silence(
        why="three failed requests of a quiet hour",
        alerts=tuple(f"ErrorBudgetBurns{name}" for name in _BURNS),
        change={listener(2): grows(0.5), listener(4): grows(0), listener(5): grows(0.05)},
    ),
    # With the cases, which are a little above, this holds each threshold; all at once.
    Silence(
        why="each figure a little below what its alert fires at",
        alerts=(
            "ModelFails",
            "CertificateExpires",
            "CertificateNotRenewed",
            "CredentialEnds",
            "ModelLatencyAboveTarget",
            "ModelSlowerThanPromised",
            "ModelQueueGrows",
            "ModelRefusesRequests",
            "ModelCacheFull",
            "ModelPreemptsRequests",
            "ReplicaRestarts",
            "GpuHot",
            "GpuSlowedDown",
            "GpuBusErrors",
            "GpuLinkErrors",
            "VolumeNearlyFull",
            "StorageNodeNearlyFull",
        ),
        change={
            cluster("envoy_cluster_upstream_rq_xx", ', envoy_response_code_class="2"'): grows(59.5),
            cluster("envoy_cluster_upstream_rq_xx", ', envoy_response_code_class="5"'): grows(0.5),
            cluster("envoy_cluster_upstream_rq_active_overflow"): grows(0.5),
            engine("vllm:admission_rejections_total", ', reason="max_num_queued_reqs"'): grows(0.5),
            **dict.fromkeys(CERTIFICATES_LEFT, constant(15)),
            certificate("certmanager_certificate_renewal_timestamp_seconds"): constant(-20 * 3600),
            ends("credential", "kubeconfig"): constant(31 * 86400),
            ends("authority", "os"): constant(181 * 86400),
            **ttft({"1": 0.5, "2.5": 0.96, "5": 1, "+Inf": 1}),
            **itl(0.038, {"0.05": 0.9, "0.1": 0.995, "0.5": 1, "+Inf": 1}),
            engine("vllm:num_requests_waiting"): constant(7),
            engine("vllm:kv_cache_usage_perc"): constant(0.93),
            engine("vllm:num_preemptions_total"): grows(2.4),
            f"kube_pod_container_status_restarts_total{{{POD}}}": grows(0.03),
            gpu("DCGM_FI_DEV_GPU_TEMP"): constant(83),
            gpu("DCGM_FI_DEV_MEMORY_TEMP"): constant(91),
            gpu("DCGM_FI_DEV_SM_CLOCK"): constant(1600),
            gpu("DCGM_FI_DEV_PCIE_REPLAY_COUNTER"): grows(1.5),
            gpu("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"): grows(1.5),
            f"longhorn_volume_actual_size_bytes{{{VOLUME}}}": constant(790e9),
            'longhorn_node_storage_usage_bytes{job="storage", node="hgx-1"}': constant(6.8e12),
        },
        minutes=90,
    ),
    Silence(
        why="a percentile of fewer requests than it takes",
        alerts=("ModelLatencyAboveTarget",),
        # Six gaps in 15 minutes, all of 0.3 s.
        change={
            **histogram(ITL, {"0.05": 0, "0.1": 0, "0.5": 1, "+Inf": 1}, 0.4),
            engine(f"{ITL}_sum"): grows(0.12),
            engine(f"{ITL}_count"): grows(0.4),
        },
    ),
    # The first is 2.35 s by interpolation; of the second every gap is within its target.
    Silence(
        why="a percentile that may be within its target, in the bucket that the target is in",
        alerts=("ModelLatencyAboveTarget",),
        change={
            **ttft({"1": 0.5, "2.5": 1, "5": 1, "+Inf": 1}),
            **itl(0.03, {"0.075": 0, "0.1": 1, "0.15": 1, "+Inf": 1}),
        },
    ),
    Silence(
        why="the first start of a model",
        alerts=_STARTS,
        change={
            **deployment("chat", available=0),
            of_deployment("kube_deployment_created", "chat"): constant(0),
            _ENGINE_UP: constant(0),
        },
        minutes=20,
    ),
    Silence(
        why="the rollout of a model with one replica",
        alerts=_STARTS,
        change={
            **deployment("chat", available=1, wanted=1),
            _GENERATION: Course(((60, 0), (1, 1), (19, 0)), first=1),
            _AVAILABLE: Course(((60, 0), (1, -1), (19, 0)), first=1),
            _ENGINE_UP: Course(((60, 0), (1, -1), (19, 0)), first=1),
        },
        minutes=80,
    ),
    Silence(
        why="a target of others, in a Prometheus of the site's own",
        alerts=("TargetDown",),
        change={target("shop", "shop-a"): constant(0)},
    ),
    # It is down, or has another job in a Prometheus of the site's own.
    *(
        Silence(
            why="nothing reads what nodes offer",
            alerts=("GpusNotOffered",),
            change={
                target("kube-state-metrics", "kube-state-metrics-a"): read,
                f"kube_node_status_capacity{{{_NODE_GPUS}}}": None,
                f"kube_node_status_allocatable{{{_NODE_GPUS}}}": None,
            },
        )
        for read in (constant(0), None)
    ),
    Silence(
        why="a GPU under load beside one that has no work and a higher clock",
        alerts=("GpuSlowedDown",),
        change={
            gpu("DCGM_FI_DEV_SM_CLOCK"): constant(1400),
            gpu("DCGM_FI_DEV_SM_CLOCK", 1): constant(1980),
            gpu("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 1): constant(0),
        },
    ),
    Silence(
        why="the volume of Prometheus, which keeps to a share of it",
        alerts=("VolumeNearlyFull",),
        change={
            f'longhorn_volume_actual_size_bytes{{{_OF_PROMETHEUS}, node="hgx-1"}}': constant(95e9),
            f'longhorn_volume_capacity_bytes{{{_OF_PROMETHEUS}, node="hgx-1"}}': constant(100e9),
        },
    ),
    Silence(
        why="a model without traffic",
        alerts=("ModelLatencyAboveTarget", "ModelSlowerThanPromised", "ModelRefusesRequests", "ModelPreemptsRequests"),
        change={series: Values(values.first) for series, values in HEALTHY.items() if values.each_minute},
    ),
    Silence(
        why="a replica without requests",
        alerts=("ReplicaStalled",),
        change={
            engine("vllm:num_requests_running"): constant(0),
            **{series: Values(values.first) for series, values in HEALTHY.items() if values.each_minute},
        },
    ),
    Silence(
        why="an engine that works a long prompt off, and counts it nowhere but in its cache",
        alerts=("ReplicaStalled",),
        change={
            **{series: Values(values.first) for series, values in HEALTHY.items() if values.each_minute},
            engine("vllm:kv_cache_usage_perc"): Values(0.1, 0.01),
        },
    ),
    Silence(
        why="slow under more load than the site declares",
        alerts=("ModelSlowerThanPromised",),
        change={
            **itl(0.05, {"0.05": 0.5, "0.1": 1, "0.5": 1, "+Inf": 1}),
            engine("vllm:request_success_total", ', finished_reason="stop"'): grows(180),
        },
    ),
    Silence(
        why="abandoned requests, whose tokens are in no row",
        alerts=("UsageGap",),
        change={hour_tokens("output"): constant(54_000), hour_tokens("output", of="bound_tokens"): constant(5_500)},
        minutes=115,
    ),
    Silence(
        why="rows that arrive twenty minutes after their hour",
        alerts=("UsageGap",),
        change={hour_tokens("output"): Course(((80, 0), (1, 30_000), (40, 0)), first=30_000)},
        minutes=115,
    ),
    Silence(
        why="pages that failed while the ledger started again",
        alerts=("PortalPartAway",),
        change={portal_failures("ledger of usage"): Course(((20, 0), (1, 30), (10, 0)))},
        minutes=25,
    ),
    Silence(
        why="a GPU without work, which clocks down by itself",
        alerts=("GpuSlowedDown",),
        change={gpu("DCGM_FI_DEV_SM_CLOCK"): constant(345), gpu("DCGM_FI_PROF_GR_ENGINE_ACTIVE"): constant(0)},
    ),
    Silence(
        why="a card without NVSwitch",
        alerts=("GpuFabricFailed", "GpuFabricNotReady"),
        change={gpu("DCGM_FI_DEV_FABRIC_MANAGER_STATUS"): constant(0)},
    ),
    Silence(
        why="a node that boots, whose fabric manager still connects its GPUs",
        alerts=("GpuFabricFailed", "GpuFabricNotReady"),
        change={gpu("DCGM_FI_DEV_FABRIC_MANAGER_STATUS"): constant(2)},
        minutes=9,
    ),
    Silence(
        why="an error that a program caused",
        alerts=("GpuXidError",),
        change={gpu("DCGM_FI_DEV_XID_ERRORS"): constant(31)},
    ),
    Silence(
        why="weights that were downloaded to a node",
        alerts=("NodeDiskFills",),
        change={disk("node_filesystem_avail_bytes"): Course(((30, 0), (12, -60e9), (118, 0)), first=950e9)},
        minutes=100,
    ),
    Silence(
        why="a node that is not ready, which has an alert of its own",
        alerts=("HostNotMeasured",),
        change={
            node("up", job="kubelet"): constant(0),
            f'kube_node_status_condition{{{OBJECT}, node="cp-1", condition="Ready", status="true"}}': constant(0),
        },
    ),
    Silence(
        why="a node that is not ready, and that others do not reach",
        alerts=("CiliumNodesUnreachable",),
        change={
            cilium("cilium_unreachable_nodes"): constant(1),
            f'kube_node_status_condition{{{OBJECT}, node="hgx-1", condition="Ready", status="true"}}': constant(0),
        },
    ),
    Silence(
        why="packets that a policy refuses, and a protocol that is not carried",
        alerts=("CiliumDropsPackets",),
        change={dropped(reason): grows(60_000) for reason in ("Policy denied by denylist", "Unsupported L2 protocol")},
    ),
)
