"""How a replica's model is split over GPUs, the layouts that the engine allows, and the weights on each GPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from floor import gpu_nodes
from stacks.facts import catalogue
from stacks.facts.catalogue import CatalogueModel, Experts
from stacks.facts.hardware import Gpu
from stacks.proof.weights import weight_bytes

# Elements of a block-quantised matrix that share a scale, in each direction (weight_block_size of the checkpoints).
_BLOCK = 128
# Elements that MXFP4 kernels want an expert's slice and a token's vector to be multiples of.
_MXFP4_INNER, _MXFP4_HIDDEN = 128, 256


@dataclass(frozen=True, kw_only=True, order=True)
class Layout:
    """Parallel sizes of one replica, as vLLM's flags have them."""

    tensor: int = 1
    """--tensor-parallel-size."""
    pipeline: int = 1
    """--pipeline-parallel-size."""
    data: int = 1
    """--data-parallel-size: attention replicated, experts divided; each rank schedules and caches for itself."""
    expert_parallel: bool = False
    """--enable-expert-parallel: whole experts a GPU instead of a slice of each."""

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor * self.pipeline * self.data

    @property
    def tensor_alone(self) -> bool:
        """Whether nothing but tensor parallelism divides it; experts may be whole."""
        return self.gpus == self.tensor

    @property
    def words(self) -> str:
        """As a site writes it."""
        sizes = {"tensor": self.tensor, "data": self.data, "pipeline": self.pipeline}
        parts = [f"{key}: {size}" for key, size in sizes.items() if size > 1 or key == "tensor"]
        return f"{{{', '.join([*parts, 'expert_parallel: true'] if self.expert_parallel else parts)}}}"

    def __str__(self) -> str:
        sizes = [f"TP{self.tensor}"]
        sizes += [f"PP{self.pipeline}"] if self.pipeline > 1 else []
        sizes += [f"DP{self.data}"] if self.data > 1 else []
        sizes += ["EP"] if self.expert_parallel else []
        return " ".join(sizes)


def over(gpu: Gpu, nodes: int) -> Layout:
    """The usual layout over several whole nodes: tensor parallelism inside of each, and a stage on each."""
    return Layout(tensor=gpu.gpus_per_node, pipeline=nodes)


def layer_count(model: CatalogueModel) -> int:
    """Layers that a pipeline divides: those that mix tokens."""
    return sum(mixer.count for mixer in model.mixers.values())


def experts_of(model: CatalogueModel) -> list[Experts]:
    """Layers with routed experts."""
    return [layer for layer in model.feed_forward.values() if isinstance(layer, Experts)]


LayoutKey = Literal["tensor", "data", "pipeline", "expert_parallel"]


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """One reason why a layout cannot be."""

    key: LayoutKey
    """The size that is to blame."""
    why: str


def why_illegal(model: CatalogueModel, layout: Layout) -> str:
    """The first reason why the engine would refuse this layout, or nothing."""
    return next((refusal.why for refusal in refusals(model, layout)), "")


def refusals(model: CatalogueModel, layout: Layout) -> Iterator[Refusal]:
    """Every reason why the engine would refuse this layout.

    Source: vLLM 0.32 config/parallel.py, fused_moe, fp8.py; its encoders of the BERT family have no pipeline stages.
    """
    tensor = layout.tensor
    for mixer in model.mixers.values():
        heads = mixer.value_heads if isinstance(mixer, catalogue.DeltaNet) else mixer.heads
        if heads % tensor:
            yield Refusal(key="tensor", why=f"{heads} heads cannot be divided by TP{tensor}")
        kv = getattr(mixer, "kv_heads", tensor)
        if kv % tensor and tensor % kv:
            why = f"{kv} key-value heads can be neither divided by TP{tensor} nor repeated"
            yield Refusal(key="tensor", why=why)
    if layout.pipeline > layer_count(model):
        why = f"{layer_count(model)} layers are fewer than PP{layout.pipeline}"
        yield Refusal(key="pipeline", why=why)
    if layout.pipeline > 1 and any(isinstance(mixer, catalogue.Encoder) for mixer in model.mixers.values()):
        yield Refusal(key="pipeline", why="vLLM does not divide encoders into pipeline stages")
    yield from _expert_refusals(model, layout)
    yield from _cut_blocks(model, layout)


def _expert_refusals(model: CatalogueModel, layout: Layout) -> Iterator[Refusal]:
    routed = experts_of(model)
    if not routed:
        why = "data and expert parallelism inside a replica are for models with experts; use more replicas"
        if layout.data > 1:
            yield Refusal(key="data", why=why)
        if layout.expert_parallel:
            yield Refusal(key="expert_parallel", why=why)
        return
    ranks = layout.tensor * layout.data
    if layout.expert_parallel and any(layer.experts % ranks for layer in routed):
        why = f"{routed[0].experts} experts cannot be divided by {ranks} GPUs"
        yield Refusal(key="data" if layout.data > 1 else "tensor", why=why)


