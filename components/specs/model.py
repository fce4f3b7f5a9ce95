"""What a site may set for a model."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

from components.specs.adapters import MOST_ADAPTERS, AdapterSpec
from components.specs.inference_pool import InferencePoolSpec
from components.specs.model_server import ModelServerSpec
from floor.problems import WrongValueError
from floor.spec import MOST_SECONDS, Name, Spec
from floor.stateful import Keeping

# Scripts, logs and engines take an alias as it is, so nothing of JSON's or Lua's own may be in it.
_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}")


def _plain_alias(alias: str) -> str:
    if not _ALIAS.fullmatch(alias):
        raise WrongValueError(
            "this is no name of a model",
            allowed="1 to 128 letters, digits and . _ : / @ + -, not one of these first",
            fix="write it as clients do, like llama-3.3-70b or meta-llama/Llama-3.3-70B-Instruct",
        )
    return alias


Alias = Annotated[
    str, AfterValidator(_plain_alias), WithJsonSchema({"type": "string", "pattern": f"^{_ALIAS.pattern}$"})
]


class ModelSpec(Spec):
    """A model that a site serves, under the name that its clients use."""

    catalogue: str
    """Name of the model's file in the catalogue."""
    aliases: tuple[Alias, ...] = Field(default=(), max_length=16)
    """Further names that clients may call it by, such as `llama-3.3-70b`; it is listed under each. Answers carry its
    own name, and tenants, tiers and limits know that one alone."""
    adapters: dict[Name, AdapterSpec] = Field(default_factory=dict, max_length=MOST_ADAPTERS)
    """LoRA adapters by the name that clients call them; answers carry that name. Each replica has all of them, so that
    another one restarts the replicas, one after the other. Tiers, limits and usage count an adapter as its model."""
    server: ModelServerSpec = Field(default_factory=ModelServerSpec)
    """How the model is served."""
    pool: InferencePoolSpec = Field(default_factory=InferencePoolSpec)
    """How requests are spread over its replicas."""
    volume: Keeping | None = None
    """`protected` or `disposable`, if it differs from `storage.volumes`, which is for all models."""
    request_timeout_s: int = Field(default=3600, ge=60, le=MOST_SECONDS)
    """Longest time from request to last token."""
