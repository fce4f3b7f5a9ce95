"""The models that a site can order by name: one YAML file each in `stacks/facts/catalogue/`.

A file holds the geometry of a model as its config.json has it. Parameters, bytes, cache and speed are derived from it
by `stacks.proof`; `sitectl catalogue add` writes such a file.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from floor.problems import WrongValueError
from stacks.facts.records import Record, read_facts

FOLDER = Path(__file__).parent / "catalogue"

# Flags that `vllm_engine` renders from keys of an entry.
_KEYS_OF_FLAGS = {
    "--revision": "revision",
    "--code-revision": "revision",
    "--tokenizer-revision": "revision",
    "--trust-remote-code": "remote_code",
}

Part = Literal["mixers", "dense", "experts", "shared", "embeddings"]
Task = Literal["generate", "embed", "rerank"]


class FullAttention(Record):
    """Layers that keep keys and values of the whole context; MHA, GQA and MQA differ by `kv_heads` alone."""

    kind: Literal["full"]
    """Attention over the whole context."""
    count: int = Field(gt=0)
    """Layers of this kind."""
    heads: int = Field(gt=0)
    """Query heads (num_attention_heads)."""
    kv_heads: int = Field(gt=0)
    """Key-value heads (num_key_value_heads)."""
    head_size: int = Field(gt=0)
    """Elements of one head (head_dim)."""
    gated: bool = False
    """Whether the query projection carries an output gate of the same size (attn_output_gate)."""


class SlidingAttention(Record):
    """Layers that keep the last `window` tokens of a request, or the chunk that it is in."""

    kind: Literal["sliding"]
    """Attention over a window."""
    count: int = Field(gt=0)
    """Layers of this kind."""
    heads: int = Field(gt=0)
    """Query heads (num_attention_heads)."""
    kv_heads: int = Field(gt=0)
    """Key-value heads (num_key_value_heads)."""
    head_size: int = Field(gt=0)
    """Elements of one head (head_dim)."""
    window: int = Field(gt=0)
    """Tokens that a layer looks back at (sliding_window, attention_chunk_size)."""


class LatentAttention(Record):
    """Multi-head latent attention: one compressed vector a token, kept on every tensor-parallel rank."""

    kind: Literal["latent"]
    """Multi-head latent attention (MLA)."""
    count: int = Field(gt=0)
    """Layers of this kind."""
    heads: int = Field(gt=0)
    """Query heads (num_attention_heads)."""
    latent: int = Field(gt=0)
    """Elements of the compressed key-value vector (kv_lora_rank)."""
    rope: int = Field(gt=0)
    """Elements of the positional part (qk_rope_head_dim)."""
    nope: int = Field(gt=0)
    """Elements of a head without position (qk_nope_head_dim)."""
    value_size: int = Field(gt=0)
    """Elements of a head's value (v_head_dim)."""
    query_rank: int = Field(default=0, ge=0)
    """Elements of the compressed query (q_lora_rank); 0 when queries are projected at once."""
    indexer_heads: int = Field(default=0, ge=0)
    """Heads of the sparse-attention indexer (index_n_heads); 0 for attention over everything."""
    indexer_size: int = Field(default=0, ge=0)
    """Elements of an indexer head (index_head_dim)."""
    indexer_tokens: int = Field(default=0, ge=0)
    """Tokens that the indexer chooses for attention (index_topk)."""


StateBits = Literal[16, 32]


class DeltaNet(Record):
    """Gated delta-rule linear attention: a state of constant size a request."""

    kind: Literal["delta"]
    """Linear attention (gated delta net)."""
    count: int = Field(gt=0)
    """Layers of this kind."""
    key_heads: int = Field(gt=0)
    """linear_num_key_heads."""
    key_size: int = Field(gt=0)
    """linear_key_head_dim."""
    value_heads: int = Field(gt=0)
    """linear_num_value_heads."""
    value_size: int = Field(gt=0)
    """linear_value_head_dim."""
    convolution: int = Field(gt=0)
    """linear_conv_kernel_dim."""
    state_bits: StateBits = 32
    """Bits of a number of the state: mamba_ssm_dtype; 16 where the engine takes the weights' type instead."""


