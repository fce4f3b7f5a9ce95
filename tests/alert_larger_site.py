"""A larger healthy site: two models of two replicas each, and a node with GPUs that work beside some that do not."""

from __future__ import annotations

from collections.abc import Mapping

from tests.alert_site import (
    OBJECT,
    Values,
    cluster,
    constant,
    deployment,
    engine,
    gpu,
    grows,
    histogram,
    itl,
    target,
    ttft,
    weights_volume,
)

_TPOT = "vllm:request_time_per_output_token_seconds"


def _replica(pod: str, mean_gap_s: float) -> dict[str, Values]:
    """One that answers 60 requests per minute. Its bounds are written as vLLM's client writes them."""
    model = pod.rpartition("-")[0]
    return {
        target("inference-engines", pod, f', model="{model}"'): constant(1),
        **ttft({"1.0": 0.97, "2.5": 0.99, "5.0": 1, "+Inf": 1}, pod),
        **itl(mean_gap_s, {"0.05": 0.9, "0.075": 0.99, "0.1": 1, "+Inf": 1}, pod),
        **histogram(_TPOT, {"0.05": 0.4, "0.075": 0.9, "+Inf": 1}, 60, pod),
        engine("vllm:num_requests_running", pod=pod): constant(4),
        engine("vllm:num_requests_waiting", pod=pod): constant(1),
        engine("vllm:kv_cache_usage_perc", pod=pod): constant(0.6),
        engine("vllm:num_preemptions_total", pod=pod): grows(0),
        engine("vllm:admission_rejections_total", ', reason="max_num_queued_reqs"', pod): grows(0),
        engine("vllm:request_success_total", ', finished_reason="stop"', pod): grows(60),
    }


def _gpu(number: int, mhz: float, active: float) -> dict[str, Values]:
    return {
        gpu("DCGM_FI_DEV_SM_CLOCK", number): constant(mhz),
        gpu("DCGM_FI_PROF_GR_ENGINE_ACTIVE", number): constant(active),
    }


CANARY = "code--0a1b2c3d"

LARGER: Mapping[str, Values] = {
    **ttft({"1.0": 0.95, "2.5": 0.97, "5.0": 1, "+Inf": 1}, f"{CANARY}-a"),
    cluster("envoy_cluster_upstream_rq_xx", ', envoy_response_code_class="2"', CANARY): grows(60),
    **_replica("chat-b", 0.03),
    **_replica("code-a", 0.05),
    **_replica("code-b", 0.05),
    **deployment("code", available=2),
    **deployment("code-epp", available=2),
    'inference_pool_ready_pods{job="inference-pickers", model="code", name="code"}': constant(2),
    cluster("envoy_cluster_upstream_rq_xx", ', envoy_response_code_class="2"', "code"): grows(120),
    cluster("envoy_cluster_upstream_rq_pending_overflow", model="code"): grows(0),
    cluster("envoy_cluster_upstream_rq_active_overflow", model="code"): grows(0),
    f'kube_pod_container_status_restarts_total{{{OBJECT}, namespace="inference-models", pod="code-a", '
    'container="engine"}': constant(0),
    **weights_volume("code"),
    # Under full load a GPU keeps to its power limit; one without work keeps its highest clock, or its lowest.
    **{series: values for number in range(4) for series, values in _gpu(number, 1400, 0.95).items()},
    **{series: values for number in (4, 5, 6) for series, values in _gpu(number, 1980, 0).items()},
    **_gpu(7, 345, 0),
}
SLOW_REPLICA = ttft({"1.0": 0.1, "2.5": 0.2, "5.0": 0.5, "10.0": 1, "+Inf": 1}, "code-b")
"""Half of its first tokens come later than the target; the other replica keeps it."""
SLOW_GPU = _gpu(2, 700, 0.95)
