"""What a site may set for a model's adapters: small weights beside its own, with names of their own."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from floor.spec import MOST_VALUES, Name, Spec

MOST_ADAPTERS = 1000
"""Of a model: what its pods' definition and the files of the gatekeepers have room for."""
MOST_PLACED = 16
"""Those that have a place on each GPU where a site does not state how many do."""
MOST_RESIDENT = 256
"""Places that a site may state; the proof bounds them by the GPU's memory."""
# Of vLLM 0.32 (config/lora.py, MaxLoRARanks).
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What --max-lora-rank takes; an adapter may have any rank up to it."""


class AdapterSpec(Spec):
    """A LoRA adapter of a model, as PEFT writes it. Its name in the site is what clients send as `model`."""

    repository: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}$")
    """Name of its repository at the hub, `owner/name`; it comes from where the model's weights come from."""
    revision: str = Field(pattern=r"^[0-9a-f]{40}$")
    """Commit of that repository, 40 hexadecimal digits."""
    rank: int = Field(ge=1, le=RANKS[-1])
    """Rank of its matrices, `r` of its adapter_config.json. A model's largest, rounded up to one that vLLM has room
    for (1, 8, 16, 32, 64, 128, 256, 320 or 512), is what each of its adapters takes."""
    target_modules: tuple[str, ...] = Field(min_length=1, max_length=16)
    """Projections that it changes, `target_modules` of its adapter_config.json, such as `[q_proj, v_proj]`."""
    tenants: tuple[Name, ...] | None = Field(default=None, min_length=1, max_length=MOST_VALUES)
    """Tenants that may call it, of those that may call its model; all of these without it."""


@dataclass(frozen=True, kw_only=True)
class AdapterGrant:
    """An adapter, and who may call it."""

    model: str
    tenants: tuple[str, ...] | None
    """None for all that may call the model."""

    def opens_to(self, tenant: str) -> bool:
        """Whether a tenant that may call the model may call it."""
        return self.tenants is None or tenant in self.tenants
