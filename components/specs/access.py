"""What a site may set for its tenants and their keys, and how the Secrets of keys are called."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Literal

from pydantic import Field

from components.specs.limits import LimitsSpec, MostSpec
from components.specs.portal import PeopleSpec
from floor.spec import MOST_VALUES, Name, Spec

# Of the digest in a Secret's name.
_DIGITS = 10


class KeySpec(Spec):
    """One API key of a tenant."""

    rotation: int = Field(default=1, ge=1)
    """Increase it to replace the key; the old one stops working as soon as `up` is done."""
    sha256: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    """SHA-256 of a key that you made, 64 hexadecimal digits in lower case: the program makes none, and no one but you
    has it. Needs `callers.decided_by: gatekeeper`. `sitectl key new` prints a key and this."""
    limits: MostSpec | None = None
    """Most that this key uses, of what its tenant may."""


class TenantSpec(Spec):
    """A team that uses models."""

    models: tuple[str, ...] = Field(min_length=1, max_length=MOST_VALUES)
    """Names of the models that its keys may call."""
    keys: dict[Name, KeySpec] = Field(default_factory=dict, max_length=MOST_VALUES)
    """Keys by purpose, so that one can be replaced while the others go on. None are needed where a directory has keys
    (`callers.database_secret`)."""
    tier: str | None = None
    """The tier of its requests, one of `tiers`; without one their priority is 0."""
    plan: str | None = None
    """How much it may use, one of `plans`; unlimited without one."""
    limits: LimitsSpec | None = None
    """Limits of its own, each in the place of its plan's."""
    people: PeopleSpec | None = None
    """Who may use its pages of the portal; operators only if not given."""
    model_limits: dict[Name, MostSpec] = Field(default_factory=dict, max_length=MOST_VALUES)
    """Most that it uses of one of its models, of what it may in all."""
    prefix_cache: Literal["own", "shared"] | None = None
    """Where a gatekeeper decides: whether the engines keep its prompts apart from those of other tenants (`own`), so
    that no one learns by timing what it has asked, or may find them for all tenants that share, which is faster for
    those with the same long system prompt. `own` if not given; it refuses `/anthropic/v1/messages`, where the
    translation loses the salt."""
    overflow: Literal["accept", "refuse"] = "refuse"
    """What its requests get while a model with `overflow` is full or away: `accept` an answer of the other model, or
    `refuse` any but that of the model that they ask for."""


def secret_name(tenant: str, spec: TenantSpec) -> str:
    """Secret that holds a tenant's keys: a name for each set of keys, as the Secret of a set never changes."""
    keys = {key: key_spec.rotation for key, key_spec in spec.keys.items()}
    digest = hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()
    return f"keys-{tenant}-{digest[:_DIGITS]}"


def tenant_of(secret: str) -> str | None:
    """Tenant of a Secret of keys, out of its name; None for another Secret."""
    parts = re.fullmatch(rf"keys-(.+?)(-[0-9a-f]{{{_DIGITS}}})?", secret)
    return parts[1] if parts else None
