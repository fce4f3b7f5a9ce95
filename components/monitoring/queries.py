"""PromQL of the platform's figures, for rules and dashboards alike: pure functions that return one expression each.

`where` is what comes between the braces of a selector, such as `model="chat"`. A test holds every name and label
against `stacks/facts/metrics`, which lists what the pinned versions of the parts expose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from components.monitoring import gpu_resources
from components.specs.promises import HISTOGRAMS
from floor.namespaces import ENVOY_GATEWAY, MODELS

ENGINES = 'job="inference-engines"'
PICKERS = 'job="inference-pickers"'
PROXIES = 'job="inference-proxies"'
REQUESTS = 'job="inference-requests"'
OBJECTS = 'job="kube-state-metrics"'
GPUS = 'job="gpus"'
STORAGE = 'job="storage"'
CONTROLLERS = 'job="gateway-controllers"'
CERTIFICATES = 'job="certificates"'
SECRETS = 'job="secrets"'
AUTOSCALING = 'job="autoscaling"'

LISTENERS = f'{PROXIES}, envoy_http_conn_manager_prefix=~"https?-.+"'
"""The proxies' own listeners for clients. Envoy counts its admin interface and its readiness under other names."""

# Recorded out of what the site declares; the labels are those of the alerts and of the legends.
TARGET = "model:latency_target_seconds:declared"
"""Seconds that a target allows. Labels: model, metric (ttft, itl, tpot), percentile (50, 95, 99)."""
PROMISED_ITL = "model:itl_mean_seconds:promised"
"""Mean seconds between tokens at the slow end of the proof's band, under the declared load. Label: model."""
DECLARED_REQUESTS = "model:requests_per_second:declared"
"""Requests per second that the site expects. Label: model."""
DECLARED_REPLICAS = "model:replicas:declared"
"""Label: model."""
DECLARED_GPUS = "model:gpus:declared"
"""GPUs of all replicas of a model. Label: model."""
AVAILABILITY = "site:availability:declared"
"""Share of requests that the site answers without an error of its own, 0 to 1."""
TIER = "tenant:tier:declared"
"""1 for each tenant. Labels: tenant, tier; `none` for a tenant without one."""
CREDENTIAL_END = "credential:end_timestamp_seconds:issued"
"""Seconds since 1970. Labels: kind (credential, authority), credential (kubeconfig, os, and so on)."""
WITHIN_TARGET = "model:latency_within_target:share15m"
"""Share of 15 minutes' values up to `bound_s`, the engine's first bound in seconds that is not below the target, where
enough requests came to know. Labels: those of TARGET, and bound_s."""
OFFERED_GPUS = "node:gpus:declared"
"""GPUs that each node of the site should offer. Label: node."""
QUEUE_LIMIT = "model:waiting_requests_per_replica:shedding"
"""Waiting requests per replica from which on pickers refuse tiers below 0. Label: model."""

IN_MODELS = f'{OBJECTS}, namespace="{MODELS}"'
_IN_PROXIES = f'{OBJECTS}, namespace="{ENVOY_GATEWAY}"'
_GPU = gpu_resources.WHOLE
# Envoy's cluster of a model has the name of its route.
_CLUSTER = f"httproute/{MODELS}/(.+)/rule/.+"
# A Deployment's pod: NAME-REPLICASET-POD.
_POD = "(.+)-[a-z0-9]+-[a-z0-9]+"


def total(metric: str, where: str = "", *, by: tuple[str, ...] = ()) -> str:
    """The sum of a gauge's series, or one sum for each value of `by`."""
    return f"sum{_by(by)}({metric}{_where(where)})"


def highest(metric: str, where: str = "", *, by: tuple[str, ...] = ()) -> str:
    """The largest of a gauge's series, or one for each value of `by`."""
    return f"max{_by(by)}({metric}{_where(where)})"


def lowest(metric: str, where: str = "", *, by: tuple[str, ...] = ()) -> str:
    """The smallest of a gauge's series, or one for each value of `by`."""
    return f"min{_by(by)}({metric}{_where(where)})"


