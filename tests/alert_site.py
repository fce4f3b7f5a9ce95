"""A healthy site as Prometheus sees it: what it declares, and the series that its parts have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from components.models.weights import claim_name, volume_gib
from components.specs.promises import LatencyPromise, ModelPromise, SitePromise
from tests.alert_series import (
    CERTIFICATES_LEFT,
    NOTHING_LOST,
    PORTAL,
    answered,
    budget_used,
    files_refused,
    heard,
    heard_of_use,
    hour_tokens,
    of_collector,
    of_directory,
    of_dns,
    of_ledger,
    of_log_store,
    of_shipper,
    of_watcher,
    overflow,
    portal_failures,
)

PROMISE = SitePromise(
    models=(
        ModelPromise(
            model="chat",
            targets=(
                LatencyPromise(metric="ttft", percentile=95, seconds=2.0, bound_s=2.5),
                LatencyPromise(metric="itl", percentile=99, seconds=0.1, bound_s=0.1),
            ),
            itl_mean_s=0.04,
            requests_per_s=2.0,
            replicas=2,
            gpus=16,
            carried_tokens_per_s=9000.0,
            start_budget_s=1309,
            # Series of tests have a value per minute.
            stall_s=240,
            weights_budget_s=9000,
            shedding_queue=8,
        ),
        # Its series are in tests/alert_larger_site.py.
        ModelPromise(
            model="code",
            targets=(
                LatencyPromise(metric="ttft", percentile=95, seconds=4.0, bound_s=5.0),
                LatencyPromise(metric="tpot", percentile=50, seconds=0.06, bound_s=0.075),
            ),
            itl_mean_s=0.06,
            requests_per_s=2.0,
            replicas=2,
            gpus=4,
            start_budget_s=600,
            stall_s=300,
            weights_budget_s=0,
            shedding_queue=8,
        ),
    ),
    availability_percent=99.9,
    node_gpus={"hgx-1": 8},
    tiers={"acme": "interactive"},
    jobs=("inference-engines", "inference-proxies", "kube-state-metrics"),
)

PROXY = 'job="inference-proxies", pod="envoy-a"'
LISTENER = f'{PROXY}, envoy_http_conn_manager_prefix="http-10080"'
OBJECT = 'job="kube-state-metrics"'
POD = f'{OBJECT}, namespace="inference-models", pod="chat-a", container="engine"'
GPUS = f'{OBJECT}, node="hgx-1", resource="nvidia_com_gpu", unit="integer"'
VOLUME = 'job="storage", volume="pvc-2", pvc="registry", pvc_namespace="tools", node="hgx-1"'
_WEIGHT_BYTES = 756e9
TTFT, ITL = "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds"


@dataclass(frozen=True)
class Values:
    """What a series has: its first value, and what is added every minute."""

    first: float = 0.0
    each_minute: float = 0.0

    def over(self, minutes: int) -> str:
        """In promtool's notation."""
        return f"{self.first:g}{self.each_minute:+g}x{minutes}"


