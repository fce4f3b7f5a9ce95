"""What users of a model measure, in figures: times to the first token and between tokens, and what they consist of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial

from stacks.proof.demand import METRICS, PERCENTS, Metric
from stacks.proof.ends import Ends
from stacks.proof.figures import Figure, Span
from stacks.proof.serving import Steady

# A request that is long for any service: what it does to the others is a figure of its own.
HEAVY_PROMPT_TOKENS = 65_536
HEAVY_ANSWER_TOKENS = 4096

_SOURCES: dict[Metric, str] = {
    "ttft": "rest of a step, prompts ahead (Pollaczek and Khinchine, Erlang C), own steps",
    "itl": "decode step (gamma), and prompt tokens packed into it (Panjer)",
    "tpot": "decode steps of an answer, and prompts that come meanwhile (gamma)",
}
_PARTS = {
    "path": "estimated; gateway and picker",
    "overhead": "estimated; tokenising and scheduling",
    "front_end": "tokens of the prompt, and what is ahead in an API server (Pollaczek and Khinchine)",
    "queue": "rest of a step under way + prompts ahead + room among the running",
    "prefill": "roofline: what its own tokens add to steps",
    "decode": "decode steps that its tokens share, and other prompts in them",
    "saved": "the same prompts without a cache, less these; not in the sum",
}


def latencies(ends: Ends) -> dict[str, Figure]:
    """Mean and percentiles of each metric, the parts of the mean TTFT, and the effect of a heavy request.

    Of a load that is carried. Means and percentiles have their spans.
    """
    case = ends.case
    steady, figures = case.steady, {}
    generates = case.order.model.task == "generate"
    for metric in METRICS if generates else METRICS[:1]:
        source = _SOURCES[metric]
        for key, seconds in _times(metric).items():
            figures[key] = _ms(seconds(steady), source, ends.latency(seconds))
    parts = asdict(steady.ttft)
    for part, source in _PARTS.items():
        figures[f"ttft_{part}"] = _ms(parts[part], source)
    if generates:
        heavy = steady.heavy(HEAVY_PROMPT_TOKENS, HEAVY_ANSWER_TOKENS)
        figures["heavy_prompt"] = Figure(
            value=heavy.prompt,
            unit="tokens",
            source="65,536, and with 4,096 of an answer no more than the context",
            fidelity="published",
        )
        figures["heavy_itl_p99"] = _ms(heavy.gap_s, "decode step + the last full chunk of a heavy prompt")
        figures["heavy_lasts"] = Figure(
            value=heavy.lasts_s, unit="s", source="steps that a heavy prompt takes", fidelity="estimated"
        )
        figures["heavy_later"] = _ms(heavy.more_s, "decode step with one more request of that context, less without")
    return figures


def _times(metric: Metric) -> dict[str, Callable[[Steady], float]]:
    """The mean and the percentiles of a metric, by their names."""
    times: dict[str, Callable[[Steady], float]] = {f"{metric}_mean": lambda steady: steady.mean_s(metric)}
    for percent in PERCENTS:
        times[f"{metric}_p{percent}"] = partial(Steady.quantile_s, metric=metric, share=percent / 100)
    return times


def _ms(seconds: float, source: str, span: Span | None = None) -> Figure:
    return Figure(value=seconds * 1e3, unit="ms", source=source, fidelity="estimated", span=span)
