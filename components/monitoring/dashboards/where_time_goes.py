"""Where does the time go: gateway, picker, queue, prefill, decode; and what the cache saves."""

from __future__ import annotations

from components.monitoring import queries
from components.monitoring.dashboards.board import Board, Panel, PanelGroup, Query, Shape
from components.monitoring.dashboards.vocabulary import (
    COUNT,
    OF_MODEL,
    OF_PICKER,
    OF_TENANT,
    SECONDS,
    SHARE,
    WINDOW,
    lines,
    quantile_panel,
)

_PHASES = {
    "queued": "vllm:request_queue_time_seconds",
    "prefill": "vllm:request_prefill_time_seconds",
    "decode": "vllm:request_decode_time_seconds",
}

BOARD = Board(
    name="time",
    title="Inference: where does the time go?",
    question="The way of a request: gateway, picker, queue, prefill, decode. Prefill and decode are apart: more "
    "replicas or shorter prompts help the first, a smaller batch or a draft helps the second.",
    groups=(
        PanelGroup(
            title="In a model server",
            panels=(
                quantile_panel(
                    "How long does a request wait in the queue?",
                    queries.queue_s,
                    OF_MODEL,
                    "model",
                    good="Near 0 for 95 of 100 requests.",
                    do="The model has more requests than its replicas run at once.",
                    runbook="model-overloaded",
                    not_in_lab="the simulator counts this of requests that waited, and few do",
                ),
                quantile_panel(
                    "How long does prefill take?",
                    queries.prefill_s,
                    OF_MODEL,
                    "model",
                    good="The TTFT of `sitectl proof` without its queue.",
                    do="Prompts longer than declared, or fewer of their tokens in the cache: see below.",
                ),
                quantile_panel(
                    "How long does decode take?",
                    queries.decode_s,
                    OF_MODEL,
                    "model",
                    good="The tokens of an answer times the ITL of `sitectl proof`.",
                    do="Longer answers than declared, or slower steps: see the time between tokens.",
                ),
                Panel(
                    title="Requests in each phase, at once",
                    good="Most of them in decode.",
                    do="Queued ones: more replicas. Many in prefill: long prompts hold up the decode of all others.",
                    unit=COUNT,
                    queries=tuple(
                        Query(
                            expression=queries.rate(f"{histogram}_sum", OF_MODEL, by=("model",), window=WINDOW),
                            legend=f"{{{{model}}}} {phase}",
                        )
                        for phase, histogram in _PHASES.items()
                    ),
                    shape=Shape.STACKED,
                ),
                Panel(
                    title="Requests that run and that wait, by model",
                    good="None waits.",
                    do="Those that wait for minutes: the model is overloaded.",
                    unit=COUNT,
                    queries=(
                        Query(
                            expression=queries.total("vllm:num_requests_running", OF_MODEL, by=("model",)),
                            legend="{{model}} run",
                        ),
                        Query(
                            expression=queries.total("vllm:num_requests_waiting", OF_MODEL, by=("model",)),
                            legend="{{model}} wait",
                        ),
                    ),
                    runbook="model-overloaded",
                ),
                Panel(
                    title="Tokens of prompts and of answers: longer than declared? (P95)",
                    good="Below `prompt_tokens.p95` and `answer_tokens.p95` of the model's declared load.",
                    do="Enter what you see in the site's file, and prove it again.",
                    unit=COUNT,
                    queries=tuple(
                        Query(
                            expression=queries.quantile(0.95, histogram, OF_MODEL, by=("model",), window=WINDOW),
                            legend=f"{{{{model}}}} {sort}",
                        )
                        for sort, histogram in (
                            ("prompt", "vllm:request_prompt_tokens"),
                            ("answer", "vllm:request_generation_tokens"),
                        )
                    ),
                ),
            ),
        ),
        PanelGroup(
            title="Before and after it",
            panels=(
                Panel(
                    title="First token, at the gateway and at the engine (P95)",
                    good="Less than 20 ms apart.",
                    do="The difference is the gateway, the picker and the network between them.",
                    unit=SECONDS,
                    queries=(
                        Query(
                            expression=queries.tenant_ttft_s(0.95, OF_TENANT, by=(), window=WINDOW),
                            legend="at the gateway",
                        ),
                        Query(
                            expression=queries.ttft_s(0.95, OF_MODEL, by=(), window=WINDOW),
                            legend="at the engine",
                        ),
                    ),
                ),
                quantile_panel(
                    "How long does a picker take to choose a replica?",
                    queries.picking_s,
                    OF_PICKER,
                    "model",
                    good="Below 5 ms.",
                    do="More processor time for the pickers (`models.NAME.pool.cpu`); long prompts take more of it.",
                    runbook="picker-down",
                ),
                quantile_panel(
                    "How long does the gateway have a request?",
                    queries.gateway_s,
                    OF_TENANT,
                    "tenant",
                    good="As long as its answer is generated. The histogram ends at 82 s: longer ones count as 82 s.",
                    do="Compare with prefill and decode above.",
                ),
            ),
        ),
        PanelGroup(
            title="What the cache saves",
            panels=(
                Panel(
                    title="Share of prompt tokens that are found in the cache",
                    good="At least `prefix_hit` of the model's declared load.",
                    do="Lower: clients put what changes before what stays, or the cache is too small for them.",
                    unit=SHARE,
                    queries=lines(queries.cache_hit_share(OF_MODEL, window=WINDOW), "{{model}}"),
                ),
                Panel(
                    title="Share of each replica's cache in use",
                    good="Below 0.9.",
                    do="Full caches preempt requests, which run their prefill again: fewer at once, or more replicas.",
                    unit=SHARE,
                    queries=lines(
                        queries.highest("vllm:kv_cache_usage_perc", OF_MODEL, by=("model", "pod")), "{{pod}}"
                    ),
                    runbook="model-overloaded",
                ),
                Panel(
                    title="Requests that were preempted (per second)",
                    good="0.",
                    do="The cache was full: lower `max_num_seqs`, or add replicas.",
                    unit=COUNT,
                    queries=lines(queries.preemptions_per_s(OF_MODEL, window=WINDOW), "{{model}}"),
                    runbook="model-overloaded",
                    not_in_lab="the simulator preempts nothing",
                ),
            ),
        ),
    ),
)
