"""What tokens cost, from the bill of the GPUs and what each kind of token takes of their time."""

from __future__ import annotations

from dataclasses import dataclass

from stacks.facts.hardware import Gpu
from stacks.proof.case import Case
from stacks.proof.demand import Prices

_MILLION = 1e6
_HOUR_S = 3600
# Hours of a year by twelve.
HOURS_A_MONTH = 730


@dataclass(frozen=True, kw_only=True)
class Work:
    """Seconds of one scheduler that a token takes."""

    fresh_s: float
    """A prompt token that is computed."""
    cached_s: float
    """A prompt token that is found in the cache: what attending to it costs the fresh ones."""
    answer_s: float
    """A token of an answer: its share of a decode step."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """In the site's currency, a million tokens."""

    hour: float
    """Bill of an hour, all GPUs of the model, idle or not."""
    fresh: float
    cached: float
    answer: float
    blended: float
    """A million tokens of any kind, as the load mixes them."""
    output_only: float
    """A million answer tokens if they alone were sold: bill / (tokens per second x 3600)."""


def gpu_hourly(gpu: Gpu, prices: Prices) -> float:
    """Bill of one GPU for an hour: its price, and its share of the node's power at full load.

    Of a slice: that of an equal part of its GPU.
    """
    return prices.gpu_hour * gpu.share + gpu.billed_power_w / 1000 * prices.power_kwh


def hourly(case: Case, prices: Prices) -> float:
    """Bill of an hour: all GPUs of the model."""
    return case.gpus * gpu_hourly(case.order.hardware, prices)


def monthly(gpus: float, hour: float) -> float:
    """Bill of a month for so many GPUs, each at `hour` an hour, power included."""
    return gpus * hour * HOURS_A_MONTH


def work(case: Case) -> Work:
    """What each kind of token takes of a scheduler, at the declared load."""
    steady = case.steady
    load = steady.load
    fresh = load.prompt_tokens.mean * (1 - load.prefix_hit)
    cached = load.prompt_tokens.mean * load.prefix_hit
    attention = 0.0
    if cached and fresh:
        near = case.roofline.step_s(prefill=fresh, reach=fresh / 2)
        far = case.roofline.step_s(prefill=fresh, reach=fresh / 2 + cached)
        attention = max(0.0, far - near)
    running = max(1.0, steady.running)
    generates = case.order.model.task == "generate"
    return Work(
        fresh_s=max(0.0, steady.prompt_token_s - (attention / fresh if fresh else 0.0)),
        cached_s=attention / cached if cached else 0.0,
        answer_s=steady.decode_s(steady.running) / running / case.order.tokens_per_step if generates else 0.0,
    )


def costs(case: Case, prices: Prices) -> Costs:
    """Prices a million tokens that together pay the bill of the declared load, its idle time included."""
    load = case.steady.load
    rate = load.requests_per_s
    fresh = rate * load.prompt_tokens.mean * (1 - load.prefix_hit)
    cached = rate * load.prompt_tokens.mean * load.prefix_hit
    answers = rate * load.answer_tokens.mean if case.order.model.task == "generate" else 0.0
    per_token = work(case)
    busy = fresh * per_token.fresh_s + cached * per_token.cached_s + answers * per_token.answer_s
    bill_s = hourly(case, prices) / _HOUR_S
    price = bill_s / busy * _MILLION
    return Costs(
        hour=hourly(case, prices),
        fresh=per_token.fresh_s * price,
        cached=per_token.cached_s * price,
        answer=per_token.answer_s * price,
        blended=bill_s / (fresh + cached + answers) * _MILLION,
        output_only=bill_s / answers * _MILLION if answers else 0.0,
    )
