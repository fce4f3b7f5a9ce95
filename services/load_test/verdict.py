"""What GPUs must reach, and what is wrong with those that do not: no torch, so that every rule is a case of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Floors:
    """The least of each GPU, and of all together."""

    tflops: float
    """bf16, TFLOP/s."""
    memory_gb_s: float
    """Reading."""
    all_reduce_gb_s: float
    """Bus bandwidth as NCCL's tests define it: 2 (n - 1) / n of the bytes, over the time."""


@dataclass(frozen=True, kw_only=True)
class LoadTest:
    """Of nodes with so many GPUs of a kind."""

    name: str
    gpus: int
    floors: Floors


@dataclass(frozen=True, kw_only=True)
class Reached:
    """By one GPU."""

    tflops: float
    memory_gb_s: float
    all_reduce_gb_s: float
    """As this one saw it; 0 of a single GPU."""
    checksum: int
    """Of a product of whole numbers, which is the same on every GPU that computes right, in whatever order it adds."""
    summed: bool
    """Whether the sum among all is right."""


def summary(reached: Sequence[Reached]) -> str:
    """A line: the least of each figure."""
    tflops, memory, links = (
        min(getattr(of, name) for of in reached) for name in ("tflops", "memory_gb_s", "all_reduce_gb_s")
    )
    among = f", {links:.0f} GB/s all-reduce" if len(reached) > 1 else ""
    return f"{len(reached)} GPUs: at least {tflops:.0f} TFLOP/s bf16, {memory:.0f} GB/s memory{among}"


def faults(reached: Sequence[Reached], floors: Floors) -> list[str]:
    """What is wrong, by GPU; none where the node may take replicas."""
    usual, _ = Counter(of.checksum for of in reached).most_common(1)[0]
    wrong = []
    for number, of in enumerate(reached):
        if of.tflops < floors.tflops:
            wrong.append(f"GPU {number}: {of.tflops:.0f} TFLOP/s bf16, below {floors.tflops:.0f}")
        if of.memory_gb_s < floors.memory_gb_s:
            wrong.append(f"GPU {number}: {of.memory_gb_s:.0f} GB/s of memory, below {floors.memory_gb_s:.0f}")
        if of.checksum != usual:
            wrong.append(f"GPU {number}: its product differs from the other GPUs'")
        if not of.summed:
            wrong.append(f"GPU {number}: the sum of all GPUs is wrong")
    links = min(of.all_reduce_gb_s for of in reached)
    if len(reached) > 1 and links < floors.all_reduce_gb_s:
        wrong.append(f"all-reduce: {links:.0f} GB/s, below {floors.all_reduce_gb_s:.0f}")
    return wrong
