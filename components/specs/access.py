"""What a site may set for its tenants and their keys."""

from __future__ import annotations

from pydantic import Field

from floor.spec import MOST_VALUES, Name, Spec


class KeySpec(Spec):
    """One API key of a tenant."""

    rotation: int = Field(default=1, ge=1)
    """Increase it to replace the key; the old one stops working as soon as `up` is done."""


class TenantSpec(Spec):
    """A team that uses models."""

    models: tuple[str, ...] = Field(min_length=1, max_length=MOST_VALUES)
    """Names of the models that its keys may call."""
    keys: dict[Name, KeySpec] = Field(min_length=1, max_length=MOST_VALUES)
    """Keys by purpose, so that one can be replaced while the others go on."""
    tier: str | None = None
    """The tier of its requests, one of `tiers`; without one their priority is 0."""
