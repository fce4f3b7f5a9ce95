"""For each alert the series that change when its fault happens.

`promtool test rules` runs the cases in the lab tier; the unit tier holds that no alert lacks one.
"""

from __future__ import annotations

from tests import alert_callers, alert_database, alert_gpu_faults, alert_hosts, alert_logs, alert_scaling, alert_usage
from tests.alert_larger_site import CANARY, LARGER, SLOW_GPU, SLOW_REPLICA
from tests.alert_series import CERTIFICATES_LEFT
from tests.alert_site import (
    GPUS,
    ITL,
    LISTENER,
    OBJECT,
    POD,
    PROXY,
    TTFT,
    VOLUME,
    Case,
    Values,
    certificate,
    cluster,
    constant,
    deployment,
    ends,
    engine,
    filled,
    gpu,
    grows,
    itl,
    listener,
    robustness,
    target,
    ttft,
)


def _failing(share: float) -> dict[str, Values]:
    return {listener(2): grows(66 * (1 - share) - 6), listener(5): grows(66 * share)}


_MODEL = {"model": "chat"}
_GPU = {"node": "hgx-1", "gpu": "0", "modelName": "NVIDIA H200"}
_CERTIFICATE = {"namespace": "inference-gateway", "name": "inference"}
_OF_VOLUME = {"volume": "pvc-2", "pvc": "registry"}
_ENGINE_UP = target("inference-engines", "chat-a", ', model="chat"')
_PROXY_UP = target("inference-proxies", "envoy-a")
_ANSWERED = engine("vllm:request_success_total", ', finished_reason="stop"')
_BUDGET = ("ErrorBudgetBurnsFastest", "ErrorBudgetBurnsFast", "ErrorBudgetBurnsSlow", "ErrorBudgetBurnsSlowest")

_OF_CANARY = {"model": "code", "revision": CANARY}