def rate(metric: str, where: str = "", *, by: tuple[str, ...] = (), window: str) -> str:
    """What a counter grew by per second, over `window`."""
    return f"sum{_by(by)}(rate({metric}{_where(where)}[{window}]))"


def growth(metric: str, where: str = "", *, by: tuple[str, ...] = (), window: str) -> str:
    """What a counter grew by in `window`."""
    return f"sum{_by(by)}(increase({metric}{_where(where)}[{window}]))"


def quantile(share: float, histogram: str, where: str = "", *, by: tuple[str, ...] = (), window: str) -> str:
    """The value that `share` of what a histogram counted in `window` does not exceed. Not a number without traffic."""
    return f"histogram_quantile({share:g}, {rate(f'{histogram}_bucket', where, by=('le', *by), window=window)})"


def mean(histogram: str, where: str = "", *, by: tuple[str, ...] = (), window: str) -> str:
    """The mean of what a histogram counted in `window`."""
    counted = rate(f"{histogram}_count", where, by=by, window=window)
    return f"{rate(f'{histogram}_sum', where, by=by, window=window)} / ({counted} > 0)"


def ttft_s(share: float, where: str = ENGINES, *, by: tuple[str, ...] = ("model",), window: str) -> str:
    """Seconds to the first token, at the engine: queue and prefill."""
    return quantile(share, "vllm:time_to_first_token_seconds", where, by=by, window=window)


def itl_s(share: float, where: str = ENGINES, *, by: tuple[str, ...] = ("model",), window: str) -> str:
    """Seconds between what two steps give a request, at the engine."""
    return quantile(share, "vllm:inter_token_latency_seconds", where, by=by, window=window)


def itl_mean_s(where: str = ENGINES, *, by: tuple[str, ...] = ("model",), window: str) -> str:
    """Mean seconds between what two steps give a request: how fast decode is."""
    return mean("vllm:inter_token_latency_seconds", where, by=by, window=window)


def tpot_s(share: float, where: str = ENGINES, *, by: tuple[str, ...] = ("model",), window: str) -> str:
    """Seconds per token of a request after its first."""
    return f"histogram_quantile({share:g}, {_buckets(HISTOGRAMS['tpot'], where, by=('le', *by), window=window)})"


def share_up_to(
    bound_s: float, histograms: tuple[str, ...], where: str, *, by: tuple[str, ...] = ("model",), window: str
) -> str:
    """Share of what a histogram, under whichever of its names, counted in `window` up to one of its bounds, 0 to 1."""
    # Clients of Prometheus write 1 or 1.0, and Prometheus itself 1.0 from its version 3 on.
    bound = f"{bound_s:g}" if bound_s % 1 else f"{bound_s:.0f}([.]0)?"
    within = _buckets(histograms, _and(where, f'le=~"{bound}"'), by=by, window=window)
    every = _buckets(histograms, _and(where, 'le="+Inf"'), by=by, window=window)
    return f"{within} / ({every} > 0)"


def e2e_s(share: float, where: str = ENGINES, *, by: tuple[str, ...] = ("model",), window: str) -> str:
    """Seconds from a request's arrival at the engine to its last token."""
    return quantile(share, "vllm:e2e_request_latency_seconds", where, by=by, window=window)


def queue_s(share: float, where: str = ENGINES, *, by: tuple[str, ...] = ("model",), window: str) -> str:
    """Seconds that a request waits in an engine."""
    return quantile(share, "vllm:request_queue_time_seconds", where, by=by, window=window)


def prefill_s(share: float, where: str = ENGINES, *, by: tuple[str, ...] = ("model",), window: str) -> str:
    """Seconds of a request's prefill."""
    return quantile(share, "vllm:request_prefill_time_seconds", where, by=by, window=window)


def decode_s(share: float, where: str = ENGINES, *, by: tuple[str, ...] = ("model",), window: str) -> str:
    """Seconds of a request's decode."""
    return quantile(share, "vllm:request_decode_time_seconds", where, by=by, window=window)


def tenant_ttft_s(share: float, where: str = REQUESTS, *, by: tuple[str, ...] = ("tenant",), window: str) -> str:
    """Seconds to the first token of a stream, at the gateway."""
    return quantile(share, "gen_ai_server_time_to_first_token_seconds", where, by=by, window=window)


