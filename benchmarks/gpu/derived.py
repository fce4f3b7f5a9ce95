"""What the proof gives for a measured engine today: the same arguments, at both ends of the band of its speed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from benchmarks.gpu.measured import MeasuredModel, MeasuredRun, MeasuredStep
from benchmarks.packed_run import alike, run_s
from stacks.proof.case import Case
from stacks.proof.demand import Load, Metric, Spread
from stacks.proof.front_end import FRONT_END, FrontEnd
from stacks.proof.layouts import Layout
from stacks.proof.order import Order
from stacks.proof.proof import Proof, prove
from stacks.proof.roofline import Roofline
from stacks.proof.serving import PATH_S, REQUEST_OVERHEAD_S, Steady

_GIB = 2**30
# Measured over derived, as docs/proof.md promises it for a start.
MEMORY_BANDS = {"weights_gib": (0.985, 1.015), "room_gib": (0.97, 1.09), "cache_tokens": (0.97, 1.09)}
# Tokens that the streams of a `heavy` step have: 300 of a prompt, and what they have written by then.
_STREAM_TOKENS = 700
# What an API server takes over what the proof has it take: published runs with one lie between (docs/proof.md).
_HOSTS = (0.85, 1.2)
_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, kw_only=True)
class GpuRow:
    """A measured figure and the proof's."""

    model: str
    step: str
    metric: str
    measured: float
    derived: float
    low: float
    high: float
    """Between which the proof promises the measured one to lie; infinite where an end does not carry the load."""

    @property
    def ratio(self) -> float:
        return self.derived / self.measured

    @property
    def inside(self) -> bool | None:
        """None where the promise has no upper end: that is not judged."""
        return self.low <= self.measured <= self.high if math.isfinite(self.high) else None


@dataclass(frozen=True)
class Derived:
    """The proof of one engine of the run. Requests come without a gateway, so its share of a first token is not in."""

    run: MeasuredRun
    model: MeasuredModel

    @cached_property
    def proof(self) -> Proof:
        load = Load(requests_per_s=1.0, prompt_tokens=Spread(1000, 1000), answer_tokens=Spread(200, 200))
        order = Order(
            name=self.model.name,
            model=self.model.loaded,
            gpu=self.run.gpu,
            layout=Layout(tensor=1),
            replicas=1,
            kv_dtype=self.model.cache,
            load=load,
            max_num_seqs=self.model.seqs,
            max_num_batched_tokens=self.model.batched_tokens,
            engine=self.run.version,
        )
        return prove(order)

    @property
    def case(self) -> Case:
        return self.proof.case

    @cached_property
    def memory(self) -> dict[str, float]:
        """By what a log states. `ready_s` is without reading the weights, which were made up."""
        case, context = self.case, self.model.context
        longest = case.cache.longest_bytes(context, case.batched_tokens)
        return {
            "weights_gib": case.weights / _GIB,
            "room_gib": case.room / _GIB,
            "cache_tokens": case.room / longest * context,
            "activation_gib": (case.reserve.step + case.reserve.workspace) / _GIB,
            "graphs_gib": case.reserve.graphs / _GIB,
            "graphs_estimate_gib": case.reserve.graphs / _GIB,
            "non_torch_gib": case.reserve.context / _GIB,
            "ready_s": self.proof.start_s() - case.order.read_s(),
        }

    def rows(self) -> Iterator[GpuRow]:
        """Figures that the proof has a band for."""
        for metric, (low, high) in MEMORY_BANDS.items():
            if metric in self.model.start:
                size = self.memory[metric]
                yield self._row("start", metric, self.model.start[metric], size, (low * size, high * size))
        for step in self.model.steps:
            band = self.proof.ends.band
            ours = self.figures(step, 1.0, FRONT_END)
            fast, slow = (
                self.figures(step, pace, slowed(FRONT_END, host))
                for pace, host in zip((band.low, band.high), _HOSTS, strict=True)
            )
            for metric in ours:
                ends = sorted((fast[metric], slow[metric]))
                yield self._row(step.name, metric, step.figures[metric], ours[metric], (ends[0], ends[1]))

    def _row(self, step: str, metric: str, measured: float, derived: float, ends: tuple[float, float]) -> GpuRow:
        low, high = ends
        return GpuRow(
            model=self.model.name, step=step, metric=metric, measured=measured, derived=derived, low=low, high=high
        )

    def figures(self, step: MeasuredStep, pace: float, front_end: FrontEnd) -> Mapping[str, float]:
        """By metric, of an engine whose steps take `pace` times as long, behind such an API server."""
        roofline = self.case.roofline.at(pace)
        match step.kind:
            case "ttft":
                return {"ttft_ms p50": 1e3 * self._first_s(roofline, step.prompt)}
            case "itl":
                context = step.prompt + step.answer / 2
                return {"itl_mean_ms": 1e3 * roofline.step_s(decodes=step.count, context=context)}
            case "full":
                return {"requests_per_s": step.count / self._whole_s(roofline, step, front_end)}
            case "poisson":
                return self._percentiles(step, pace)
            case "heavy":
                chunk = min(step.prompt, self.case.batched_tokens - step.count)
                reach = step.prompt - chunk / 2
                gap_s = roofline.step_s(prefill=chunk, reach=reach, decodes=step.count, context=_STREAM_TOKENS)
                return {"gaps_ms max": 1e3 * gap_s}

    def _first_s(self, roofline: Roofline, prompt: int) -> float:
        seconds = run_s(roofline, alike(prompt, 1, 1), slots=1, batched_tokens=self.case.batched_tokens)
        return REQUEST_OVERHEAD_S + prompt * FRONT_END.prompt_token_s + seconds

    def _whole_s(self, roofline: Roofline, step: MeasuredStep, front_end: FrontEnd) -> float:
        case = self.case
        room = case.room - case.cache.shared_bytes(case.batched_tokens)
        held = int(room // case.cache.request_bytes(step.prompt + step.answer))
        return run_s(
            roofline,
            alike(step.prompt, step.answer, step.count),
            slots=min(case.slots, held),
            batched_tokens=case.batched_tokens,
            front_end=front_end,
        )

    def _percentiles(self, step: MeasuredStep, pace: float) -> dict[str, float]:
        """Infinite where the rate is not carried."""
        engine = self.case.replica.scheduler(self.case.batched_tokens)
        prompt, answer = Spread(step.prompt, step.prompt), Spread(step.answer, step.answer)
        load = Load(requests_per_s=step.rate, prompt_tokens=prompt, answer_tokens=answer)
        steady = Steady(replace(engine, roofline=engine.roofline.at(pace)), load, self.case.schedulers)
        metrics: tuple[tuple[Metric, float], ...] = (("ttft", PATH_S), ("itl", 0.0))
        return {
            f"{metric}_ms {name}": 1e3 * (steady.quantile_s(metric, share) - path_s)
            for metric, path_s in metrics
            for name, share in _SHARES.items()
        }


def slowed(front_end: FrontEnd, factor: float) -> FrontEnd:
    """An API server that takes so many times as long for everything."""
    times: dict[str, float] = {kind: seconds * factor for kind, seconds in asdict(front_end).items()}
    return FrontEnd(**times)


def gpu_rows(run: MeasuredRun) -> list[GpuRow]:
    """Every figure that the proof promises something for."""
    return [row for model in run.models for row in Derived(run, model).rows()]
