"""What a GPU can do, as published by its maker: one YAML file each in `stacks/facts/hardware/`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from floor.problems import WrongValueError
from stacks.facts.mig import Slice, slices_of
from stacks.facts.records import Record, read_facts

FOLDER = Path(__file__).parent / "hardware"

Precision = Literal["bf16", "fp8", "fp4"]
# Between a kind of GPU and a profile that it is cut into.
_OF = "/"


class Gpu(Record):
    """Peak figures of one GPU and of the node that it is in."""

    maker: Literal["nvidia", "amd"]
    """Who makes it."""
    family: str = ""
    """Value of the node label `nvidia.com/gpu.family`; AMD's nodes have none."""
    board: Literal["hgx", ""] = ""
    """`hgx`: NVIDIA's board of eight on NVSwitches, which a machine of role hgx has."""
    memory_bytes: float = Field(gt=0)
    """Bytes that its driver reports."""
    memory_bytes_per_s: float = Field(gt=0)
    """Peak bandwidth of its memory."""
    flops: dict[Precision, float]
    """Dense operations a second by precision; a precision that is missing is computed in bf16."""
    link_bytes_per_s: float = Field(gt=0)
    """Bandwidth to the other GPUs of its domain, one direction."""
    link_domain: int = Field(gt=0)
    """GPUs that its links reach."""
    pcie_bytes_per_s: float = Field(gt=0)
    """Bandwidth from the host, one direction."""
    network_bytes_per_s: float = Field(gt=0)
    """Bandwidth to other nodes, a GPU and direction."""
    gpus_per_node: int = Field(gt=0)
    """GPUs of a node; of a kind that is sold by the card, the usual number."""
    power_w: float = Field(gt=0)
    """Power of one GPU under load."""
    node_power_w: float | None = Field(default=None, gt=0)
    """Power of a whole node under load, by its maker: GPUs, processors, network, fans. Nothing where none was looked
    up, as for cards that are sold one by one."""
    sources: dict[str, str]
    """Where the figures come from."""

    @field_validator("flops")
    @classmethod
    def _has_the_ground(cls, flops: dict[Precision, float]) -> dict[Precision, float]:
        if "bf16" not in flops:
            raise WrongValueError("holds no bf16, which what has no units of its own is computed in", fix="add bf16")
        for precision, peak in flops.items():
            if peak < flops["bf16"]:
                raise WrongValueError(
                    f"states less for {precision} than for bf16", fix=f"take {precision} out, or correct it"
                )
        return flops

    @field_validator("sources")
    @classmethod
    def _says_where_from(cls, sources: dict[str, str]) -> dict[str, str]:
        if missing := sorted({"memory_bytes", "speed"} - sources.keys()):
            raise WrongValueError(f"holds no {', '.join(missing)}", fix="state where these figures come from")
        return sources

    @model_validator(mode="after")
    def _goes_together(self) -> Gpu:
        if self.link_domain < self.gpus_per_node:
            raise WrongValueError(
                f"link_domain, {self.link_domain}, is less than gpus_per_node, {self.gpus_per_node}",
                fix="give the bandwidth and the reach of the links that all GPUs of a node share",
            )
        if self.maker == "nvidia" and not self.family:
            raise WrongValueError("family is missing", fix="add the value of the node label nvidia.com/gpu.family")
        if self.node_power_w is not None and self.node_power_w < self.gpus_per_node * self.power_w:
            raise WrongValueError(
                f"node_power_w, {self.node_power_w:g}, is less than its {self.gpus_per_node} GPUs take",
                fix="give the maker's figure of the whole node, not of a GPU",
            )
        if self.node_power_w is not None and "node_power_w" not in self.sources:
            raise WrongValueError("sources holds no node_power_w", fix="name where it comes from")
        return self

    @property
    def billed_power_w(self) -> float:
        """A GPU's share of its node's power under load; of a kind without a figure of the node, the GPU's own."""
        return self.power_w if self.node_power_w is None else self.node_power_w / self.gpus_per_node

    @property
    def share(self) -> float:
        """What of a physical GPU it is, and of its bill: all of it."""
        return 1.0

    @property
    def linked_by_pcie(self) -> bool:
        """Whether its GPUs reach each other over PCIe alone, which bridges between pairs do not change."""
        return self.link_bytes_per_s <= self.pcie_bytes_per_s

    def flops_at(self, precision: Precision) -> float:
        """Peak at that precision, or at bf16 where it has no units for it."""
        return self.flops.get(precision, self.flops["bf16"])