class Mamba(Record):
    """Mamba-2 state-space layers: a state of constant size a request."""

    kind: Literal["mamba"]
    """State-space layers (Mamba-2)."""
    count: int = Field(gt=0)
    """Layers of this kind."""
    heads: int = Field(gt=0)
    """mamba_num_heads."""
    head_size: int = Field(gt=0)
    """mamba_head_dim."""
    groups: int = Field(gt=0)
    """n_groups."""
    state: int = Field(gt=0)
    """ssm_state_size."""
    convolution: int = Field(gt=0)
    """conv_kernel."""
    state_bits: StateBits = 32
    """Bits of a number of the state: mamba_ssm_cache_dtype."""


class Encoder(Record):
    """Attention in both directions over a whole text: nothing is kept after the answer."""

    kind: Literal["encoder"]
    """Bidirectional attention without a cache."""
    count: int = Field(gt=0)
    """Layers of this kind."""
    heads: int = Field(gt=0)
    """Heads (num_attention_heads)."""
    head_size: int = Field(gt=0)
    """Elements of one head."""


class DenseFeedForward(Record):
    """Feed-forward layers that every token passes whole."""

    kind: Literal["dense"]
    """One feed-forward block."""
    count: int = Field(gt=0)
    """Layers of this kind."""
    width: int = Field(gt=0)
    """Elements of the inner layer (intermediate_size)."""
    matrices: int = Field(default=3, ge=2, le=3)
    """3 with a gate (SwiGLU), 2 without."""


class Experts(Record):
    """Feed-forward layers of which a token passes a few."""

    kind: Literal["experts"]
    """Mixture of experts."""
    count: int = Field(gt=0)
    """Layers of this kind."""
    experts: int = Field(gt=0)
    """Routed experts of a layer."""
    chosen: int = Field(gt=0)
    """Routed experts that one token passes (num_experts_per_tok)."""
    width: int = Field(gt=0)
    """Inner elements of one expert (moe_intermediate_size)."""
    shared_width: int = Field(default=0, ge=0)
    """Inner elements of all shared experts together."""
    matrices: int = Field(default=3, ge=2, le=3)
    """3 with a gate (SwiGLU), 2 without."""


Mixer = Annotated[
    FullAttention | SlidingAttention | LatentAttention | DeltaNet | Mamba | Encoder, Field(discriminator="kind")
]
FeedForward = Annotated[DenseFeedForward | Experts, Field(discriminator="kind")]


class Quantisation(Record):
    """How the published weights are stored; what is not named has 16 bits."""

    format: Literal["none", "fp8", "fp8-block", "mxfp4", "nvfp4", "int4"] = "none"
    """Storage of the quantised parts; fp8-block has one scale for 128 x 128 elements."""
    parts: tuple[Part, ...] = ()
    """Parts of the model with this storage."""
    unquantised: Literal["bfloat16", "float32"] = "bfloat16"
    """Type in the files of a model without quantised parts. float32 takes twice the room there, and vLLM loads it in 16
    bits."""


class VisionTower(Record):
    """What sees pictures; when the engine starts, it runs as many of the largest ones as a step has room for."""

    patches: int = Field(gt=0)
    """Patches of the largest picture."""
    tokens: int = Field(gt=0)
    """Vectors that the text model gets of it."""
    pixels: int = Field(gt=0)
    """Values of a patch: its pixels, times colours and frames."""
    hidden: int = Field(gt=0)
    """Elements of a patch's vector (hidden_size of vision_config)."""
    width: int = Field(gt=0)
    """Elements of a patch in the inner layer (intermediate_size of vision_config)."""
    matrices: int = Field(default=2, ge=2, le=3)
    """3 with a gate (SwiGLU), 2 without."""


class Published(Record):
    """The maker's figures, to compare the derived figures with."""

    parameters: float = Field(gt=0)
    """All parameters, without draft layers."""
    active_parameters: float = Field(gt=0)
    """Parameters that one token passes through."""
    source: str
    """Where the maker publishes them."""