def tenant_tpot_s(share: float, where: str = REQUESTS, *, by: tuple[str, ...] = ("tenant",), window: str) -> str:
    """Seconds per token of a request after its first, at the gateway."""
    return quantile(share, "gen_ai_server_time_per_output_token_seconds", where, by=by, window=window)


def requests_per_s(where: str = ENGINES, *, by: tuple[str, ...] = ("model",), window: str) -> str:
    """Requests per second that the engines answer."""
    return rate("vllm:request_success_total", where, by=by, window=window)


def prompt_tokens_per_s(where: str = ENGINES, *, by: tuple[str, ...] = ("model",), window: str) -> str:
    """Tokens of prompts per second, cached ones included."""
    return rate("vllm:prompt_tokens_total", where, by=by, window=window)


def answer_tokens_per_s(where: str = ENGINES, *, by: tuple[str, ...] = ("model",), window: str) -> str:
    """Tokens of answers per second."""
    return rate("vllm:generation_tokens_total", where, by=by, window=window)


def cache_hit_share(where: str = ENGINES, *, by: tuple[str, ...] = ("model",), window: str) -> str:
    """Share of prompt tokens that were in a replica's cache, 0 to 1. The simulator's counters have no `_total`."""

    def either(name: str) -> str:
        rates = " or ".join(f"rate({name}{suffix}{_where(where)}[{window}])" for suffix in ("_total", ""))
        return f"sum{_by(by)}({rates})"

    return f"{either('vllm:prefix_cache_hits')} / ({either('vllm:prefix_cache_queries')} > 0)"


def preemptions_per_s(where: str = ENGINES, *, by: tuple[str, ...] = ("model",), window: str) -> str:
    """Requests per second whose cache was taken for others, and that run their prefill again."""
    return rate("vllm:num_preemptions_total", where, by=by, window=window)


def error_share(by: str, where: str = REQUESTS, *, window: str) -> str:
    """Share of the requests that the AI gateway counts that end with an error, 0 to 1, for each value of `by`."""
    name = "gen_ai_server_request_duration_seconds_count"
    failed = rate(name, _and(where, 'error_type!=""'), by=(by,), window=window)
    return share_of(failed, rate(name, where, by=(by,), window=window))


def status_share(status_class: str, *, window: str) -> str:
    """Share of all clients' requests that the proxies answer with this class of status (`4`: 400 to 499), 0 to 1."""
    name = "envoy_http_downstream_rq_xx"
    answered = rate(name, _and(LISTENERS, f'envoy_response_code_class="{status_class}"'), window=window)
    return share_of(answered, rate(name, LISTENERS, window=window))


def rate_by_model(metric: str, where: str = "", *, window: str) -> str:
    """What a counter of Envoy's clusters grew by per second, by model."""
    of_models = _and(PROXIES, f'envoy_cluster_name=~"{_CLUSTER}"', where)
    grown = f"rate({metric}{_where(of_models)}[{window}])"
    return f"sum by (model) ({_labelled(grown, 'envoy_cluster_name', _CLUSTER)})"


def gpus_by_model(where: str = "") -> str:
    """GPUs that the pods of each model have, started or not. `where`: of the label `model`."""
    return f"model:gpus:assigned{_where(where)}"


def assigned_gpus(slices: Mapping[str, float] | None = None, named: str = _POD, others: str = "") -> str:
    """By model, the first group of `named`; `others` is what pods are not called. slices: resource -> part of a GPU."""
    asked = f'kube_pod_container_resource_requests{{{IN_MODELS}, %s, node!="", pod=~"{named}"{others}}}'
    parts = gpu_resources.by_part(slices or {})
    return f"sum by (model) ({' or '.join(_labelled(asked % where, 'pod', named) + times for where, times in parts)})"


def offered_gpus(slices: Iterable[str] = ()) -> str:
    """GPUs that each node offers to Kubernetes, and slices of these resources."""
    return total("kube_node_status_allocatable", _and(OBJECTS, gpu_resources.any_of(slices)), by=("node",))