@dataclass(frozen=True)
class EachHour(Values):
    """The same, by the hour: it keeps its value until the next one."""

    def over(self, minutes: int) -> str:
        return " ".join(f"{self.first + hour * self.each_minute:g}+0x59" for hour in range(minutes // 60 + 1))


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


def constant(value: float) -> Values:
    return Values(value)


def grows(by: float) -> Values:
    """A counter, by so much per minute."""
    return Values(0.0, by)


def engine(metric: str, more: str = "", pod: str = "chat-a") -> str:
    """Pods have the name of their model and one letter."""
    model = pod.rpartition("-")[0]
    return f'{metric}{{job="inference-engines", model="{model}", model_name="{model}", pod="{pod}"{more}}}'


def listener(status_class: int) -> str:
    return f'envoy_http_downstream_rq_xx{{{LISTENER}, envoy_response_code_class="{status_class}"}}'


def cluster(metric: str, more: str = "", model: str = "chat") -> str:
    return f'{metric}{{{PROXY}, envoy_cluster_name="httproute/inference-models/{model}/rule/0"{more}}}'


def target(job: str, pod: str, more: str = "") -> str:
    return f'up{{job="{job}", pod="{pod}"{more}}}'


def gpu(metric: str, number: int = 0) -> str:
    return f'{metric}{{job="gpus", node="hgx-1", gpu="{number}", modelName="NVIDIA H200"}}'


def certificate(metric: str, more: str = "") -> str:
    return f'{metric}{{job="certificates", namespace="inference-gateway", name="inference"{more}}}'


def ends(kind: str, name: str) -> str:
    return f'credential:end_timestamp_seconds:issued{{kind="{kind}", credential="{name}"}}'


def filled(status: str) -> str:
    return (
        'externalsecret_status_condition{job="secrets", namespace="inference-models", name="hub-token", '
        f'condition="Ready", status="{status}"}}'
    )


def etcd_backup(metric: str) -> str:
    return f'{metric}{{{OBJECT}, namespace="etcd-backup", cronjob="etcd-backup"}}'


def database(metric: str) -> str:
    return f'{metric}{{job="database", namespace="inference-database", pod="platform-1-1"}}'


def node(metric: str, more: str = "", job: str = "node-exporter") -> str:
    return f'{metric}{{job="{job}", node="cp-1", instance="10.5.0.11:9100"{more}}}'


def disk(metric: str) -> str:
    return node(metric, ', device="/dev/nvme0n1p6", fstype="xfs", mountpoint="/var"')


def link(metric: str) -> str:
    return node(f"node_network_{metric}_total", ', device="enp1s0"')


def cilium(metric: str, more: str = "") -> str:
    return node(metric, more, job="cilium-agent")


def dropped(reason: str) -> str:
    return cilium("cilium_drop_count_total", f', reason="{reason}", direction="INGRESS"')


def etcd(metric: str, more: str = "") -> str:
    return node(metric, more, job="etcd")


def api(metric: str, more: str) -> str:
    return f'apiserver_request_{metric}{{job="apiserver", instance="10.5.0.11:6443", verb="GET"{more}}}'


def dns(code: str) -> str:
    return f'coredns_dns_responses_total{{job="coredns", pod="coredns-a", node="cp-1", rcode="{code}"}}'


def histogram(metric: str, shares: Mapping[str, float], per_minute: float, pod: str = "chat-a") -> dict[str, Values]:
    """Buckets by their upper bound, with the share of values up to it."""
    buckets = {bound: engine(f"{metric}_bucket", f', le="{bound}"', pod) for bound in shares}
    return {buckets[bound]: grows(share * per_minute) for bound, share in shares.items()}


def itl(mean_s: float, shares: Mapping[str, float], pod: str = "chat-a") -> dict[str, Values]:
    """Gaps of this mean, 6,000 per minute."""
    return histogram(ITL, shares, 6000, pod) | {
        engine(f"{ITL}_sum", pod=pod): grows(6000 * mean_s),
        engine(f"{ITL}_count", pod=pod): grows(6000),
    }


def ttft(shares: Mapping[str, float], pod: str = "chat-a") -> dict[str, Values]:
    """First tokens of 60 requests per minute."""
    return histogram(TTFT, shares, 60, pod) | {engine(f"{TTFT}_count", pod=pod): grows(60)}


def robustness(state: str) -> dict[str, Values]:
    """Longhorn has a series for each state, and 1 in one of them."""
    return {
        f'longhorn_volume_robustness{{{VOLUME}, state="{other}"}}': constant(float(other == state))
        for other in ("healthy", "degraded", "faulted")
    }


def of_deployment(metric: str, name: str) -> str:
    return f'{metric}{{{OBJECT}, namespace="inference-models", deployment="{name}"}}'


def deployment(name: str, available: int, wanted: int = 2) -> dict[str, Values]:
    """Made a day before, and not changed since."""
    return {
        of_deployment("kube_deployment_created", name): constant(-86400),
        of_deployment("kube_deployment_metadata_generation", name): constant(1),
        of_deployment("kube_deployment_spec_replicas", name): constant(wanted),
        of_deployment("kube_deployment_status_replicas_available", name): constant(available),
    }


def weights_volume(model: str) -> dict[str, Values]:
    """As large as the program makes it for its weights, all of which it has."""
    claim = claim_name(model, "longhorn")
    where = f'job="storage", volume="pvc-of-{model}", pvc="{claim}", pvc_namespace="inference-models"'
    return {
        f'longhorn_volume_actual_size_bytes{{{where}, node="hgx-1"}}': constant(_WEIGHT_BYTES),
        f'longhorn_volume_capacity_bytes{{{where}, node="hgx-1"}}': constant(volume_gib(_WEIGHT_BYTES) * 2**30),
    }


def etcd_writes(kind: str, bound: str, share: float) -> dict[str, Values]:
    """Writes to disk, 600 per minute, and the share up to a bound."""
    bucket = f"etcd_disk_{kind}_duration_seconds_bucket"
    return {
        etcd(bucket, f', le="{bound}"'): grows(600 * share),
        etcd(bucket, ', le="+Inf"'): grows(600),
    }


HEALTHY: Mapping[str, Values] = {
    target("inference-engines", "chat-a", ', model="chat"'): constant(1),
    target("inference-proxies", "envoy-a"): constant(1),
    target("kube-state-metrics", "kube-state-metrics-a"): constant(1),
    listener(2): grows(60),
    listener(4): grows(6),
    listener(5): grows(0),
    cluster("envoy_cluster_upstream_rq_xx", ', envoy_response_code_class="2"'): grows(60),
    cluster("envoy_cluster_upstream_rq_xx", ', envoy_response_code_class="5"'): grows(0),
    cluster("envoy_cluster_upstream_rq_pending_overflow"): grows(0),
    cluster("envoy_cluster_upstream_rq_active_overflow"): grows(0),
    f"envoy_http_ext_proc_streams_failed{{{LISTENER}}}": grows(0),
    f"envoy_overload_envoy_resource_monitors_fixed_heap_pressure{{{PROXY}}}": constant(30),
    **dict.fromkeys(CERTIFICATES_LEFT, constant(300)),
    **ttft({"1": 0.97, "2.5": 1, "5": 1, "+Inf": 1}),
    **itl(0.03, {"0.05": 0.995, "0.1": 1, "0.5": 1, "+Inf": 1}),
    engine("vllm:num_requests_running"): constant(4),
    engine("vllm:num_requests_waiting"): constant(0),
    engine("vllm:kv_cache_usage_perc"): constant(0.5),
    engine("vllm:num_preemptions_total"): grows(0),
    engine("vllm:admission_rejections_total", ', reason="max_num_queued_reqs"'): grows(0),
    engine("vllm:request_success_total", ', finished_reason="stop"'): grows(60),
    # Of another model: a stalled replica of the first is one whose tokens do not grow.
    engine("vllm:prompt_tokens_total", pod="code-a"): grows(9_000),
    engine("vllm:generation_tokens_total", pod="code-a"): grows(1_000),
    'inference_pool_ready_pods{job="inference-pickers", model="chat", name="chat"}': constant(2),
    **deployment("chat", available=2),
    **deployment("chat-epp", available=2),
    f"kube_pod_container_status_restarts_total{{{POD}}}": constant(1),
    f'kube_job_failed{{{OBJECT}, namespace="inference-models", job_name="chat-weights", condition="true"}}': constant(
        0
    ),
    f'kube_daemonset_status_number_unavailable{{{OBJECT}, namespace="inference-models", daemonset="chat-weights"}}': (
        constant(0)
    ),
    f"kube_node_status_capacity{{{GPUS}}}": constant(8),
    f"kube_node_status_allocatable{{{GPUS}}}": constant(8),
    f'kube_node_status_condition{{{OBJECT}, node="hgx-1", condition="Ready", status="true"}}': constant(1),
    **{gpu("DCGM_FI_DEV_SM_CLOCK", number): constant(1900) for number in (0, 1)},
    **{gpu("DCGM_FI_PROF_GR_ENGINE_ACTIVE", number): constant(0.9) for number in (0, 1)},
    gpu("DCGM_FI_DEV_XID_ERRORS"): constant(0),
    gpu("DCGM_FI_DEV_ROW_REMAP_FAILURE"): constant(0),
    gpu("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"): constant(2),
    gpu("DCGM_FI_DEV_GPU_TEMP"): constant(70),
    gpu("DCGM_FI_DEV_MEMORY_TEMP"): constant(80),
    gpu("DCGM_FI_DEV_PCIE_REPLAY_COUNTER"): grows(0.1),
    gpu("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"): grows(0.1),
    gpu("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"): constant(3),
    gpu("DCGM_FI_DEV_FABRIC_MANAGER_STATUS"): constant(3),
    **robustness("healthy"),
    **weights_volume("chat"),
    f"longhorn_volume_actual_size_bytes{{{VOLUME}}}": constant(700e9),
    f"longhorn_volume_capacity_bytes{{{VOLUME}}}": constant(900e9),
    'longhorn_node_storage_usage_bytes{job="storage", node="hgx-1"}': constant(5e12),
    'longhorn_node_storage_capacity_bytes{job="storage", node="hgx-1"}': constant(10e12),
    certificate("certmanager_certificate_ready_status", ', condition="True"'): constant(1),
    certificate("certmanager_certificate_renewal_timestamp_seconds"): constant(60 * 86400),
    etcd_backup("kube_cronjob_created"): constant(-30 * 86400),
    # The last one has just ended, at any time.
    etcd_backup("kube_cronjob_status_last_successful_time"): grows(60),
    database("cnpg_pg_replication_streaming_replicas"): constant(2),
    database("cnpg_pg_stat_archiver_last_archived_time"): grows(60),
    database("cnpg_pg_stat_archiver_last_failed_time"): constant(-1),
    database("barman_cloud_cloudnative_pg_io_last_available_backup_timestamp"): grows(60),
    ends("credential", "kubeconfig"): constant(300 * 86400),
    ends("credential", "talosconfig"): constant(300 * 86400),
    ends("authority", "os"): constant(3000 * 86400),
    filled("True"): constant(1),
    filled("False"): constant(0),
    **{target("gatekeeper", f"gatekeeper-{letter}"): constant(1) for letter in "ab"},
    **{heard(f"gatekeeper-{letter}"): grows(60) for letter in "ab"},
    **{files_refused(f"gatekeeper-{letter}"): constant(0) for letter in "ab"},
    **{heard_of_use(f"gatekeeper-{letter}"): grows(60) for letter in "ab"},
    overflow("share"): constant(0),
    overflow("unread_total"): grows(1),
    budget_used("spend_per_month"): constant(0.5),
    budget_used("tokens_per_month"): constant(0.7),
    answered("allowed"): grows(60),
    answered("unknown"): grows(0),
    **dict.fromkeys(PORTAL, constant(1)),
    **{target(name, f"{name}-a"): constant(1) for name in ("directory", "ledger", "watcher")},
    portal_failures("ledger of usage"): grows(0.2),
    of_ledger("hour_start_timestamp_seconds"): EachHour(-3600, 3600),
    hour_tokens("input"): constant(540_000),
    hour_tokens("output"): constant(60_000),
    **dict.fromkeys(NOTHING_LOST, grows(0)),
    of_ledger("prices_unusable"): constant(0),
    of_ledger("keys_looked_timestamp_seconds"): grows(60),
    of_directory("suspensions", ', tenant="acme", key="old", by="person"'): constant(1),
    of_directory("suspensions_held"): constant(0),
    of_directory("key_signals_read_timestamp_seconds"): grows(60),
    of_shipper("oldest_seconds"): constant(2),
    of_watcher("looked_timestamp_seconds", ""): grows(60),
    **{of_watcher("reported", f', node="hgx-1", source="{source}"'): constant(0) for source in ("dcgm", "cluster")},
    of_collector("vl_rows_dropped_total", ', reason="too_many_fields"'): grows(0),
    of_collector("vm_persistentqueue_bytes_dropped_total", ', path="q"'): grows(0),
    of_collector("vlagent_remotewrite_pending_data_bytes", ', path="q"'): constant(0),
    of_dns("controller_last_sync_timestamp_seconds"): grows(60),
    **{of_dns(f"{of}_records", ', record_type="a"'): constant(2) for of in ("source", "controller_verified")},
    of_log_store("vl_total_disk_space_bytes"): constant(50e9),
    of_log_store("vl_free_disk_space_bytes"): constant(20e9),
    of_log_store("vl_storage_is_read_only"): constant(0),
    **{node("up", job=job): constant(1) for job in ("node-exporter", "kubelet", "cadvisor", "etcd", "apiserver")},
    **{node("up", job=job): constant(1) for job in ("coredns", "cilium-agent", "hubble")},
    **{dropped(reason): grows(6_000) for reason in ("Policy denied", "Unsupported L3 protocol")},
    cilium("cilium_bpf_map_pressure", ', map_name="ct4_global"'): constant(0.3),
    **{cilium(f"cilium_unreachable_{what}"): constant(0) for what in ("nodes", "health_endpoints")},
    disk("node_filesystem_size_bytes"): constant(1e12),
    # A steady write, as of logs.
    disk("node_filesystem_avail_bytes"): Values(700e9, -0.1e9),
    disk("node_filesystem_readonly"): constant(0),
    node("node_memory_MemTotal_bytes"): constant(64e9),
    node("node_memory_MemAvailable_bytes"): constant(40e9),
    **{link(f"{way}_packets"): grows(1e6) for way in ("receive", "transmit")},
    **{link(f"{way}_errs"): grows(10) for way in ("receive", "transmit")},
    **{node(f"node_bonding_{links}", ', master="bond0"'): constant(2) for links in ("slaves", "active")},
    # promtool's time begins at 0.
    node("node_time_seconds"): grows(60),
    node("kubelet_certificate_manager_client_ttl_seconds", job="kubelet"): constant(200 * 86400),
    etcd("etcd_server_has_leader"): constant(1),
    etcd("etcd_mvcc_db_total_size_in_bytes"): constant(0.3e9),
    etcd("etcd_server_quota_backend_bytes"): constant(2e9),
    **etcd_writes("wal_fsync", "0.128", 1),
    **etcd_writes("backend_commit", "0.256", 1),
    api("total", ', code="200"'): grows(600),
    api("total", ', code="503"'): grows(1),
    api("sli_duration_seconds_bucket", ', le="1.0"'): grows(599),
    api("sli_duration_seconds_bucket", ', le="+Inf"'): grows(600),
    dns("NOERROR"): grows(600),
    dns("NXDOMAIN"): grows(600),
    'prometheus_rule_evaluation_failures_total{job="prometheus", rule_group="load"}': grows(0),
    'prometheus_config_last_reload_successful{job="prometheus"}': constant(1),
    'alertmanager_notifications_failed_total{job="alertmanager", integration="webhook", reason="other"}': grows(0),
}
