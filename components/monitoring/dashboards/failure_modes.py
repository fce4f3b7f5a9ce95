"""The failure modes of a platform for inference (rows 001.26 to 001.32): a group of panels each."""

from __future__ import annotations

from components.monitoring import queries, revisions
from components.monitoring.dashboards import where_time_goes
from components.monitoring.dashboards.board import Panel, PanelGroup, Query, Shape
from components.monitoring.dashboards.vocabulary import (
    COUNT,
    MODEL,
    OF_MODEL,
    OF_PICKER,
    REQUESTS_PER_S,
    SECONDS,
    SHARE,
    WINDOW,
    lines,
)

_, _, _CACHE = where_time_goes.BOARD.groups
_PHASES = ("queue", "prefill", "decode")
_GATEKEEPERS = f'job="gatekeeper", {MODEL}'
_BY_REVISION = queries.rate("gatekeeper_canary_requests_total", _GATEKEEPERS, by=("model", "revision"), window=WINDOW)
_NO_OVERFLOW = "no model of its site overflows to another one"
_NO_CANARY = "no model of its site has a canary"
# Neither pickers, nor what brings and removes weights.
_SERVERS = f'{queries.IN_MODELS}, pod!~".+-(epp|weights|prune)-.+"'
# A pod that waits for a node has no condition yet.
_NOT_READY = " or ".join(
    queries.total(metric, f"{_SERVERS}, {which}", by=("pod",))
    for metric, which in (("kube_pod_status_ready", 'condition!="true"'), ("kube_pod_status_phase", 'phase="Pending"'))
)


def _middle_and_slowest(histogram: str) -> tuple[Query, ...]:
    return tuple(
        Query(
            expression=queries.quantile(share, histogram, OF_MODEL, by=("model",), window=WINDOW),
            legend=f"{{{{model}}}} P{share * 100:g}",
        )
        for share in (0.5, 0.99)
    )