def free_gpu_share() -> str:
    """Share of all offered whole GPUs that no pod has, 0 to 1."""
    asked = total("kube_pod_container_resource_requests", _and(OBJECTS, _GPU, 'node!=""'))
    return f"1 - ({asked} or vector(0)) / {total('kube_node_status_allocatable', _and(OBJECTS, _GPU))}"


def missing_replicas() -> str:
    """Replicas of models and pickers that are declared and not available, by Deployment."""
    wanted = total("kube_deployment_spec_replicas", IN_MODELS, by=("deployment",))
    return f"{wanted} - {total('kube_deployment_status_replicas_available', IN_MODELS, by=('deployment',))}"


def changed_deployments(minutes: int) -> str:
    """Deployments of models and pickers that were made or changed within so many minutes."""
    changed = f"changes(kube_deployment_metadata_generation{_where(IN_MODELS)}[{minutes}m]) > 0"
    made = f"time() - kube_deployment_created{_where(IN_MODELS)} < {minutes * 60}"
    return f"max by (deployment) ({changed} or {made})"


def weights_jobs(state: str) -> str:
    """Pods of each weights Job that are in this state: `active`, `succeeded` or `failed`."""
    return total(f"kube_job_status_{state}", IN_MODELS, by=("job_name",))


def weights_job_age() -> str:
    """Seconds since each weights Job that is under way began."""
    started = highest("kube_job_status_start_time", IN_MODELS, by=("job_name",))
    return f"time() - {started} and {weights_jobs('active')} > 0"


def unfilled_nodes() -> str:
    """Nodes that lack the weights of a model, where each node has its own, by the DaemonSet that fills them."""
    return total("kube_daemonset_status_number_unavailable", IN_MODELS, by=("daemonset",))


def unusable_storage_nodes() -> str:
    """1 for each of Longhorn's nodes that is not ready or takes no volume, by condition."""
    where = _and(STORAGE, 'condition=~"ready|schedulable"')
    return f"sum by (node, condition) (1 - longhorn_node_status{_where(where)})"


def node_storage_used_share() -> str:
    """Share of the disks of each of Longhorn's nodes that is in use, 0 to 1."""
    used = highest("longhorn_node_storage_usage_bytes", STORAGE, by=("node",))
    return f"{used} / {highest('longhorn_node_storage_capacity_bytes', STORAGE, by=('node',))}"


def volume_used_share(where: str = STORAGE) -> str:
    """Share of each of Longhorn's volumes that was written and not trimmed, 0 to 1."""
    used = highest("longhorn_volume_actual_size_bytes", where, by=("volume", "pvc"))
    return f"{used} / {highest('longhorn_volume_capacity_bytes', where, by=('volume', 'pvc'))}"


def error_ratio(window: str) -> str:
    """Share of all requests that the proxies answered with 5xx in `window`, 0 to 1, as it is recorded."""
    return f"site:request_errors:ratio_rate{window}"


def target_s(metric: str, percentile: int, where: str = "") -> str:
    """The declared target of a metric (`ttft`, `itl`, `tpot`), in seconds, for each model that has one."""
    of_metric = f'metric="{metric}", percentile="{percentile}"'
    return f"{TARGET}{_where(_and(of_metric, where))}"


def budget_left(window: str = "3d") -> str:
    """Share of the error budget that the errors of `window` leave if all time were like it, at most 1."""
    return f"1 - {error_ratio(window)} / (1 - {AVAILABILITY})"


def restarts(*, window: str) -> str:
    """Restarts of the containers of models and pickers in `window`, by pod."""
    return growth("kube_pod_container_status_restarts_total", IN_MODELS, by=("pod",), window=window)


def pending_pods() -> str:
    """Pods of models, pickers and Jobs that wait for a node, a volume or an image."""
    return total("kube_pod_status_phase", _and(IN_MODELS, 'phase="Pending"'))


def nodes_not_ready() -> str:
    """1 for each node that is not ready."""
    return total("kube_node_status_condition", _and(OBJECTS, 'condition="Ready", status!="true"'), by=("node",))


