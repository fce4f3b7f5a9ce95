"""PromQL of what tenants use of the GPUs: pure functions that return one expression each, as in `queries`.

A tenant's share is that of a model's tokens, prompts and answers alike. Its cost is that share of the model's GPUs for
the part of the time in which the model has requests; the rest is of no tenant. `models` and `tenants` are regular
expressions of the names that count.
"""

from __future__ import annotations

from components.monitoring import queries

PROVEN_TOKENS = "model:tokens_per_second:proven"
"""Tokens of prompts and answers that all replicas of a revision are proven to carry within their targets, of the load
that the site declares for it. Label: model."""

_TOKENS = "gen_ai_client_token_usage_sum"
# Not `cached_input`: the gateway counts these tokens as `input` too.
_ALL = 'gen_ai_token_type=~"input|output"'
# The model's own name: the gateway replaces aliases before it counts.
_MODEL = "gen_ai_request_model"


def cached_share(tenants: str, *, window: str) -> str:
    """Share of the tokens of each tenant's prompts that engines had in their cache, 0 to 1."""
    cached, every = (
        queries.rate(_TOKENS, f'{_of_tenants(tenants)}, gen_ai_token_type="{sort}"', by=("tenant",), window=window)
        for sort in ("cached_input", "input")
    )
    return queries.share_of(cached, every)


def token_share(models: str, tenants: str, *, window: str) -> str:
    """Each tenant's share of a model's tokens, of which all tenants together have 1, by tenant and model."""
    part = _tokens_per_s(models, tenants, by=("tenant", "model"), window=window)
    return f"{part} / on (model) group_left () ({_tokens_per_s(models, by=('model',), window=window)} > 0)"


def busy_share(where: str = queries.ENGINES, *, window: str) -> str:
    """Share of time in which a model has a request, 0 to 1."""
    running = queries.total("vllm:num_requests_running", where, by=("model",))
    return f"avg_over_time(({running} > bool 0)[{window}:1m])"


def idle_share(where: str = queries.ENGINES, *, window: str) -> str:
    """Share of time in which a model has no request, 0 to 1."""
    return f"1 - {busy_share(where, window=window)}"


def proven_idle_share(where: str = queries.ENGINES, *, by: str, window: str) -> str:
    """Share of the tokens that a model is proven to carry and was not asked for, 0 to 1. by: a matcher of models."""
    asked = " + ".join(
        tokens(where, window=window) for tokens in (queries.prompt_tokens_per_s, queries.answer_tokens_per_s)
    )
    return f"clamp_min(1 - ({asked}) / {PROVEN_TOKENS}{{{by}}}, 0)"


def proven_million(price: str, by: str) -> str:
    """Cost of a million tokens while a model's GPUs have all that they are proven to carry."""
    return f"{price} * {queries.DECLARED_GPUS}{{{by}}} / 3600 / {PROVEN_TOKENS}{{{by}}} * 1e6"


def tenant_gpus(models: str, tenants: str, *, window: str) -> str:
    """GPUs that each tenant takes on average."""
    share = token_share(models, tenants, window=window)
    return f"sum by (tenant) ({share} * on (model) group_left () ({_busy_gpus(models, window)}))"


def unused_gpus(models: str, *, window: str) -> str:
    """GPUs of models that no tenant takes: with those of all tenants, they are all that the models have."""
    counted = f"{_tokens_per_s(models, by=('model',), window=window)} > 0"
    return f"sum({_gpus(models, window)}) - (sum({_busy_gpus(models, window)} and on (model) {counted}) or vector(0))"


def _tokens_per_s(models: str, tenants: str | None = None, *, by: tuple[str, ...], window: str) -> str:
    """Tokens of prompts and answers per second, with the label `model`; of all tenants where none is given."""
    rates = f'rate({_TOKENS}{{{_of_tenants(tenants)}, {_MODEL}=~"{models}", {_ALL}}}[{window}])'
    return f'sum by ({", ".join(by)}) (label_replace({rates}, "model", "$1", "{_MODEL}", "(.+)"))'


def _of_tenants(tenants: str | None) -> str:
    return queries.REQUESTS if tenants is None else f'{queries.REQUESTS}, tenant=~"{tenants}"'


def _gpus(models: str, window: str) -> str:
    return f"avg_over_time({queries.gpus_by_model(_named(models))}[{window}])"


def _busy_gpus(models: str, window: str) -> str:
    return f"{_gpus(models, window)} * on (model) {busy_share(f'{queries.ENGINES}, {_named(models)}', window=window)}"


def _named(models: str) -> str:
    return f'model=~"{models}"'