class GpuSlice(Gpu):
    """A slice of a GPU (MIG), as a GPU of its own: its shares of what the whole one has.

    No slice reaches another one: MIG has no peer access over NVLink or PCIe (NVIDIA MIG User Guide, Application
    Considerations), so a replica has one.
    """

    whole: str
    """Kind of GPU that it is of."""
    profile: str
    """NVIDIA's name, such as 1g.18gb."""
    of_a_gpu: int
    """Slices that one GPU is cut into."""

    @property
    def share(self) -> float:
        """One of equal parts: what its profile leaves of a GPU over, no other slice can have."""
        return 1 / self.of_a_gpu


def slice_name(gpu: str, profile: str) -> str:
    """Name of a slice in the table: `h200-sxm/1g.18gb`; that of the whole GPU without a profile."""
    return f"{gpu}{_OF}{profile}" if profile else gpu


def other_kinds(gpu: str) -> list[str]:
    """What else a model may be proven on: other GPUs, or for a slice the other slices of its GPU and the whole one."""
    kind = GPUS[gpu]
    if isinstance(kind, GpuSlice):
        kinds = [*(slice_name(kind.whole, profile) for profile in slices_of(kind.whole)), kind.whole]
        return [other for other in kinds if other != gpu]
    return [other for other in GPUS if other != gpu]


def slices_per_node(gpu: str) -> int:
    """GPUs of a node of this kind, or slices of a node whose GPUs are all cut so."""
    kind = GPUS[gpu]
    return GPUS[kind.whole].gpus_per_node * kind.of_a_gpu if isinstance(kind, GpuSlice) else kind.gpus_per_node


def _cut(whole: Gpu, gpu: str, profile: str, own: Slice) -> GpuSlice:
    """The slice's figures. Of power it has an equal part, and over PCIe what its copy engines move."""
    return GpuSlice(
        maker=whole.maker,
        family=whole.family,
        board=whole.board,
        memory_bytes=own.memory_bytes or whole.memory_bytes,
        memory_bytes_per_s=whole.memory_bytes_per_s * own.bandwidth,
        flops={precision: peak * own.compute for precision, peak in whole.flops.items()},
        link_bytes_per_s=whole.pcie_bytes_per_s * own.copy_engines,
        link_domain=1,
        pcie_bytes_per_s=whole.pcie_bytes_per_s * own.copy_engines,
        network_bytes_per_s=whole.network_bytes_per_s / own.of_a_gpu,
        gpus_per_node=1,
        power_w=whole.power_w / own.of_a_gpu,
        node_power_w=whole.node_power_w and whole.billed_power_w / own.of_a_gpu,
        sources={**whole.sources, "slice": "stacks/facts/mig.yaml"},
        whole=gpu,
        profile=profile,
        of_a_gpu=own.of_a_gpu,
    )


class _Table(Mapping[str, Gpu]):
    """Reads a file when it is asked for: a wrong one is an error of who needs it, not of every command.

    Slices are found by `slice_name`, and not among the names: a site's nodes have whole GPUs.
    """

    def __getitem__(self, name: str) -> Gpu:
        return _load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_names())

    def __len__(self) -> int:
        return len(_names())


def _names() -> tuple[str, ...]:
    files = (entry.name for entry in os.scandir(FOLDER))
    return tuple(sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml")))


@cache
def _load(name: str) -> Gpu:
    gpu, _, profile = name.partition(_OF)
    if profile:
        return _cut(_load(gpu), gpu, profile, slices_of(gpu)[profile])
    if name not in _names():
        raise KeyError(name)
    return read_facts(FOLDER / f"{name}.yaml", Gpu)


USUAL_GPU = "h200-sxm"
"""Of a site that names none."""

GPUS: Mapping[str, Gpu] = _Table()
"""Every kind of GPU by its file's name, and slices by `slice_name`. Raises SiteError for a file that is wrong."""
