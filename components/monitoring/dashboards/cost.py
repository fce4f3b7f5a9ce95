"""What does it cost: tokens, GPUs, and GPUs without work."""

from __future__ import annotations

from components.monitoring import cost_queries, queries
from components.monitoring.dashboards.board import Board, Panel, PanelGroup, Query, Shape
from components.monitoring.dashboards.vocabulary import (
    COUNT,
    MODEL,
    MODELS,
    MONEY,
    MONEY_PER_HOUR,
    OF_MODEL,
    OF_TENANT,
    PRICE,
    SHARE,
    SHOWN,
    TENANTS,
    TOKENS_PER_S,
    WINDOW,
    lines,
)

_OUTPUT = queries.answer_tokens_per_s(OF_MODEL, window=WINDOW)
_INPUT = queries.prompt_tokens_per_s(OF_MODEL, window=WINDOW)
_GPUS = queries.gpus_by_model(MODEL)

BOARD = Board(
    name="cost",
    title="Inference: what does it cost?",
    question="Tokens per second and per GPU, the cost of a million tokens, what each tenant takes of it, and how much "
    "of what is paid for has no work. Enter the price of a GPU hour above; with 1 the costs are in GPU hours.",
    has_price=True,
    groups=(
        PanelGroup(
            title="How many tokens?",
            panels=(
                Panel(
                    title="Tokens of answers per second, by model",
                    good="As many as the declared load asks for.",
                    do="Compare with `sitectl proof`, line capacity.",
                    unit=TOKENS_PER_S,
                    queries=lines(_OUTPUT, "{{model}}"),
                    shape=Shape.STACKED,
                ),
                Panel(
                    title="Tokens of prompts per second, by model",
                    good="As many as the declared load asks for; cached ones count too.",
                    do="Many more than declared: enter the load in the site's file, and prove it again.",
                    unit=TOKENS_PER_S,
                    queries=lines(_INPUT, "{{model}}"),
                    shape=Shape.STACKED,
                ),
                Panel(
                    title="Tokens per second, by tenant and sort",
                    good="Each tenant as agreed with it.",
                    do="One that takes far more than others: talk to it, or give it a tier of lower priority.",
                    unit=TOKENS_PER_S,
                    queries=lines(
                        queries.rate(
                            "gen_ai_client_token_usage_sum",
                            f'{OF_TENANT}, gen_ai_token_type=~"input|output"',
                            by=("tenant", "gen_ai_token_type"),
                            window=WINDOW,
                        ),
                        "{{tenant}} {{gen_ai_token_type}}",
                    ),
                    shape=Shape.STACKED,
                ),
            ),
        ),
        PanelGroup(
            title="What does a token cost?",
            panels=(
                Panel(
                    title="Tokens of answers per second and GPU, by model",
                    good="Near what `sitectl proof` states for the load that there is.",
                    do="Little load: fewer replicas. Much load and few tokens: see where the time goes.",
                    unit=TOKENS_PER_S,
                    queries=lines(f"{_OUTPUT} / {_GPUS}", "{{model}}"),
                ),
                Panel(
                    title="Cost of a million tokens of answers, by model",
                    good="Near the price of answers in `sitectl proof`.",
                    do="It is the price of all GPUs of a model over its tokens, so it grows when there is no load.",
                    unit=MONEY,
                    queries=lines(f"{PRICE} * {_GPUS} / 3600 / {_OUTPUT} * 1e6", "{{model}}"),
                ),
                Panel(
                    title="Cost of a million tokens, prompts included, by model",
                    good="Near its dashed line: the cost at the largest load that the model is proven to carry.",
                    do="Above for long: the load does not fill the GPUs; fewer replicas carry it.",
                    unit=MONEY,
                    queries=(
                        *lines(f"{PRICE} * {_GPUS} / 3600 / ({_OUTPUT} + {_INPUT}) * 1e6", "{{model}}"),
                        Query(
                            expression=cost_queries.proven_million(PRICE, MODEL),
                            legend="{{model}} proven",
                            is_target=True,
                        ),
                    ),
                ),
            ),
        ),
        PanelGroup(
            title="Who uses it?",
            panels=(
                Panel(
                    title="Share of each model's tokens, by tenant",
                    good="Each tenant as agreed with it.",
                    do="One that takes far more than others: talk to it, or give it a tier of lower priority.",
                    unit=SHARE,
                    queries=lines(cost_queries.token_share(MODELS, TENANTS, window=SHOWN), "{{model}} {{tenant}}"),
                ),
                Panel(
                    title="Cost of GPUs per hour, by tenant",
                    good="The line `no tenant` is low: models have requests most of the time.",
                    do="The line `no tenant` is high: fewer replicas carry the load. A tenant pays for a model's GPUs "
                    "while the model has requests, by its share of the tokens in the time shown.",
                    unit=MONEY_PER_HOUR,
                    queries=(
                        Query(
                            expression=f"{PRICE} * {cost_queries.tenant_gpus(MODELS, TENANTS, window=SHOWN)}",
                            legend="{{tenant}}",
                        ),
                        Query(
                            expression=f"{PRICE} * ({cost_queries.unused_gpus(MODELS, window=SHOWN)})",
                            legend="no tenant",
                        ),
                    ),
                    shape=Shape.STACKED,
                ),
                Panel(
                    title="Share of prompt tokens that were cached, by tenant",
                    good="High for chats and agents, whose prompts begin with what was asked before.",
                    do="Such tokens cost next to nothing, but count in full in the shares: consider that before you "
                    "charge a tenant that has many.",
                    unit=SHARE,
                    queries=lines(cost_queries.cached_share(TENANTS, window=WINDOW), "{{tenant}}"),
                ),
            ),
        ),
        PanelGroup(
            title="What has no work?",
            panels=(
                Panel(
                    title="Share of GPUs that no pod has",
                    good="What the site keeps free for a lost node, and no more; whole GPUs alone are counted.",
                    do="Add a replica where requests wait, or order fewer machines.",
                    unit=SHARE,
                    queries=lines(queries.free_gpu_share(), "free"),
                ),
                Panel(
                    title="Share of time in which a model has no request",
                    good="Low in the busiest hour.",
                    do="High there too: fewer replicas carry the load; `sitectl proof` has how many.",
                    unit=SHARE,
                    queries=lines(cost_queries.idle_share(OF_MODEL, window=SHOWN), "{{model}}"),
                ),
                Panel(
                    title="Share of the proven tokens that a model was not asked for",
                    good="As low as the targets of latency and the reserve for a lost node allow.",
                    do="High in the busiest hour too: fewer replicas carry the load. Bills have it, where the site "
                    "bills idle GPUs.",
                    unit=SHARE,
                    queries=lines(cost_queries.proven_idle_share(OF_MODEL, by=MODEL, window=WINDOW), "{{model}}"),
                    not_in_lab="no model of the lab's site has a load, so none has a largest one",
                ),
                Panel(
                    title="GPUs by model",
                    good="As the site declares.",
                    do="Fewer: a replica is not there, see its page.",
                    unit=COUNT,
                    queries=(Query(expression=_GPUS, legend="{{model}}"),),
                    shape=Shape.STACKED,
                    runbook="replica-not-ready",
                ),
            ),
        ),
    ),
)
