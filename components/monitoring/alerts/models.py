"""Alerts about models: their latency, speed, queues, caches and replicas."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from components.monitoring import group_queries, queries
from components.monitoring.alerts.alert import Alert
from components.monitoring.prometheus import INTERVAL_S
from components.specs.promises import SitePromise
from services.liveness.progress import HELD, MARKS

_FAILED_JOBS = f'{queries.IN_MODELS}, condition="true"'
# Those that a site may declare a target for.
PERCENTILES = (50, 95, 99)
# Above the declared load a model is slower by design, and the queue's alerts speak.
_LOAD_MARGIN = 1.1
# Share of requests that clients notice as refused; an estimate, ten times the budget of 99.9 %.
REFUSED_SHARE = 0.01
# vLLM preempts where its cache is full; an estimate: one request in twenty runs its prefill twice.
_PREEMPTED_SHARE = 0.05
# vLLM itself starts to preempt near 1; a long request needs the rest.
_CACHE_SHARE = 0.95
# A rollout or an image pull is shorter.
_LEAST_START_MINUTES = 15
# A replica that was restarted is well again, and someone is to look for the reason.
_STALL_LASTS_MINUTES = 15
# A node that joins, or a new commit, brings hundreds of GB.
_LEAST_FILL_MINUTES = 180


@dataclass(frozen=True, kw_only=True)
class SlowModelTimes:
    """Over how long the speed of a model is looked at. A test in the lab takes shorter ones."""

    window: str = "15m"
    minutes: int = 10


def slow_model(times: SlowModelTimes = SlowModelTimes()) -> Alert:
    """Decode is slower than the proof promised over its whole band, and the load is no reason for it."""
    load = queries.requests_per_s(window=times.window)
    return Alert(
        name="ModelSlowerThanPromised",
        severity="ticket",
        expression=(
            f"{queries.itl_mean_s(window=times.window)} > on (model) {queries.PROMISED_ITL} "
            f"unless on (model) {load} > {_LOAD_MARGIN:g} * {queries.DECLARED_REQUESTS}"
        ),
        minutes=times.minutes,
        summary="{{ $labels.model }} generates tokens more slowly than its proof promised",
        description="The mean time between two tokens is {{ $value | humanizeDuration }}, more than the slow end of "
        "the proof's band, and no more requests came than are declared. GPUs that are throttled, a neighbour, or "
        "longer prompts than declared.",
        runbook="slow-model",
    )


def latency() -> list[Alert]:
    """Against the targets that the site declares, and against its proof."""
    return [
        Alert(
            name="ModelLatencyAboveTarget",
            severity="page",
            expression=" or ".join(
                f'{queries.WITHIN_TARGET}{{percentile="{percentile}"}} < {percentile / 100:g}'
                for percentile in PERCENTILES
            ),
            minutes=5,
            summary="{{ $labels.model }} misses its target for {{ $labels.metric }} at p{{ $labels.percentile }}",
            # Within a bucket a percentile is a guess, and no one is woken for one.
            description="Of the values of 15 minutes {{ $value | humanizePercentage }} are at most "
            "{{ $labels.bound_s }} s, the engine's first bound that is not below the target in the model's `slo`.",
            runbook="slow-model",
        ),
        slow_model(),
    ]


def load() -> list[Alert]:
    """More requests than the replicas carry."""
    waiting = queries.total("vllm:num_requests_waiting", queries.ENGINES, by=("model",))
    replicas = f"count by (model) (vllm:num_requests_running{{{queries.ENGINES}}})"
    overflow = " + ".join(
        queries.rate_by_model(f"envoy_cluster_upstream_rq_{kind}_overflow", window="5m")
        for kind in ("pending", "active")
    )
    rejected = queries.rate("vllm:admission_rejections_total", queries.ENGINES, by=("model",), window="5m")
    preempted, cached = queries.preemptions_per_s(window="15m"), "vllm:kv_cache_usage_perc"
    return [
        Alert(
            name="ModelQueueGrows",
            severity="ticket",
            expression=f"{waiting} / {replicas} > on (model) {queries.QUEUE_LIMIT}",
            minutes=10,
            summary="Requests for {{ $labels.model }} wait in its replicas",
            description="{{ $value | humanize }} requests wait per replica, so many that pickers refuse tiers below "
            "0. The load is higher than declared, or replicas are missing.",
            runbook="model-overloaded",
        ),
        Alert(
            name="ModelRefusesRequests",
            severity="page",
            # A stream that the engine refuses is 200 with an error in it, which no count by status shows.
            expression=" or ".join(
                f"({refused_share(refused)} > {REFUSED_SHARE:g})" for refused in (overflow, rejected)
            ),
            minutes=5,
            summary="Requests for {{ $labels.model }} are refused",
            description="{{ $value | humanizePercentage }} of them: gateway or engine have as many as they can hold.",
            runbook="model-overloaded",
        ),
        Alert(
            name="ModelCacheFull",
            severity="ticket",
            expression=f"avg by (model) (avg_over_time({cached}{{{queries.ENGINES}}}[15m])) > {_CACHE_SHARE:g}",
            minutes=15,
            summary="The caches of {{ $labels.model }} are full",
            description="{{ $value | humanizePercentage }} of its replicas' cache is in use, over 15 minutes. The "
            "next requests wait for room or displace others.",
            runbook="model-overloaded",
        ),
        Alert(
            name="ModelPreemptsRequests",
            severity="ticket",
            expression=f"{preempted} / on (model) ({queries.requests_per_s(window='15m')} > 0) > {_PREEMPTED_SHARE:g}",
            minutes=10,
            summary="{{ $labels.model }} interrupts requests for want of cache",
            description="{{ $value | humanizePercentage }} as many preemptions as answers: these requests run their "
            "prefill again.",
            runbook="model-overloaded",
        ),
    ]


def refused_share(refused_per_s: str) -> str:
    """Of a model's requests, 0 to 1: also where all are refused, and where no replica is left to count answers."""
    answered_per_s = f"({queries.requests_per_s(window='5m')} or on (model) 0 * ({refused_per_s}))"
    return f"({refused_per_s}) / on (model) (({refused_per_s}) + on (model) {answered_per_s} > 0)"


