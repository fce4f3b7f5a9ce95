"""What a site may set for the ledger of its tenants' usage: where it is kept, for how long, and what tokens cost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from floor.problems import WrongValueError
from floor.spec import Day, Name, Spec

MILLION = 10**6
# Of any currency; what the longest request costs then still fits 64 bits in the ledger's units.
_MOST = 10**6


def millionths(value: float) -> int:
    """The number as it is written, in millionths."""
    return int(Decimal(repr(value)) * MILLION)


def no_finer(value: float) -> float:
    """The amount, which the ledger counts exactly. Raises WrongValueError for one that it cannot."""
    if Decimal(repr(value)) * MILLION % 1:
        coarser = millionths(value) / MILLION
        raise WrongValueError(
            "is finer than a millionth, in which the ledger counts exactly",
            got=f"{value!r}",
            allowed="at most six digits behind the point",
            fix=f"write {coarser:f}".rstrip("0").rstrip("."),
        )
    return value


_Exact = Annotated[float, Field(ge=0, le=_MOST), AfterValidator(no_finer)]


class TokenPricesSpec(Spec):
    """What a million tokens of a model cost, in the currency of the price book."""

    input: _Exact
    """Of prompts."""
    cached_input: _Exact | None = None
    """Of prompts, where the engine had computed them before; as `input` if not given."""
    output: _Exact
    """Of answers, reasoning included."""


class PriceVersionSpec(Spec):
    """What tokens cost from a day on, until the next version's."""

    since: Day
    """The day, in UTC, in quotes: "2026-12-01". A request costs what held when it began."""
    models: dict[Name, TokenPricesSpec]
    """By the models' own names. A model without a price costs nothing, and is counted. A version that another follows
    may name models that the site serves no longer: their last requests still arrive."""
    tiers: dict[Name, _Exact] = Field(default_factory=dict)
    """By what prices are multiplied, by tier: 0.5 is half. A tier that is not here pays them as they are."""
    gpu_hour: _Exact | None = None
    """Of one GPU of `dedicated` replicas, busy or not, in the place of their tenants' tokens of that model. A day of
    GPUs is billed if it began with this set. Replicas that scale are billed by tokens, as all are if not given."""

    @property
    def begins(self) -> int:
        """Seconds since 1970."""
        return int(datetime.fromisoformat(self.since).replace(tzinfo=UTC).timestamp())


@dataclass(frozen=True, kw_only=True)
class DedicatedGpus:
    """Of replicas that some tenants have for themselves."""

    model: str
    gpus: Fraction
    """Whole ones; a slice is its part."""
    tenants: tuple[str, ...]


class AbuseSpec(Spec):
    """When a key of a tenant may be abused, and what follows. The ledger looks every minute; each signal is a row of
    `sitectl key signals` and an alert."""

    suspend_on: tuple[Literal["networks", "refusals", "burst"], ...] = ()
    """Signals that suspend a key, by which it is refused until a person lifts that; by none if not given. It needs a
    gatekeeper and the directory of keys."""
    most_suspended_per_hour: int = Field(default=3, ge=1, le=20)
    """Keys that signals suspend within an hour; for what is above it there is an alert. A person suspends as many as
    there are."""
    never_suspended: tuple[Annotated[str, Field(pattern=r"^[a-z0-9-]+\.[a-z0-9-]+$")], ...] = ()
    """Keys, as TENANT.NAME, that no signal suspends: it is an alert alone. A person may suspend them."""
    networks: int = Field(default=20, ge=1, le=10_000)
    """`networks`: a key came from more networks than these within an hour: of /24, of /16 inside a site (private
    addresses), of /48 with IPv6. Gatekeepers name them; without one no network is seen."""
    refused_requests: int = Field(default=300, ge=1, le=10**9)
    """`refusals`: so many requests of a key within ten minutes are refused for what its client can end: limits of its
    key or tenant, models that it may not call, requests in a wrong form."""
    refused_percent: int = Field(default=50, ge=1, le=100)
    """And these are so much of its requests."""
    burst_requests: int = Field(default=1000, ge=1, le=10**9)
    """`burst`: a key has more requests than these within ten minutes."""
    burst_factor: int = Field(default=10, ge=2, le=10_000)
    """And more than so many times what it had in so long of its busiest hour, in the week up to a day ago. A key that
    worked in fewer than 12 hours of it has no burst."""

    @property
    def thresholds(self) -> dict[str, int]:
        """What the ledger looks by."""
        return self.model_dump(exclude={"suspend_on", "most_suspended_per_hour", "never_suspended"})


class UsageSpec(Spec):
    """The ledger: a row in a database for each request of a tenant, with its tokens and what they cost."""

    database_secret: str | None = None
    """Secret of the gateway's namespace whose key `url` is the address of a PostgreSQL database,
    `postgresql://USER:PASSWORD@HOST/NAME`. With it the ledger runs, and Envoy pods ship their requests to it."""
    currency: str = Field(default="EUR", pattern=r"^[A-Z]{3}$")
    """Of all prices: three capital letters, as ISO 4217 has them."""
    keep_months: int = Field(default=13, ge=1, le=240)
    """Months for which the row of a request is kept, and the keys of sums by hour. The sums stay."""
    keep_traces_days: int = Field(default=30, ge=1, le=7300)
    """Days for which rows have the prompt id and the trace id of their request, by which it is found in traces."""
    prices: tuple[PriceVersionSpec, ...] = ()
    """The price book, by the day from which each version holds, newest last. An earlier version may go once no request
    that began under it can arrive any more; rows that have arrived keep their cost."""

    idle_share: Annotated[float, Field(ge=0, le=1), AfterValidator(no_finer)] = 0.0
    """How much of what idle GPUs cost (`prices.gpu_hour` and power) is on bills: 0, the default, is none, and 1 all. A
    model's idle time is what is left of the tokens that it is proven to carry, by day, and each tenant that it answers
    pays an equal part. Models without a load, and those that scale, are not billed so. These tokens are of the declared
    mix: longer answers fill GPUs with fewer, and a day without replicas is idle. From its own bill a tenant can compute
    what all others used of the model together."""
    abuse: AbuseSpec | None = None
    """Signals of keys that may be abused; none if not given, and `{}` for all with the thresholds below."""

    @model_validator(mode="after")
    def _is_kept(self) -> UsageSpec:
        if self.database_secret is None and self.model_fields_set - {"database_secret"}:
            given = ", ".join(sorted(self.model_fields_set - {"database_secret"}))
            raise WrongValueError(
                f"{given} set, and without database_secret no ledger runs",
                fix="name the Secret with the database's address in database_secret, or take usage out",
            )
        return self

    @model_validator(mode="after")
    def _in_order(self) -> UsageSpec:
        for earlier, later in pairwise(self.prices):
            if later.since <= earlier.since:
                what = "twice" if later.since == earlier.since else f"behind {earlier.since}"
                raise WrongValueError(
                    f"prices have {later.since} {what}",
                    allowed="each day once, newest last",
                    fix="put the versions in the order of their days, one a day",
                )
        return self