CASES = (
    # Half of them take up to 5 s, where those of the stable revision take up to 1 s.
    Case(
        alert="CanarySlower",
        change={**LARGER, **ttft({"1.0": 0.5, "2.5": 0.5, "5.0": 1, "+Inf": 1}, f"{CANARY}-a")},
        labels=_OF_CANARY,
        shown="4.75s",
    ),
    Case(
        alert="CanaryFails",
        change={
            **LARGER,
            cluster("envoy_cluster_upstream_rq_xx", ', envoy_response_code_class="5"', CANARY): grows(2),
        },
        labels=_OF_CANARY,
        shown="3.226%",
        also=("ModelFails",),
    ),
    Case(alert="Watchdog", change={}, shown="1"),
    # From the start of a series all windows see the same share, so the slower ones fire with the faster ones.
    Case(alert="ErrorBudgetBurnsFastest", change=_failing(0.02), shown="2%", minutes=10, also=_BUDGET[1:]),
    Case(alert="ErrorBudgetBurnsFast", change=_failing(0.01), shown="1%", minutes=60, also=_BUDGET[2:]),
    Case(alert="ErrorBudgetBurnsSlow", change=_failing(0.004), shown="0.4%", minutes=300, also=_BUDGET[3:]),
    Case(alert="ErrorBudgetBurnsSlowest", change=_failing(0.002), shown="0.2%", minutes=300),
    # Its proxies do not answer, or there are none.
    Case(alert="GatewayDown", change={_PROXY_UP: constant(0)}, shown="0", minutes=5),
    Case(alert="GatewayDown", change={_PROXY_UP: None}, shown="0", minutes=5),
    Case(
        alert="ModelFails",
        change={
            cluster("envoy_cluster_upstream_rq_xx", ', envoy_response_code_class="2"'): grows(59.25),
            cluster("envoy_cluster_upstream_rq_xx", ', envoy_response_code_class="5"'): grows(0.75),
        },
        labels=_MODEL,
        shown="1.25%",
    ),
    Case(
        alert="PickersDoNotAnswer",
        change={f"envoy_http_ext_proc_streams_failed{{{LISTENER}}}": grows(30)},
        shown="500m",
    ),
    Case(
        alert="ProxyMemoryHigh",
        change={f"envoy_overload_envoy_resource_monitors_fixed_heap_pressure{{{PROXY}}}": constant(75)},
        labels={"pod": "envoy-a"},
        shown="75%",
    ),
    # The endpoint's, and the portal's.
    *(
        Case(
            alert="CertificateExpires",
            change={series: constant(13)},
            labels=labels,
            shown="13",
            minutes=90,
        )
        for series, labels in CERTIFICATES_LEFT.items()
    ),
    Case(
        alert="CertificateNotReady",
        change={certificate("certmanager_certificate_ready_status", ', condition="True"'): constant(0)},
        labels=_CERTIFICATE,
        shown="0",
    ),
    Case(
        alert="SecretNotRefreshed",
        change={filled("True"): constant(0), filled("False"): constant(1)},
        labels={"namespace": "inference-models", "name": "hub-token"},
        shown="0",
    ),
    # promtool's time begins at 0. The last one has ended.
    *(
        Case(
            alert="CredentialEnds",
            change={ends(kind, name): constant(days * 86400)},
            labels={"kind": kind, "credential": name},
            shown=f"{days - 1}",
            minutes=90,
        )
        for kind, name, days in (("credential", "kubeconfig", 30), ("authority", "os", 180), ("authority", "os", 0))
    ),
    Case(
        alert="CertificateNotRenewed",
        change={certificate("certmanager_certificate_renewal_timestamp_seconds"): constant(-30 * 3600)},
        labels=_CERTIFICATE,
        shown="31",
    ),
    Case(
        alert="ModelLatencyAboveTarget",
        change=ttft({"1": 0.5, "2.5": 0.8, "5": 1, "+Inf": 1}),
        labels={"model": "chat", "metric": "ttft", "percentile": "95", "bound_s": "2.5"},
        shown="80%",
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
        shown="4.762%",
    ),
    # All of them, while its replicas answer none, and while none of them is read.
    *(
        Case(
            alert="ModelRefusesRequests",
            change={cluster("envoy_cluster_upstream_rq_pending_overflow"): grows(60), _ANSWERED: answered},
            labels=_MODEL,
            shown="100%",
        )
        for answered in (grows(0), None)
    ),
    Case(
        alert="ModelRefusesRequests",
        change={
            engine("vllm:admission_rejections_total", ', reason="max_num_queued_reqs"'): grows(60),
            _ANSWERED: grows(0),
        },
        labels=_MODEL,
        shown="100%",
    ),
    Case(
        alert="ModelRefusesRequests",
        change={engine("vllm:admission_rejections_total", ', reason="max_num_queued_reqs"'): grows(1.2)},
        labels=_MODEL,
        shown="1.961%",
    ),
    Case(
        alert="ModelCacheFull",
        change={engine("vllm:kv_cache_usage_perc"): constant(0.98)},
        labels=_MODEL,
        shown="98%",
    ),
    Case(
        alert="ModelPreemptsRequests",
        change={engine("vllm:num_preemptions_total"): grows(3.6)},
        labels=_MODEL,
        shown="6%",
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
        change={f"kube_pod_container_status_restarts_total{{{POD}}}": grows(0.05)},
        labels={"pod": "chat-a", "container": "engine"},
        shown="3",
    ),
    # Its front end answers with what it knew.
    Case(
        alert="ReplicaStalled",
        change={mark: constant(1000) for mark in (_ANSWERED, engine(f"{TTFT}_count"), engine(f"{ITL}_count"))},
        labels={**_MODEL, "pod": "chat-a"},
        shown="4",
        minutes=10,
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
            f'kube_job_failed{{{OBJECT}, namespace="inference-models", job_name="chat-weights", condition="true"}}': (
                constant(1)
            )
        },
        labels={"job_name": "chat-weights"},
        shown="1",
    ),
    Case(
        alert="WeightsNotOnNode",
        change={
            f'kube_daemonset_status_number_unavailable{{{OBJECT}, namespace="inference-models", '
            'daemonset="chat-weights"}': constant(2)
        },
        labels={"daemonset": "chat-weights"},
        shown="2",
        minutes=190,
    ),
    Case(
        alert="GpusNotOffered",
        change={
            f"kube_node_status_capacity{{{GPUS}}}": constant(7),
            f"kube_node_status_allocatable{{{GPUS}}}": constant(7),
        },
        labels={"node": "hgx-1"},
        shown="1",
    ),
    # Its device plugin never started: there is no series of the resource.
    Case(
        alert="GpusNotOffered",
        change={f"kube_node_status_capacity{{{GPUS}}}": None, f"kube_node_status_allocatable{{{GPUS}}}": None},
        labels={"node": "hgx-1"},
        shown="8",
    ),
    Case(
        alert="NodeNotReady",
        change={f'kube_node_status_condition{{{OBJECT}, node="hgx-1", condition="Ready", status="true"}}': constant(0)},
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
    Case(alert="GpuBusErrors", change={gpu("DCGM_FI_DEV_PCIE_REPLAY_COUNTER"): grows(2)}, labels=_GPU, shown="120"),
    Case(
        alert="GpuLinkErrors",
        change={gpu("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"): grows(2)},
        labels=_GPU,
        shown="120",
    ),
    Case(
        alert="GpuLinkErrors",
        change={gpu("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"): grows(0.1)},
        labels=_GPU,
        shown="6",
    ),
    *(
        Case(
            alert=alert,
            change={gpu("DCGM_FI_DEV_FABRIC_MANAGER_STATUS"): constant(status)},
            labels=_GPU,
            shown=f"{status}",
        )
        for alert, status in (("GpuFabricFailed", 4), ("GpuFabricNotReady", 1), ("GpuFabricNotReady", 2))
    ),
    Case(alert="VolumeFaulted", change=robustness("faulted"), labels=_OF_VOLUME, shown="1"),
    Case(alert="VolumeDegraded", change=robustness("degraded"), labels=_OF_VOLUME, shown="1"),
    Case(
        alert="VolumeNearlyFull",
        change={f"longhorn_volume_actual_size_bytes{{{VOLUME}}}": constant(855e9)},
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
        change={target("kube-state-metrics", "kube-state-metrics-a"): constant(0)},
        labels={"job": "kube-state-metrics", "pod": "kube-state-metrics-a"},
        shown="0",
    ),
    Case(
        alert="EngineTargetDown",
        change={_ENGINE_UP: constant(0)},
        labels={"job": "inference-engines", "pod": "chat-a", "model": "chat"},
        shown="0",
    ),
    Case(alert="TargetsMissing", change={_ENGINE_UP: None}, labels={"job": "inference-engines"}, shown="1"),
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
    Case(alert="Watchdog", change=LARGER, shown="1"),
    Case(
        alert="ModelLatencyAboveTarget",
        change={**LARGER, **SLOW_REPLICA},
        labels={"model": "code", "metric": "ttft", "percentile": "95", "bound_s": "5"},
        shown="75%",
    ),
    Case(
        alert="GpuSlowedDown",
        change={**LARGER, **SLOW_GPU},
        labels={"node": "hgx-1", "gpu": "2", "modelName": "NVIDIA H200"},
        shown="50%",
    ),
    *(*alert_callers.CASES, *alert_database.CASES, *alert_gpu_faults.CASES, *alert_hosts.CASES, *alert_logs.CASES),
    *alert_scaling.CASES,
    *alert_usage.CASES,
)
