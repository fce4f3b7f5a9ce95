"""Slices of a GPU by NVIDIA's Multi-Instance GPU (MIG): `stacks/facts/mig.yaml`, which names its sources.

A slice has memory, cache and multiprocessors of its own. GPUs are cut all alike, by the layouts that NVIDIA's MIG
manager calls `all-<profile>` (mig-parted 0.15.0, deployments/container). Layouts that mix profiles have no key.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from floor.problems import WrongValueError
from stacks.facts.records import Record, read_facts

FILE = Path(__file__).parent / "mig.yaml"
WHOLE = "all-disabled"
"""Layout that cuts no GPU."""
_EIGHTHS = 8
_Eighths = Annotated[int, Field(ge=1, le=_EIGHTHS)]


class _SliceShape(Record):
    of_a_gpu: int = Field(ge=1, le=7)
    multiprocessors: int = Field(ge=1)
    memory_eighths: _Eighths
    cache_eighths: _Eighths
    copy_engines: _Eighths


class _MigProfile(Record):
    shape: str
    memory_bytes: float | None = Field(default=None, gt=0)


class _MigTable(Record):
    read: str
    family: str
    multiprocessors: int = Field(ge=1)
    shapes: dict[str, _SliceShape]
    kinds: dict[str, dict[str, _MigProfile]]

    @model_validator(mode="after")
    def _shapes_are_there(self) -> _MigTable:
        for profiles in self.kinds.values():
            for name, profile in profiles.items():
                if profile.shape not in self.shapes:
                    raise WrongValueError(f"{name} has shape {profile.shape}, which is not in shapes", fix="add it")
        return self


class Slice(Record):
    """What one slice has of its GPU, as shares from 0 to 1."""

    of_a_gpu: int
    """Slices of this profile that one GPU gives."""
    memory_bytes: float | None
    """Bytes that its driver reports; None for all of the GPU's."""
    compute: float
    """Of the multiprocessors."""
    bandwidth: float
    """Of the memory's bandwidth: the smaller one of the shares of memory and L2 cache, which both are on its way."""
    copy_engines: float
    """Of the engines that copy from the host."""


def slices_of(gpu: str) -> Mapping[str, Slice]:
    """Slices by profile of a kind of GPU, small ones first; empty where MIG is not known of it."""
    return _slices().get(gpu, {})


def part_of_a_gpu(profile: str) -> float:
    """Which part of its GPU a slice of this profile is, 0 to 1; 1 for one that is not known."""
    known = [slices[profile] for slices in _slices().values() if profile in slices]
    return 1 / known[0].of_a_gpu if known else 1.0


def cut_kinds() -> list[str]:
    """Kinds of GPU whose slices are known."""
    return sorted(_slices())


def layout_of(profile: str) -> str:
    """The layout that cuts every GPU of a machine into this profile; value of the label `nvidia.com/mig.config`."""
    return f"all-{profile}"


def profile_of(layout: str | None) -> str:
    """The profile that a layout cuts every GPU into; empty for whole GPUs."""
    return "" if layout in (None, WHOLE) else layout.removeprefix("all-")


@cache
def _slices() -> Mapping[str, Mapping[str, Slice]]:
    table = read_facts(FILE, _MigTable)
    return {
        gpu: {name: _slice(table, table.shapes[profile.shape], profile) for name, profile in profiles.items()}
        for gpu, profiles in table.kinds.items()
    }


def _slice(table: _MigTable, shape: _SliceShape, profile: _MigProfile) -> Slice:
    return Slice(
        of_a_gpu=shape.of_a_gpu,
        memory_bytes=profile.memory_bytes,
        compute=shape.multiprocessors / table.multiprocessors,
        bandwidth=min(shape.memory_eighths, shape.cache_eighths) / _EIGHTHS,
        copy_engines=shape.copy_engines / _EIGHTHS,
    )