def allowed(model: CatalogueModel, gpu: Gpu, layout: Layout, key: LayoutKey) -> list[str]:
    """Values of one size with which nothing is left against it, the others being as they are; none beyond a node."""
    values = (True, False) if key == "expert_parallel" else range(1, gpu.gpus_per_node + 1)
    others = [Layout(**(asdict(layout) | {key: value})) for value in values]
    return [
        str(getattr(other, key)).lower()
        for other in others
        if not any(refusal.key == key for refusal in refusals(model, other))
    ]


def _cut_blocks(model: CatalogueModel, layout: Layout) -> Iterator[Refusal]:
    """A slice of a block-quantised matrix must be whole blocks."""
    if model.quantisation.format != "fp8-block":
        return
    for layer in model.feed_forward.values():
        routed = isinstance(layer, Experts)
        if ("experts" if routed else "dense") not in model.quantisation.parts or (routed and layout.expert_parallel):
            continue
        # Experts that are not whole on a GPU are cut over all ranks, data-parallel ones too.
        data = layout.data if routed else 1
        inner = layer.width / layout.tensor / data
        if inner % _BLOCK:
            ranks = f"TP{layout.tensor}" + (f" x DP{data}" if data > 1 else "")
            why = f"inner width {layer.width} over {ranks} is {inner:g}, which is not whole blocks of {_BLOCK}"
            yield Refusal(key="data" if data > 1 else "tensor", why=why)
            return


def weights_per_gpu(model: CatalogueModel, layout: Layout) -> float:
    """Bytes of weights on the fullest GPU, as the engine loads them.

    Attention, dense and shared parts are divided by TP, experts by TP x DP, layers by PP; compressions, indexer and
    router are whole on every GPU, and so is a vision tower. Embeddings are on the first and last stage, and divided by
    TP.
    """
    size = weight_bytes(model)
    stage = math.ceil(layer_count(model) / layout.pipeline) / layer_count(model)
    divided = (size.mixers + size.dense + size.shared) / layout.tensor
    experts = size.experts * _padding(model, layout) / (layout.tensor * layout.data)
    # With a pipeline, input and output embeddings are on different stages.
    embeddings = size.embeddings / layout.tensor / (2 if layout.pipeline > 1 and not model.tied else 1)
    whole = size.replicated + size.routers + _absorbed(model, layout)
    return (divided + whole + experts) * stage + embeddings + size.vision


def _padding(model: CatalogueModel, layout: Layout) -> float:
    """Elements of routed experts as loaded, over those as stored.

    Kernels for MXFP4 want inner sizes of whole 128 and vectors of whole 256 elements (vLLM 0.32
    fused_moe/oracle/mxfp4.py, Marlin and TRT-LLM; others pad less).
    """
    if model.quantisation.format != "mxfp4" or "experts" not in model.quantisation.parts:
        return 1.0
    slices = 1 if layout.expert_parallel else layout.tensor * layout.data
    hidden = math.ceil(model.hidden / _MXFP4_HIDDEN) * _MXFP4_HIDDEN / model.hidden
    return hidden * max(
        math.ceil(layer.width / slices / _MXFP4_INNER) * _MXFP4_INNER * slices / layer.width
        for layer in experts_of(model)
    )


def _absorbed(model: CatalogueModel, layout: Layout) -> float:
    """Bytes of the 16-bit copies that latent attention makes of its value and key projections for decode steps.

    Source: vLLM 0.32 layers/attention/mla_attention.py (W_UK_T, W_UV).
    """
    return sum(
        2 * mixer.count * mixer.heads / layout.tensor * mixer.latent * (mixer.nope + mixer.value_size)
        for mixer in model.mixers.values()
        if isinstance(mixer, catalogue.LatentAttention)
    )


def candidates(
    model: CatalogueModel, gpu: Gpu, *, gpus: int | None = None, most: int | None = None
) -> Iterator[Layout]:
    """Legal layouts, small ones first: within one node, then pipelines over whole nodes.

    gpus: only layouts of this many GPUs. most: none of more GPUs; default: four nodes.
    """
    most = most or gpu_nodes.MOST_OF_A_REPLICA * gpu.gpus_per_node
    for layout in sorted(
        set(_shapes(gpu, gpus)), key=lambda layout: (layout.gpus, layout.pipeline, layout.data, layout)
    ):
        if layout.gpus > most or gpus not in (None, layout.gpus):
            continue
        if not why_illegal(model, layout):
            yield layout


def _shapes(gpu: Gpu, gpus: int | None) -> Iterator[Layout]:
    """Layouts that a machine room allows, whatever the model: within the links' domain, or pipelines over whole nodes.

    No collective of a layer runs over the network: vLLM's guide has pipelines there, too.
    """
    node = gpu.gpus_per_node
    sizes = [size for size in (1, 2, 4, 8, 16, 32, 64) if size <= gpu.link_domain]
    for tensor in sizes:
        for data in (size for size in sizes if tensor * size <= gpu.link_domain):
            yield Layout(tensor=tensor, data=data)
            yield Layout(tensor=tensor, data=data, expert_parallel=True)
        for nodes in (1, 2, 4):
            if tensor <= node:
                yield Layout(tensor=tensor, pipeline=nodes * node // tensor)
    if gpus is not None and (gpus <= node or gpus % node == 0):
        for tensor in (size for size in range(1, min(gpus, node) + 1) if gpus % size == 0):
            yield Layout(tensor=tensor, pipeline=gpus // tensor)
