"""What a site may set for how callers are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import model_validator

from floor.problems import WrongValueError
from floor.spec import Spec
from floor.stateful import Keeping


class CallersSpec(Spec):
    """Who decides about a caller: whose key it is, which models, limits and tier its tenant has."""

    decided_by: Literal["gateway", "gatekeeper"] = "gateway"
    """`gateway`: Envoy Gateway compares keys, out of one Secret per tenant. `gatekeeper`: a service that Envoy asks; it
    knows keys by their digests, and a tenant is no object of the cluster."""
    keep_both: bool = False
    """true for one `up`, on the way from one to the other: what the other decides by stays, as it still decides about
    requests of connections that are older than the change."""
    database_secret: str | None = None
    """Secret of the gateway's namespace whose key `url` is the address of a PostgreSQL database,
    `postgresql://USER:PASSWORD@HOST/NAME`. With it the directory runs, in which `sitectl key` makes and revokes keys
    within seconds. Without it only the keys of this file work."""
    pepper: Keeping = "protected"
    """Whether the secret under which the directory's keys are hashed may be deleted, and all of these keys with it."""

    @model_validator(mode="after")
    def _directory_is_read(self) -> CallersSpec:
        if self.database_secret is not None and self.decided_by == "gateway" and not self.keep_both:
            raise WrongValueError(
                "database_secret is set, and decided_by gateway reads no directory",
                fix="set decided_by to gatekeeper, or take database_secret out",
            )
        return self


@dataclass(frozen=True, kw_only=True)
class Canary:
    """A second revision of a model, and who gets it, as services/gatekeeper/canary.go reads it."""

    revision: str
    percent: int
    sticky: str
    pinned: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Dedicated:
    """Replicas of a model that a tenant has in the place of all others', as services/gatekeeper/dedicated.go reads
    it."""

    revision: str
    when_away: str


@dataclass(frozen=True, kw_only=True)
class Overflow:
    """Where requests go that a model has no room for, as services/gatekeeper/overflow.go reads it."""

    to: str
    context: int
    """Tokens of a prompt with its answer that this model takes."""


@dataclass(frozen=True, kw_only=True)
class FillingPool:
    """Where to read how full a model is, and what counts as full."""

    metrics: str
    """Host and port of the pickers' metrics, by a name that has the address of each."""
    queue: int
    """Requests that wait in a replica, on average."""
    cache: float
    """Share of a replica's cache in use, on average."""


@dataclass(frozen=True, kw_only=True)
class SharedCache:
    """The KV cache of replicas of which a tenant may hold a share, as services/gatekeeper/holds.go reads it."""

    tokens: int
    """That these replicas hold."""
    context: int
    """Tokens of the longest prompt with its answer."""
    answer: int
    """Most tokens of an answer whose client gives no length."""
    room: int = 0
    """Tokens that the requests of all tenants together may hold; 0 for no such limit."""
    expected: int = 0
    """Most tokens that an answer counts with there."""
