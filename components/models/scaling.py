"""What sets the number of a model's replicas where the site gives a range: a ScaledObject, which KEDA reads."""

from __future__ import annotations

from typing import Any

from components.specs.autoscaling import ScalingPlan

# Of one failed answer after the other, until KEDA says so in the ScaledObject's status; the number stays from the first.
_FAILURES = 3
# A burst that is over when the next one is measured needs no replica: one takes minutes to start.
_BURST_S = 30
# Kubernetes' most (pkg/apis/autoscaling/validation).
_LONGEST_WINDOW_S = 3600
# Streams of one replica end before the next one goes, unless they are long.
_STEP_S = 60


def scaled_object(name: str, namespace: str, labels: dict[str, str], plan: ScalingPlan) -> dict[str, Any]:
    """Between `least` and `most` replicas of the Deployment of this name, as many as requests and cache need.

    By what replicas hold, never by how busy their GPUs are: a GPU is as busy with one request as with a full batch.
    What is running counts with what waits, so that a replica goes only where the rest has room for its requests.
    Where Prometheus does not answer, or knows nothing of the model, the number stays: no answer is not "no load".
    """
    of_model = f'{{job="inference-engines", model="{name}"}}'
    held = " + ".join(f"sum(vllm:num_requests_{state}{of_model})" for state in ("running", "waiting"))
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels,
            "annotations": {"pulumi.com/waitFor": "condition=Ready"},
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicaCount": plan.least,
            "maxReplicaCount": plan.most,
            "fallback": {
                "failureThreshold": _FAILURES,
                "replicas": plan.least,
                "behavior": "currentReplicasIfHigher",
            },
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(plan.window_s)}},
            "triggers": [
                _trigger("requests", plan.prometheus, held, plan.requests),
                _trigger("cache", plan.prometheus, f"sum(vllm:kv_cache_usage_perc{of_model})", plan.kv_share),
            ],
        },
    }


def _trigger(name: str, prometheus: str, query: str, threshold: float) -> dict[str, Any]:
    """The query's answer over the threshold is how many replicas are wanted. Values are text, by KEDA's schema."""
    return {
        "type": "prometheus",
        "name": name,
        "metadata": {
            "serverAddress": prometheus,
            "query": query,
            "threshold": f"{threshold:g}",
            "ignoreNullValues": "false",
        },
    }


def _behavior(window_s: int) -> dict[str, Any]:
    window = min(window_s, _LONGEST_WINDOW_S)
    one_by_one = {"type": "Pods", "value": 1, "periodSeconds": _STEP_S}
    return {
        "scaleUp": {"stabilizationWindowSeconds": _BURST_S},
        "scaleDown": {"stabilizationWindowSeconds": window, "policies": [one_by_one]},
    }
