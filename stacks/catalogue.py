"""The models that a site can order by name: one YAML file each in `stacks/catalogue/`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field

from components.base import Spec

FOLDER = Path(__file__).parent / "catalogue"


class GroupedQueryAttention(Spec):
    """Every layer keeps keys and values for `kv_heads` heads of `head_size` elements."""

    kind: Literal["gqa"]
    """Grouped-query attention."""
    kv_heads: int = Field(gt=0)
    """Key-value heads of a layer (num_key_value_heads)."""
    head_size: int = Field(gt=0)
    """Elements of one head (head_dim)."""


class LatentAttention(Spec):
    """Multi-head latent attention: every layer keeps one compressed vector a token, on every tensor-parallel rank."""

    kind: Literal["mla"]
    """Multi-head latent attention."""
    latent: int = Field(gt=0)
    """Elements of the compressed key-value vector (kv_lora_rank)."""
    rope: int = Field(gt=0)
    """Elements of the positional part (qk_rope_head_dim)."""
    indexer_bytes: int = Field(default=0, ge=0)
    """Bytes a token and layer that a sparse-attention indexer keeps beside."""


class CatalogueModel(Spec):
    """The figures of one model, as published."""

    source: str
    """Where the figures come from."""
    repository: str
    """Name at the hub, `owner/model`."""
    licence: str
    """Licence of the weights, by its SPDX name where it has one."""
    weight_bytes: float = Field(gt=0)
    """Bytes of the published weight files."""
    parameters: float = Field(gt=0)
    """All parameters of the model."""
    active_parameters: float = Field(gt=0)
    """Parameters that one token passes through; equals `parameters` for a dense model."""
    weight_bits: int = Field(gt=0)
    """Bits of one parameter as published; decides what a decode step reads."""
    layers: int = Field(gt=0)
    """Layers that keep keys and values."""
    attention: Annotated[GroupedQueryAttention | LatentAttention, Field(discriminator="kind")]
    """What a layer keeps of each token; the size of the KV cache follows from it."""
    max_context_tokens: int = Field(gt=0)
    """Longest prompt plus answer that the model was made for (max_position_embeddings)."""
    gpus_per_replica: int = Field(gt=0)
    """Tensor-parallel size that the model is served with unless a site says otherwise."""
    engine_flags: tuple[str, ...] = ()
    """vLLM flags that this model needs (parsers of its tool calls and reasoning)."""


def names() -> list[str]:
    """Names that a site may write under `catalogue:`, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load(name: str) -> CatalogueModel:
    """The model of that file name. Raises FileNotFoundError for a name that `names` does not list."""
    return CatalogueModel.model_validate(yaml.safe_load((FOLDER / f"{name}.yaml").read_text()))
