"""Where each setting of a proof takes effect, or why it does not yet."""

from __future__ import annotations

from collections.abc import Mapping

_ARGUMENT = "argument of the engine"
_PICKER = "endpoint picker's configuration, plugin utilization-detector"

RENDERED_KNOBS: Mapping[str, str] = {
    "tensor_parallel_size": f"{_ARGUMENT}, --tensor-parallel-size; GPUs of its container",
    "pipeline_parallel_size": f"{_ARGUMENT}, --pipeline-parallel-size; GPUs of its container",
    "data_parallel_size": f"{_ARGUMENT}, --data-parallel-size; GPUs of its container",
    "enable_expert_parallel": f"{_ARGUMENT}, --enable-expert-parallel",
    "kv_cache_dtype": f"{_ARGUMENT}, --kv-cache-dtype",
    "max_model_len": f"{_ARGUMENT}, --max-model-len; endpoint picker's prefix index",
    "max_num_seqs": f"{_ARGUMENT}, --max-num-seqs",
    "max_num_batched_tokens": f"{_ARGUMENT}, --max-num-batched-tokens",
    "kv_blocks": "endpoint picker's prefix index; --kv-cache-size of the simulator",
    "max_num_queued_reqs": f"{_ARGUMENT}, --max-num-queued-reqs; --max-waiting-queue-length of the simulator",
    "picker_queue_threshold": f"{_PICKER}: queueDepthThreshold; half of it in its plugin shedding",
    "picker_kv_threshold": f"{_PICKER}: kvCacheUtilThreshold, and in its plugin shedding",
    "gateway_parallel_requests": "the model's BackendTrafficPolicy: circuitBreaker.maxParallelRequests and "
    "maxPendingRequests",
    "gateway_context_tokens": f"{_ARGUMENT}, --max-model-len: the gateway counts no tokens before the engine does",
    "gateway_body_kib": "the Gateway's BackendTrafficPolicy: requestBuffer.limit, the largest of all models, since a "
    "body is read before its model is known; gateway.max_body_mib says otherwise",
    "gateway_max_tokens": f"{_ARGUMENT}, --override-generation-config, of vLLM alone: the AI gateway changes no body "
    "on its way to an inference pool, and the simulator has no such limit",
    "start_budget_s": "variable VLLM_ENGINE_READY_TIMEOUT_S; progressDeadlineSeconds of the Deployment",
    "startup_probe_failures": "failureThreshold of the startup probe",
    "disruption_max_unavailable": "maxUnavailable of the replicas' PodDisruptionBudget",
}
"""Knob -> what of the platform's objects is made of it."""

_NO_AUTOSCALER = (
    "the pinned versions hold no autoscaler that reads a model's queue or cache (KEDA, or an adapter of custom metrics)"
)

SHOWN_KNOBS: Mapping[str, str] = {
    "max_num_queued_tokens": "vLLM counts a whole prompt, cached parts too, until its first token: one long prompt "
    "would make it refuse all other requests until then",
    "autoscale_min_replicas": _NO_AUTOSCALER,
    "autoscale_queue_tokens": _NO_AUTOSCALER,
    "autoscale_kv_share": _NO_AUTOSCALER,
    "autoscale_window_s": _NO_AUTOSCALER,
}
"""Knob -> why nothing is made of it."""


def effect(knob: str) -> str:
    """`yes: WHERE` or `no: WHY`, of a knob by name."""
    if knob in RENDERED_KNOBS:
        return f"yes: {RENDERED_KNOBS[knob]}"
    return f"no: {SHOWN_KNOBS[knob]}"