class RemoteCode(Record):
    """Python of the model's repository that the engine runs: those who write there run code on the GPUs' nodes."""

    reason: str = Field(min_length=10)
    """Why the engine cannot do without it."""
    files: tuple[str, ...] = Field(min_length=1)
    """Its files."""


class CatalogueModel(Record):
    """The figures of one model, as published."""

    repository: str
    """Name at the hub, `owner/model`."""
    revision: str = Field(default="", pattern=r"^([0-9a-f]{40})?$")
    """Commit of that repository which is served; empty where none was looked up."""
    licence: str
    """Licence of the weights: its SPDX name, or `LicenseRef-` and the name that its maker gives it."""
    engine_version: str = Field(default="", pattern=r"^([0-9]+\.[0-9]+\.[0-9]+)?$")
    """First version of vLLM that serves the model, by its documentation; empty where none was looked up."""
    remote_code: RemoteCode | None = None
    """Code of the repository that vLLM needs; without it, it runs none."""
    task: Task = "generate"
    """What clients ask of it."""
    hidden: int = Field(gt=0)
    """Elements of a token's vector (hidden_size)."""
    vocabulary: int = Field(gt=0)
    """Tokens of the vocabulary (vocab_size)."""
    tied: bool = False
    """Whether input and output embeddings are one matrix, or there is no output embedding."""
    mixers: dict[str, Mixer]
    """What mixes tokens, by a freely chosen name: attention of one or several kinds, state-space layers."""
    feed_forward: dict[str, FeedForward]
    """Feed-forward layers, by a freely chosen name."""
    attention_sinks: bool = False
    """Whether every head has a learned sink, which few attention kernels take (gpt-oss)."""
    pattern: str = ""
    """The order of different layers, as text."""
    draft_layers: int = Field(default=0, ge=0)
    """Layers for speculative decoding that are in the files and not loaded by default (num_nextn_predict_layers)."""
    vision_parameters: float = Field(default=0, ge=0)
    """Parameters of a vision tower and of what joins it to the model, from its vision_config; stored as bfloat16."""
    vision_tower: VisionTower | None = None
    """Size of the vision tower and of its largest picture; without it, what pictures take at a start is not counted."""
    quantisation: Quantisation = Field(default_factory=Quantisation)
    """How the published weights are stored."""
    file_form: Literal["safetensors", "bin"] = "safetensors"
    """Form of the weights' files; vLLM's streamer reads safetensors alone."""
    max_context_tokens: int = Field(gt=0)
    """Longest prompt plus answer that the model was made for (max_position_embeddings)."""
    engine_flags: tuple[str, ...] = ()
    """vLLM flags that this model needs (parsers of its tool calls and reasoning, its task)."""
    published: Published
    """The maker's figures, to compare the derived figures with."""
    sources: dict[str, str] = Field(min_length=1)
    """Where each fact was looked up: `geometry`, `licence`, `revision`, `engine_version`, and other notes."""

    @field_validator("sources")
    @classmethod
    def _says_where_from(cls, sources: dict[str, str]) -> dict[str, str]:
        if missing := sorted({"geometry", "licence", "revision", "engine_version"} - sources.keys()):
            raise WrongValueError(
                f"holds no {', '.join(missing)}", fix="name where it was looked up, or write `not looked up: ` and why"
            )
        return sources

    @field_validator("engine_flags")
    @classmethod
    def _has_no_key_of_its_own(cls, flags: tuple[str, ...]) -> tuple[str, ...]:
        for flag in flags:
            if key := _KEYS_OF_FLAGS.get(flag.partition("=")[0].split(" ")[0]):
                raise WrongValueError(f"{flag} has a key of its own", fix=f"take it out, and write {key}")
        return flags


def names() -> list[str]:
    """Names that a site may write under `catalogue:`, sorted."""
    files = (entry.name for entry in os.scandir(FOLDER))
    return sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml"))


@cache
def load(name: str) -> CatalogueModel:
    """The model of that file name. Raises SiteError for a wrong file, and for a name that `names` does not list."""
    return read_facts(FOLDER / f"{name}.yaml", CatalogueModel)