def start_minutes(promise: SitePromise) -> int:
    """How long any replica of the site may take until it serves."""
    longest = max((model.start_budget_s for model in promise.models), default=0)
    return max(_LEAST_START_MINUTES, math.ceil(longest / 60))


def fill_minutes(promise: SitePromise) -> int:
    """How long any node of the site may lack weights before no slow link explains it."""
    longest = max((model.weights_budget_s for model in promise.models), default=0)
    return max(_LEAST_FILL_MINUTES, math.ceil(longest / 60))


def _stalled(promise: SitePromise) -> str:
    """Requests of each engine without a step for as long as its own probe allows, by the same marks."""
    windows = defaultdict[int, list[str]](list)
    for model in promise.models:
        # Two scrapes at least, or nothing could have moved.
        windows[max(model.stall_s, 2 * INTERVAL_S)].append(model.model)
    return " or ".join(
        _still(f'{queries.ENGINES}, model=~"{"|".join(models)}"', f"{seconds}s")
        for seconds, models in sorted(windows.items() if promise.models else {2 * INTERVAL_S: [".+"]}.items())
    )


def _still(where: str, window: str) -> str:
    by = "sum by (model, pod, engine)"
    moved = " or ".join(f"{by} (changes({mark}{{{where}}}[{window}])) > 0" for mark in MARKS)
    held = " or ".join(
        f"{by} (min_over_time({gauge}{{{where}}}[{window}]) and count_over_time({gauge}{{{where}}}[{window}]) > 1) > 0"
        for gauge in HELD
    )
    return f"(({held}) unless on (model, pod, engine) ({moved}))"


def replicas(promise: SitePromise) -> list[Alert]:
    """Replicas and pickers as Kubernetes and the pickers see them."""
    minutes = start_minutes(promise)
    available = queries.total("kube_deployment_status_replicas_available", queries.IN_MODELS, by=("deployment",))
    of_container = ("pod", "container")
    restarted = queries.growth(
        "kube_pod_container_status_restarts_total", queries.IN_MODELS, by=of_container, window="1h"
    )
    ready = f'label_replace({available}, "model", "$1", "deployment", "(.+)")'
    return [
        Alert(
            name="ModelHasNoReplica",
            severity="page",
            # One that was made or changed just now may still start.
            expression=group_queries.without_replica(promise.groups, minutes),
            minutes=2,
            summary="No pod of {{ $labels.deployment }} is available",
            description="Every request for this model fails, and its Deployment was not changed within the time of a "
            "start. A name with the ending `-epp` is the model's picker.",
            runbook="replica-not-ready",
        ),
        Alert(
            name="ReplicaMissing",
            severity="ticket",
            # No longer than the slowest model may take to start, or a rollout would be one.
            expression=f"{group_queries.missing_replicas(promise.groups)} > 0",
            minutes=minutes,
            summary="{{ $value }} pods of {{ $labels.deployment }} are missing",
            description="They are declared and not available, for longer than a start may take: no room, no volume, "
            "or a program that ends.",
            runbook="replica-not-ready",
        ),
        Alert(
            name="ReplicaRestarts",
            severity="ticket",
            expression=f"{restarted} > 2",
            minutes=0,
            summary="{{ $labels.pod }} restarts again and again",
            description="Its container {{ $labels.container }} restarted {{ $value | humanize }} times in an hour.",
            runbook="replica-not-ready",
        ),
        Alert(
            name="ReplicaStalled",
            severity="ticket",
            expression=_stalled(promise),
            minutes=0,
            lasts_minutes=_STALL_LASTS_MINUTES,
            summary="{{ $labels.pod }} held requests without a step of its engine",
            description="{{ $value | humanize }} requests, for longer than its slowest step may take. Its liveness "
            "probe restarts it; if this alert stays, it does not.",
            runbook="replica-stalled",
        ),
        Alert(
            name="PickerSeesTooFewReplicas",
            severity="ticket",
            expression=(
                f"{queries.lowest('inference_pool_ready_pods', queries.PICKERS, by=('model',))} < on (model) "
                f"sum by (model) ({ready})"
            ),
            minutes=10,
            summary="A picker of {{ $labels.model }} does not see all ready replicas",
            description="It chooses among {{ $value }}, and Kubernetes has more available: the others get no request.",
            runbook="picker-down",
        ),
        Alert(
            name="WeightsJobFailed",
            severity="ticket",
            expression=f"{queries.total('kube_job_failed', _FAILED_JOBS, by=('job_name',))} > 0",
            minutes=0,
            summary="The weights Job {{ $labels.job_name }} failed",
            description="The model's next replicas wait for files that are not there.",
            runbook="weights-not-there",
        ),
        Alert(
            name="WeightsNotOnNode",
            severity="ticket",
            expression=f"{queries.unfilled_nodes()} > 0",
            minutes=fill_minutes(promise),
            summary="Nodes lack the weights of {{ $labels.daemonset }}",
            description="{{ $value }} nodes are not filled. Replicas that start there wait.",
            runbook="weights-not-there",
        ),
    ]