GROUPS = (
    PanelGroup(
        title="Failure mode 1: head of line blocking",
        mode="001.26",
        runbook="slow-model",
        panels=(
            Panel(
                title="First token: the middle request, and the slowest of 100",
                good="Both rise and fall together.",
                do="P99 alone rises: short requests wait behind long ones. Bound answers and contexts "
                "(`overrides.gateway_max_tokens`, `overrides.max_model_len`), or give long ones a model of their own.",
                unit=SECONDS,
                queries=_middle_and_slowest("vllm:time_to_first_token_seconds"),
            ),
            Panel(
                title="The longest prompts, and the longest answers that are asked for (P99)",
                good="As `prompt_tokens` and `answer_tokens` of the model's declared load.",
                do="Longer: who sends them is in the request log; enter what you see in the site's file.",
                unit=COUNT,
                queries=tuple(
                    Query(
                        expression=queries.quantile(0.99, histogram, OF_MODEL, by=("model",), window=WINDOW),
                        legend=f"{{{{model}}}} {sort}",
                    )
                    for sort, histogram in (
                        ("prompt", "vllm:request_prompt_tokens"),
                        ("answer, at most", "vllm:request_params_max_tokens"),
                    )
                ),
            ),
        ),
    ),
    PanelGroup(
        title="Failure mode 2: the cache overflows in a spike",
        mode="001.27",
        runbook="model-overloaded",
        panels=_CACHE.panels[1:],
    ),
    PanelGroup(
        title="Failure mode 3: prefill starves decode, or the reverse",
        mode="001.28",
        runbook="slow-model",
        panels=(
            Panel(
                title="Between two tokens: the middle gap, and the longest of 100",
                good="P99 below the time of one full step, which `sitectl proof` has.",
                do="P99 alone rises: chunks of long prompts hold up decode. Lower `overrides.max_num_batched_tokens`.",
                unit=SECONDS,
                queries=_middle_and_slowest("vllm:inter_token_latency_seconds"),
            ),
            Panel(
                title="Requests in queue, prefill and decode, at once",
                good="Most of them in decode.",
                do="Many in prefill: prompts are long, or not cached. Many in the queue beside few in prefill: decode "
                "holds all places, so add replicas.",
                unit=COUNT,
                queries=tuple(
                    Query(
                        expression=queries.rate(
                            f"vllm:request_{phase}_time_seconds_sum", OF_MODEL, by=("model",), window=WINDOW
                        ),
                        legend=f"{{{{model}}}} {phase}",
                    )
                    for phase in _PHASES
                ),
                shape=Shape.STACKED,
            ),
            Panel(
                title="Tokens of a step (P50, P99)",
                good="P50 near the requests that decode; P99 at most `max_num_batched_tokens`.",
                do="P50 at the bound: each step has a chunk of a prompt in it, and decode runs at its pace.",
                unit=COUNT,
                queries=_middle_and_slowest("vllm:iteration_tokens_total"),
                not_in_lab="the simulator has no steps",
            ),
        ),
    ),
    PanelGroup(
        title="Failure mode 4: the queue runs away",
        mode="001.29",
        runbook="model-overloaded",
        panels=(
            Panel(
                title="Requests that wait per replica, by model",
                good="Below its dashed line, from which on pickers refuse tiers below 0.",
                do="Above it for minutes: the load is higher than declared, or replicas are missing.",
                unit=COUNT,
                queries=(
                    Query(
                        expression=f"{queries.total('vllm:num_requests_waiting', OF_MODEL, by=('model',))} "
                        f"/ count by (model) (vllm:num_requests_waiting{{{OF_MODEL}}})",
                        legend="{{model}}",
                    ),
                    Query(expression=f"{queries.QUEUE_LIMIT}{{{MODEL}}}", legend="{{model}} limit", is_target=True),
                ),
            ),
            Panel(
                title="Requests that are refused (per second), by who refuses",
                good="0.",
                do="The picker refuses tiers below 0, as intended. The gateway: the model is full. The engine: more "
                "Envoy pods than one pass on too much; some of its refusals are HTTP 200.",
                unit=REQUESTS_PER_S,
                queries=(
                    *(
                        Query(
                            expression=queries.or_zero(
                                queries.rate_by_model(f"envoy_cluster_upstream_rq_{kind}_overflow", window=WINDOW),
                                queries.PROXIES,
                            ),
                            legend=f"gateway {{{{model}}}} ({kind})",
                        )
                        for kind in ("pending", "active")
                    ),
                    Query(
                        expression=queries.or_zero(
                            queries.rate(
                                "inference_objective_request_error_total",
                                f'{OF_PICKER}, error_code="ResourceExhausted"',
                                by=("model",),
                                window=WINDOW,
                            ),
                            queries.PICKERS,
                        ),
                        legend="picker {{model}}",
                    ),
                    Query(
                        expression=queries.or_zero(
                            queries.rate("vllm:admission_rejections_total", OF_MODEL, by=("model",), window=WINDOW),
                            queries.ENGINES,
                        ),
                        legend="engine {{model}}",
                    ),
                ),
            ),
        ),
    ),
    PanelGroup(
        title="Failure mode 5: cold start",
        mode="001.30",
        runbook="replica-not-ready",
        panels=(
            Panel(
                title="Model servers that are not ready, by Pod",
                good="0, except while a replica starts, which takes as long as `sitectl proof` states.",
                do="Waiting for a node, for weights, or loading: its Pod's events name which.",
                unit=COUNT,
                queries=lines(_NOT_READY, "{{pod}}"),
            ),
            Panel(
                title="Share of prompt tokens that a replica finds in its cache",
                good="Alike for all replicas of a model.",
                do="One is lower: it has just started. It gets better with each conversation that it keeps.",
                unit=SHARE,
                queries=lines(queries.cache_hit_share(OF_MODEL, by=("model", "pod"), window=WINDOW), "{{pod}}"),
            ),
        ),
    ),
    PanelGroup(
        title="Failure mode 6: thrash between tiers of models",
        mode="001.31",
        runbook="model-overloaded",
        panels=(
            Panel(
                title="Share of a model's sessions that another model answers",
                good="0, or a spike's share that goes down again within minutes.",
                do="It stays, or goes up and down: the model has too few replicas for its load. Add some.",
                unit=SHARE,
                queries=lines(queries.highest("gatekeeper_overflow_share", _GATEKEEPERS, by=("model",)), "{{model}}"),
                not_in_lab=_NO_OVERFLOW,
            ),
            Panel(
                title="Requests that go on to another model (per second)",
                good="Below what the preview states that the other one has beside its own load.",
                do="At or above it: the other model fills up too. Take `tenants.<name>.overflow` from the busiest.",
                unit=REQUESTS_PER_S,
                queries=lines(
                    queries.rate("gatekeeper_overflow_requests_total", _GATEKEEPERS, by=("model", "to"), window=WINDOW),
                    "{{model}} to {{to}}",
                ),
                not_in_lab=_NO_OVERFLOW,
            ),
        ),
    ),
    PanelGroup(
        title="Failure mode 7: version drift within a session",
        mode="001.32",
        runbook="canary-worse",
        panels=(
            Panel(
                title="Share of a model's requests that each of its two revisions answers",
                good="The canary's near `canary.percent`; sessions stay on their revision, so busy ones move it.",
                do="Far from it for an hour: a pinned tenant or one session sends most requests.",
                unit=SHARE,
                queries=lines(
                    f"{_BY_REVISION} / on (model) group_left () sum by (model) ({_BY_REVISION})", "{{revision}}"
                ),
                not_in_lab=_NO_CANARY,
            ),
            Panel(
                title="First token at P95, each canary as a multiple of the stable revision",
                good="Above 1 in its first minutes, whose cache is empty; then near 1.",
                do=f"Above {revisions.SLOWER:g} for an hour: take the canary back (`sitectl canary` compares both).",
                unit=COUNT,
                queries=lines(
                    revisions.beside_stable(
                        queries.ttft_s(0.95, revisions.CANARIES, window=WINDOW),
                        queries.ttft_s(0.95, window=WINDOW),
                        "/",
                    ),
                    "{{model}} {{revision}}",
                ),
                not_in_lab=_NO_CANARY,
            ),
        ),
    ),
)
