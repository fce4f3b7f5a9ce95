"""Whether prompts and answers on replicas of their own would do better than both on the same, and why.

Both ways get the fewest GPUs that carry the load within the targets, and no spare replica.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from floor.counts import counted
from stacks.facts.hardware import GpuSlice
from stacks.proof.case import Case
from stacks.proof.disaggregation import Split, fewest, free_order, smallest_replica
from stacks.proof.figures import shown
from stacks.proof.order import Order
from stacks.proof.search import best

# With as many GPUs, the split is better where the joint layout's ITL p99 is at least this multiple of its own.
_RELIEF = 1.5


@dataclass(frozen=True)
class SplitVerdict:
    """The joint layout, and the split beside it."""

    joint: Case
    split: Split | None
    """None where no split carries the load, or where none could have as few GPUs."""

    @cached_property
    def better(self) -> bool:
        """Whether the split holds where nothing joint does, needs fewer GPUs, or keeps a much tighter ITL."""
        if self.split is None:
            return False
        if self.joint.problems:
            return True
        if self.split.gpus != self.joint.gpus:
            return self.split.gpus < self.joint.gpus
        return self._gap_s(self.joint) >= _RELIEF * self._gap_s(self.split.decode)

    @staticmethod
    def _gap_s(case: Case) -> float:
        return case.steady.itl_quantile_s(0.99)

    @property
    def line(self) -> str:
        """What the split is, and what it changes; empty without one."""
        split, joint = self.split, self.joint
        if split is None:
            return ""
        sizes = f"{split.prefill.replicas} x {split.prefill.case.layout} for prompts"
        sizes += f", {split.decode.replicas} x {split.decode.layout} for answers: {counted(split.gpus, 'GPU')}"
        gap, first = shown(self._gap_s(split.decode) * 1e3), shown(split.ttft_mean_s * 1e3)
        if joint.problems:
            text = f"{sizes} would hold it; ITL p99 {gap} ms, mean TTFT {first} ms"
        else:
            now = "as now" if split.gpus == joint.gpus else f"not {joint.gpus}"
            text = f"{sizes}, {now}; ITL p99 {gap}, not {shown(self._gap_s(joint) * 1e3)} ms"
            text += f"; mean TTFT {first}, not {shown(joint.steady.ttft.total * 1e3)} ms"
        return text

    @property
    def reasons(self) -> str:
        """Why, in one sentence."""
        return "; ".join(self._reasons())

    def _reasons(self) -> Iterator[str]:
        split, joint = self.split, self.joint
        load = joint.order.load
        if not joint.problems and load is not None:
            share = joint.steady.prompt_share
            cached = f", {100 * load.prefix_hit:.0f} % of them cached," if load.prefix_hit else ""
            yield f"prompts{cached} take {100 * share:.0f} % of a joint replica's time"
        if split is None:
            small = smallest_replica(joint.order)
            if not joint.problems and 2 * small > joint.gpus:
                yield f"two pools take at least {2 * small:.0f} GPUs, and the load needs {counted(joint.gpus, 'GPU')}"
            else:
                yield "no split carries the load within the targets"
            return
        yield f"moving a mean prompt's cache takes {shown(split.transfer_s * 1e3)} ms"
        yield f"prompts keep their replicas {100 * split.prefill.busy:.0f} % busy"


def compare(order: Order) -> SplitVerdict | None:
    """The verdict on an order; None without a load or answers, where no node holds the model, and on slices: what moves
    a cache from one to another was not looked up."""
    if isinstance(order.hardware, GpuSlice):
        return None
    if order.load is None or order.model.task != "generate" or order.load.answer_tokens.mean <= 1:
        return None
    joint = best(free_order(order, order.load, order.slo))
    if joint.fit_problems:
        return None
    if not joint.problems and 2 * smallest_replica(joint.order) > joint.gpus:
        return SplitVerdict(joint, None)
    return SplitVerdict(joint, fewest(order))
