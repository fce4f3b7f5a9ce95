"""Parameters and bytes of a model by part, from its geometry. Norms and biases are left out (below 0.1 %)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stacks.facts import catalogue
from stacks.facts.catalogue import CatalogueModel, Experts, FeedForward, Mixer, Part

# Stored bits of one parameter with its scales: OCP MX (one 8-bit scale for 32), NVFP4 (one for 16), int4 groups of 32
# with 16-bit scales, FP8 with one 32-bit scale for 128 x 128 elements.
FORMAT_BITS = {"none": 16.0, "fp8": 8.0, "fp8-block": 8 + 32 / 128**2, "mxfp4": 4.25, "nvfp4": 4.5, "int4": 4.5}


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """A model by part, all layers together."""

    mixers: float
    """Attention and state-space projections that tensor parallelism divides."""
    replicated: float
    """Projections that every tensor-parallel rank keeps whole (MLA's compressions, its indexer)."""
    routers: float
    """What chooses experts: whole on every rank, and never quantised."""
    dense: float
    experts: float
    """Routed experts."""
    shared: float
    """Shared experts."""
    embeddings: float
    """Input and output embeddings."""
    vision: float
    """Vision tower: whole on every rank."""
    head: float
    """Output embedding alone; what a step that yields a token reads."""
    draft: float
    """Draft layers: in the files, not in memory."""

    @property
    def _loaded(self) -> float:
        attention = self.mixers + self.replicated
        forward = self.routers + self.dense + self.experts + self.shared
        return attention + forward + self.embeddings + self.vision


@dataclass(frozen=True, kw_only=True)
class Parameters(_Parts):
    """Counts of parameters."""

    active_experts: float
    """Of the routed experts, what one token passes."""

    @property
    def total(self) -> float:
        """Without draft layers."""
        return self._loaded

    @property
    def active(self) -> float:
        """Parameters that one token passes; of the embeddings the output's alone."""
        attention = self.mixers + self.replicated
        return attention + self.routers + self.dense + self.active_experts + self.shared + self.head


@dataclass(frozen=True, kw_only=True)
class WeightBytes(_Parts):
    """Bytes as stored, but for numbers of 32 bits, which are loaded in 16."""

    widened: float = 0
    """Bytes that the files have more of these."""

    @property
    def loaded(self) -> float:
        """Bytes that the GPUs of one replica hold if nothing is replicated."""
        return self._loaded

    @property
    def files(self) -> float:
        """Bytes of the weight files."""
        return self.loaded + self.draft + self.widened


def parameters(model: CatalogueModel) -> Parameters:
    """Counts of `model`, from its geometry."""
    divided = replicated = 0.0
    for mixer in model.mixers.values():
        split, whole = mixer_parameters(mixer, model.hidden)
        divided += mixer.count * split
        replicated += mixer.count * whole
    dense = experts = active = shared = routers = 0.0
    for layer in model.feed_forward.values():
        matrices = layer.matrices * model.hidden * layer.width
        if isinstance(layer, Experts):
            experts += layer.count * layer.experts * matrices
            active += layer.count * layer.chosen * matrices
            shared += layer.count * layer.matrices * model.hidden * layer.shared_width
            routers += layer.count * layer.experts * model.hidden
        else:
            dense += layer.count * matrices
    table = float(model.vocabulary * model.hidden)
    return Parameters(
        mixers=divided,
        replicated=replicated,
        routers=routers,
        dense=dense,
        experts=experts,
        shared=shared,
        embeddings=table * (1 if model.tied else 2),
        vision=model.vision_parameters,
        head=table if model.task == "generate" else 0.0,
        draft=_draft(model),
        active_experts=active,
    )


def weight_bytes(model: CatalogueModel) -> WeightBytes:
    """Bytes by part, as the published files store them."""
    counts = parameters(model)

    def size(part: Part, number: float) -> float:
        return number * part_bits(model, part) / 8

    sizes = WeightBytes(
        mixers=size("mixers", counts.mixers),
        replicated=size("mixers", counts.replicated),
        routers=size("embeddings", counts.routers),
        dense=size("dense", counts.dense),
        experts=size("experts", counts.experts),
        shared=size("shared", counts.shared),
        embeddings=size("embeddings", counts.embeddings),
        vision=size("embeddings", counts.vision),
        head=size("embeddings", counts.head),
        draft=size("experts" if counts.experts else "dense", counts.draft),
    )
    is_wide = model.quantisation.format == "none" and model.quantisation.unquantised == "float32"
    return replace(sizes, widened=sizes.files) if is_wide else sizes


def part_bits(model: CatalogueModel, part: Part) -> float:
    """Stored bits of one parameter of that part, scales included."""
    return FORMAT_BITS[model.quantisation.format] if part in model.quantisation.parts else FORMAT_BITS["none"]


def mixer_parameters(mixer: Mixer, hidden: int) -> tuple[float, float]:
    """Of one layer: parameters that tensor parallelism divides, and those that every rank keeps whole."""
    match mixer:
        case catalogue.FullAttention():
            queries = mixer.heads * (2 if mixer.gated else 1)
            return hidden * mixer.head_size * (queries + 2 * mixer.kv_heads + mixer.heads), 0.0
        case catalogue.SlidingAttention():
            return hidden * mixer.head_size * (2 * mixer.heads + 2 * mixer.kv_heads), 0.0
        case catalogue.Encoder():
            return 4 * hidden * mixer.head_size * mixer.heads, 0.0
        case catalogue.LatentAttention():
            size = mixer.nope + mixer.rope
            queries = (mixer.query_rank or hidden) * mixer.heads * size
            whole = hidden * (mixer.latent + mixer.rope) + mixer.query_rank * hidden
            if mixer.indexer_heads:
                index = mixer.query_rank * mixer.indexer_heads * mixer.indexer_size
                whole += index + hidden * (mixer.indexer_size + mixer.indexer_heads)
            values = mixer.latent * mixer.heads * (mixer.nope + mixer.value_size)
            return queries + values + mixer.heads * mixer.value_size * hidden, float(whole)
        case catalogue.DeltaNet():
            keys, values = mixer.key_heads * mixer.key_size, mixer.value_heads * mixer.value_size
            projections = hidden * (2 * keys + 2 * values + 2 * mixer.value_heads) + values * hidden
            return projections + mixer.convolution * (2 * keys + values), 0.0
        case catalogue.Mamba():
            inner, groups = mixer.heads * mixer.head_size, 2 * mixer.groups * mixer.state
            projections = hidden * (2 * inner + groups + mixer.heads) + inner * hidden
            return projections + mixer.convolution * (inner + groups), 0.0


def _draft(model: CatalogueModel) -> float:
    """One layer of the model's last kind for each draft layer, and the projection that joins two vectors."""
    if not model.draft_layers:
        return 0.0
    kind, last = draft_kinds(model)
    mixer = sum(mixer_parameters(kind, model.hidden))
    block = last.matrices * model.hidden
    layer = block * last.width
    if isinstance(last, Experts):
        layer = block * (last.experts * last.width + last.shared_width) + last.experts * model.hidden
    return model.draft_layers * (mixer + layer + joining_parameters(model))


def draft_kinds(model: CatalogueModel) -> tuple[Mixer, FeedForward]:
    """Of what a draft layer consists: what the model's last layer does."""
    return list(model.mixers.values())[-1], list(model.feed_forward.values())[-1]


def joining_parameters(model: CatalogueModel) -> float:
    """A draft layer's projection of the last hidden vector and the next token's embedding to one vector."""
    return 2.0 * model.hidden**2
