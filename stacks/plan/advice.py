"""The kinds of GPU that a model could run on, each proven with the same load and targets, the cheapest first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from stacks.facts.hardware import GPUS, GpuSlice
from stacks.proof import several_nodes
from stacks.proof.demand import Prices
from stacks.proof.ends import Verdict
from stacks.proof.figures import shown
from stacks.proof.order import Order
from stacks.proof.proof import Proof, prove
from stacks.proof.split_verdict import SplitVerdict, compare


@dataclass(frozen=True)
class PublicPrice:
    """What a public API asks for a million tokens, in the site's currency."""

    fresh: float
    """Of a prompt; cached ones are counted like it."""
    answer: float


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One kind of GPU."""

    gpu: str
    owned: bool
    """Whether the site has it."""
    proof: Proof

    @property
    def verdict(self) -> Verdict:
        """Whether the model fits, carries the load and keeps its targets on this kind."""
        return self.proof.verdict

    @property
    def works(self) -> bool:
        """Whether a site would not be refused for it."""
        return self.verdict != "fails"

    @property
    def size(self) -> str:
        """`8 x h200-sxm`."""
        return f"{self.proof.case.gpus} x {self.gpu}"

    @property
    def hour(self) -> float | None:
        """What all its GPUs cost per hour; None without a price."""
        cost = self.proof.cost
        return cost["hour"].value if self.works and cost else None

    @property
    def million(self) -> float | None:
        """What a million tokens cost, prompt and answer alike and idle time included; None without a price."""
        cost = self.proof.cost
        return cost["break_even"].value if self.works and "break_even" in cost else None

    @property
    def why_not(self) -> str:
        """The first reason why the model does not hold there over its whole band, and what several nodes would do.

        Empty where it does.
        """
        if not self.proof.ends.doubts:
            return ""
        return "; ".join(filter(None, [self.proof.ends.doubts[0].text, several_nodes.words(self.proof)]))


def advise(order: Order, offers: Mapping[str, Prices | None]) -> list[Advice]:
    """One for each kind of GPU in `offers`, with what an hour of one costs there (None: not known).

    What works comes first, of that what holds by the computed figures, then the lower cost per hour, then the fewer
    GPUs, of which a slice is its part. `order` names the kind that the site has; its layout and replicas are left to
    the proof. Raises KeyError for a kind that the hardware table does not have.
    """
    advices = [
        Advice(
            gpu=gpu,
            owned=gpu == order.gpu,
            proof=prove(replace(order.on(gpu), prices=offers[gpu])),
        )
        for gpu in sorted(offers)
        if GPUS[gpu]
    ]
    return sorted(advices, key=_rank)


def _rank(advice: Advice) -> tuple[bool, bool, float, float]:
    hour = math.inf if advice.hour is None else advice.hour
    return not advice.works, not advice.proof.holds, hour, advice.proof.case.gpus * advice.proof.order.hardware.share


def public_cost(order: Order, price: PublicPrice) -> float:
    """What the declared load would cost per hour at a public API. Raises ValueError where no load is declared."""
    load = order.load
    if load is None:
        raise ValueError("no load is declared")
    request = load.prompt_tokens.mean * price.fresh + load.answer_tokens.mean * price.answer
    return load.requests_per_s * 3600 * request / 1e6


def table(advices: Iterable[Advice]) -> list[str]:
    """A line for each kind that works, under a heading; then one for each that does not, with the reason."""
    advices = list(advices)
    rows = [_HEADING, *(_row(advice) for advice in advices if advice.works)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEADING))]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    refused = [advice for advice in advices if not advice.works]
    return [*(lines if len(rows) > 1 else []), *(f"{advice.gpu}: no. {advice.why_not}" for advice in refused)]


_HEADING = (
    "GPU",
    "verdict",
    "replicas",
    "GPUs (range)",
    "TTFT p95",
    "ITL p95",
    "used",
    "per hour",
    "per M tokens",
    "speed known",
)


def _row(advice: Advice) -> tuple[str, ...]:
    case, serving, cost = advice.proof.case, advice.proof.serving, advice.proof.cost

    def of(key: str, unit: str) -> str:
        return f"{shown(serving[key].value)} {unit}" if key in serving else "-"

    return (
        advice.gpu + (" (here)" if advice.owned else ""),
        advice.verdict,
        f"{case.replicas} x {case.layout}",
        f"{case.gpus}{_gpus_over_the_band(advice.proof)}",
        of("ttft_p95", "ms"),
        of("itl_p95", "ms"),
        of("utilisation", "%"),
        "-" if advice.hour is None else str(cost["hour"]),
        "-" if advice.million is None else shown(advice.million),
        advice.proof.speed["prefill_per_token"].fidelity,
    )


def _gpus_over_the_band(proof: Proof) -> str:
    """The GPUs of as many replicas as the load needs at either end; nothing without a load."""
    needed = proof.sizing.get("needed_replicas")
    if needed is None or needed.span is None:
        return ""
    gpus = needed.span.mapped(lambda replicas: replicas * proof.case.layout.gpus)
    return f" ({gpus})" if gpus.slow is not None else " (no number at the slow end)"


def slices_line(advices: Iterable[Advice]) -> str:
    """What a slice among them counts as, and what it costs; empty where all are whole GPUs."""
    kinds = [advice.proof.order.hardware for advice in sorted(advices, key=lambda advice: advice.gpu)]
    slices = [kind for kind in kinds if isinstance(kind, GpuSlice)]
    parts = ", ".join(f"1/{kind.of_a_gpu} for {kind.profile}" for kind in slices if kind.of_a_gpu > 1)
    if not slices:
        return ""
    return (
        f"a slice (MIG) counts as one GPU here, and costs its part of a whole one{parts and f', {parts}'}; a machine "
        "is cut into one profile, and slices that no model has cost the same"
    )


def verdict(advices: list[Advice], public: float | None) -> str:
    """One sentence: which kind to take, and how that compares with a public API's cost per hour."""
    working = [advice for advice in advices if advice.works]
    if not working:
        loaded = any(advice.proof.order.load for advice in advices)
        return f"no kind of GPU {'carries this load within its targets' if loaded else 'holds this model'}"
    first = working[0]
    if first.proof.order.load is None:
        return (
            f"no recommendation: no load is declared, so each of these only holds {first.proof.order.name}; add "
            "load.requests_per_s to the model in the site, or --requests-per-s here"
        )
    text = f"take {first.size}"
    # What holds by the computed figures comes before cost and GPUs.
    like = [advice for advice in working if advice.proof.holds == first.proof.holds]
    among = "" if len(like) == len(working) else " of those that hold by the computed figures"
    if first.hour is None:
        sliced = any(isinstance(advice.proof.order.hardware, GpuSlice) for advice in like)
        least = "the fewest GPUs, with a slice counted as a part of one" if sliced else "the fewest GPUs"
        return f"{text}: {least}{among}; give prices to compare costs{_in_doubt(working)}"
    priced = sum(advice.hour is not None for advice in like)
    all_priced = all(advice.hour is not None for advice in working)
    known = "" if all_priced else "; the others have no price: add --offer GPU=PRICE"
    kinds = f"the least cost per hour of {priced} kinds with a price that {'hold' if among else 'work'}"
    only = f"the only kind with a price that {'holds' if among else 'works'}"
    how = " by the computed figures" if among else ""
    text += f": {kinds if priced > 1 else only}{how}{known}{_in_doubt(working)}"
    if public is None:
        return text
    share, prices = first.hour / public, first.proof.order.prices
    times = f"{share:.1f} times" if share >= 1 else f"{100 * share:.0f} % of"
    unit = f"{prices.currency}/h" if prices else "per hour"
    return f"{text}; {times} what the public API costs for this load, {shown(public)} {unit}"


def split_of(advices: list[Advice]) -> SplitVerdict | None:
    """Prompts and answers on replicas of their own, on the kind that `verdict` takes, or else on the site's own."""
    kinds = [*(kind for kind in advices if kind.works), *(kind for kind in advices if kind.owned)]
    return compare(kinds[0].proof.order) if kinds else None


def split_line(split: SplitVerdict) -> str:
    """What a split would do, whether it is better or not, and why."""
    if split.split is None:
        return f"split: no. {split.reasons}"
    answer = "yes, but it is not deployed" if split.better else "no"
    return f"split: {answer}. {split.line}; {split.reasons}  [estimated]"


def _in_doubt(working: list[Advice]) -> str:
    """Where the kind to take is uncertain: why, and the first that holds over its whole band."""
    first = working[0]
    if first.verdict == "holds":
        return ""
    sure = next((advice for advice in working if advice.verdict == "holds"), None)
    surest = f"; {sure.size} would hold over the whole band" if sure else ""
    return f"; uncertain, as {first.why_not}{surest}"