def gateway_addresses() -> str:
    """Addresses of each Service of the proxies."""
    return f"count by (service) (kube_service_status_load_balancer_ingress{{{_IN_PROXIES}}})"


def missing_proxies() -> str:
    """Proxies that their ReplicaSets want and that do not exist: refused when they are made."""
    wanted = total("kube_replicaset_spec_replicas", _IN_PROXIES)
    return f"{wanted} - {total('kube_replicaset_status_replicas', _IN_PROXIES)}"


def claims() -> str:
    """Claims of volumes by their phase."""
    return total("kube_persistentvolumeclaim_status_phase", OBJECTS, by=("phase",))


def burn_rate(window: str) -> str:
    """How many times faster than allowed the errors of `window` use the error budget; 1 uses it up in its period."""
    return f"{error_ratio(window)} / (1 - {AVAILABILITY})"


def rule_failures_per_s(*, window: str) -> str:
    """Rules per second that cannot be computed, by group. Prometheus names a group with its file."""
    failed = f"rate(prometheus_rule_evaluation_failures_total[{window}])"
    return f'sum by (rule_group) (label_replace({failed}, "rule_group", "$1", "rule_group", ".*;(.+)"))'


def gateway_s(share: float, where: str = REQUESTS, *, by: tuple[str, ...] = ("tenant",), window: str) -> str:
    """Seconds from a request's arrival at the gateway to its last token."""
    return quantile(share, "gen_ai_server_request_duration_seconds", where, by=by, window=window)


def picking_s(share: float, where: str, *, by: tuple[str, ...] = ("model",), window: str) -> str:
    """Seconds in which a picker chooses a replica."""
    return quantile(share, "inference_extension_scheduler_e2e_duration_seconds", where, by=by, window=window)


def tier_ttft_s(share: float, where: str = REQUESTS, *, by: tuple[str, ...] = ("tier",), window: str) -> str:
    """Seconds to the first token of a stream, at the gateway, by the tier of its tenant."""
    buckets = f"rate(gen_ai_server_time_to_first_token_seconds_bucket{_where(where)}[{window}])"
    return f"histogram_quantile({share:g}, sum by ({', '.join(('le', *by))}) ({_with_tier(buckets)}))"


def tier_error_share(where: str = REQUESTS, *, window: str) -> str:
    """Share of the requests of a tier's tenants that end with an error, 0 to 1."""
    name = "gen_ai_server_request_duration_seconds_count"
    failures = _and(where, 'error_type!=""')
    failed = f"rate({name}{_where(failures)}[{window}])"
    every = f"rate({name}{_where(where)}[{window}])"
    return share_of(f"sum by (tier) ({_with_tier(failed)})", f"sum by (tier) ({_with_tier(every)})")


def or_zero(expression: str, job: str) -> str:
    """0 where nothing of it was counted yet, and its job is read: many series begin with their first event."""
    return f"({expression}) or on () 0 * sum(up{{{job}}} == 1)"


def share_of(part: str, whole: str) -> str:
    """A part of a whole, 0 to 1: 0 while no series of the part exists, and nothing without the whole."""
    return f"({part} or 0 * {whole}) / ({whole} > 0)"


def _buckets(histograms: tuple[str, ...], where: str, *, by: tuple[str, ...], window: str) -> str:
    """What the buckets of a histogram grew by per second, under whichever of its names the engine has it."""
    rates = " or ".join(f"rate({name}_bucket{_where(where)}[{window}])" for name in histograms)
    return f"sum{_by(by)}({rates})"


def _with_tier(expression: str) -> str:
    """With the label `tier`, out of that of its tenant."""
    return f"{expression} * on (tenant) group_left (tier) {TIER}"


def _labelled(expression: str, source: str, pattern: str) -> str:
    """With the label `model` out of another one."""
    return f'label_replace({expression}, "model", "$1", "{source}", "{pattern}")'


def _and(*matchers: str) -> str:
    return ", ".join(filter(None, matchers))


def _by(labels: tuple[str, ...]) -> str:
    return f" by ({', '.join(labels)}) " if labels else ""


def _where(matchers: str) -> str:
    return f"{{{matchers}}}" if matchers else ""
