"""What sets the number of a model's replicas where the site gives a range: a ScaledObject, which KEDA reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.specs.model_server import FirstTokens, PeakSpec, ScalingPlan, ZeroPlan

# Failed answers in a row until the ScaledObject's status shows them; the number stays from the first one on.
_FAILURES = 3


@dataclass(frozen=True, kw_only=True)
class Scaler:
    """What scales the models of a site."""

    prometheus: str
    """Address of the Prometheus that measures their replicas."""
    ready: Sequence[pulumi.Resource]
    """It works once these are there."""


def scaled_object(
    name: str, namespace: str, labels: Mapping[str, str], plan: ScalingPlan, prometheus: str
) -> dict[str, Any]:
    """Between `least` and `most` replicas of the Deployment of this name, as many as requests and cache need.

    By what replicas hold, never by how busy their GPUs are: a GPU is as busy with one request as with a full batch.
    What is running counts with what waits, so that a replica goes only where the rest has room for its requests.
    Where Prometheus does not answer, or knows nothing of the model, the number stays: no answer is not "no load".
    Without replicas pickers alone know of the model: that none is ready, and which requests they refused for it.
    """
    of_model = f'{{job="inference-engines", model="{name}"}}'
    held = " + ".join(f"sum(vllm:num_requests_{state}{of_model})" for state in ("running", "waiting"))
    # Data-parallel ranks of a replica have a series each.
    caches = f"sum(avg by (pod) (vllm:kv_cache_usage_perc{of_model}))"
    zero, known = plan.zero, f" or {none_ready(name)}" if plan.zero else ""
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels),
            "annotations": {"pulumi.com/waitFor": "condition=Ready"},
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicaCount": plan.least,
            "maxReplicaCount": plan.most,
            **(_stops(zero) if zero else _stays(plan.least)),
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(plan)}},
            "triggers": [
                *([_measured("asked", prometheus, asked(name, zero), 1)] if zero else []),
                _measured("requests", prometheus, held + known, plan.requests),
                _measured("cache", prometheus, caches + known, plan.kv_share),
                *(
                    [_measured("first-token", prometheus, late_replicas(name, plan, plan.first_token) + known, 1)]
                    if plan.first_token
                    else []
                ),
                *(_peak(number, peak) for number, peak in enumerate(plan.peaks)),
            ],
        },
    }


def asked(name: str, zero: ZeroPlan) -> str:
    """1 where the model was asked within `seen_s`, answered or not; else 0, as long as all of its pickers are read.

    A request that overflows to another model is one for this: its own pickers do not see it.
    """
    counters = (
        *(f"inference_objective_request{kind}_total{_of_pickers(name)}" for kind in ("", "_error")),
        f'gatekeeper_overflow_requests_total{{job="gatekeeper", model="{name}"}}',
    )
    window = f"{zero.seen_s}s"
    grown = " or ".join(counting(counter, window) for counter in counters)
    read = f"min(up{_of_pickers(name)}) == 1"
    return f"clamp_max(count({grown}), 1) or 0 * ({read})"


def counting(counter: str, window: str) -> str:
    """Series of a counter that moved within `window`, or was not there before: its first request is no growth to
    Prometheus."""
    return f"changes({counter}[{window}]) > 0 or {counter} > 0 unless {counter} offset {window}"


def none_ready(name: str) -> str:
    """0 while a picker reports that the model has no ready replica; else nothing."""
    return f"0 * (max(inference_pool_ready_pods{_of_pickers(name)}) == 0)"


def _of_pickers(name: str) -> str:
    return f'{{job="inference-pickers", model="{name}"}}'


def _stays(least: int) -> dict[str, Any]:
    return {"fallback": {"failureThreshold": _FAILURES, "replicas": least, "behavior": "currentReplicasIfHigher"}}


def _stops(zero: ZeroPlan) -> dict[str, Any]:
    """KEDA itself takes the last replica and starts the first one; the autoscaler never does.

    Without a fallback, which counts as load: KEDA 2.21 would start the first replica for it (pkg/scaling/
    scale_handler.go, isActiveOrFallback). After failed queries it leaves what there is, none too
    (pkg/scaling/executor/scale_scaledobjects.go).
    """
    wait = {"cooldownPeriod": zero.cooldown_s, "initialCooldownPeriod": zero.cooldown_s}
    return {"pollingInterval": zero.noticed_s, **wait}


def late_replicas(name: str, plan: ScalingPlan, target: FirstTokens) -> str:
    """How many replicas are due by first tokens: none while they are in time, else some more than serve.

    Not by how late they are: a queue makes them later from one look to the next, while one more replica starts.
    Nothing where no replica is measured; a replica that has answered nothing has no histogram yet.
    """
    of_model = f'{{job="inference-engines", model="{name}"}}'
    histogram, window = "vllm:time_to_first_token_seconds", f"{of_model}[{plan.seen_s}s]"
    reached = f"histogram_quantile({target.share:g}, sum by (le) (rate({histogram}_bucket{window})))"
    enough = f"sum(increase({histogram}_count{window})) >= bool {target.fewest}"
    late = f"({reached} > bool {target.seconds:g}) * ({enough}) or vector(0)"
    return f"ceil({plan.late_step:g} * count(count by (pod) (vllm:num_requests_running{of_model}))) * ({late})"


def _measured(name: str, prometheus: str, query: str, threshold: float) -> dict[str, Any]:
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


def _peak(number: int, peak: PeakSpec) -> dict[str, Any]:
    """As many replicas at least between two times of the week."""
    return {
        "type": "cron",
        "name": f"peak-{number}",
        "metadata": {
            "timezone": peak.timezone,
            "start": peak.start,
            "end": peak.end,
            "desiredReplicas": f"{peak.least}",
        },
    }


def _behavior(plan: ScalingPlan) -> dict[str, Any]:
    one_by_one = {"type": "Pods", "value": 1, "periodSeconds": plan.step_s}
    return {
        "scaleUp": {"stabilizationWindowSeconds": plan.burst_s},
        "scaleDown": {"stabilizationWindowSeconds": plan.window_s, "policies": [one_by_one]},
    }
