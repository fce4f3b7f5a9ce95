"""What a site may set for how much its tenants use, and which limits there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from components.specs.usage import no_finer
from floor.problems import WrongValueError
from floor.spec import Spec

MOST_COUNTED = 2**32 - 1
"""Of requests or tokens in one window: Envoy Gateway's fields and the counters are 32 bits wide."""
_Most = Annotated[int, Field(ge=1, le=MOST_COUNTED)]
Unit = Literal["Minute", "Hour", "Day"]


@dataclass(frozen=True)
class CountedUse:
    """One sort of limit: what is counted, in windows of one unit that begin at its full hours, minutes or days, UTC."""

    key: str
    unit: Unit
    counts_tokens: bool


LIMITS = (
    CountedUse("requests_per_minute", "Minute", counts_tokens=False),
    CountedUse("tokens_per_minute", "Minute", counts_tokens=True),
    CountedUse("tokens_per_hour", "Hour", counts_tokens=True),
    CountedUse("tokens_per_day", "Day", counts_tokens=True),
)

GUARANTEE = "guaranteed_tokens_per_minute"
BOUNDS = ("parallel_requests", "max_answer_tokens", "max_prompt_tokens")
"""Limits of what is under way and of single requests, which a gatekeeper holds."""
CACHE_SHARE = "kv_cache_share"
"""One more of these, which is no whole number."""
SPEND = "spend_per_month"
BUDGETS = (SPEND, "tokens_per_month")
"""Limits of a calendar month, UTC, which a gatekeeper holds by what the ledger counts."""
# Of tokens, and of any currency, in a month: a double, in which they are handed on, has them exactly.
_MOST_TOKENS, _MOST_SPENT = 10**15, 10**9


class MostSpec(Spec):
    """Most that may be used. Tokens are those of prompt and answer together."""

    requests_per_minute: _Most | None = None
    """Requests that may begin in one minute; unlimited if not given."""
    tokens_per_minute: _Most | None = None
    """Tokens in one minute; unlimited if not given. An answer counts when it ends: the requests under way when the
    limit is reached go on, and what they use is beyond it."""
    tokens_per_hour: _Most | None = None
    """Tokens in one hour; unlimited if not given."""
    tokens_per_day: _Most | None = None
    """Tokens in one day, which begins at 0:00 UTC; unlimited if not given."""

    @property
    def given(self) -> dict[str, int]:
        """The limits in windows of time that are set, by their key."""
        return self._set(limit.key for limit in LIMITS)

    def _set(self, keys: Iterable[str]) -> dict[str, Any]:
        values = dict(self)
        return {key: most for key in keys if (most := values[key]) is not None}

    @model_validator(mode="after")
    def _limits_something(self) -> MostSpec:
        if all(most is None for _, most in self):
            raise WrongValueError(
                "sets no limit",
                allowed=f"at least one of {', '.join(type(self).model_fields)}",
                fix="set one of them, or take the section out: without it a tenant is unlimited",
            )
        return self


class LimitsSpec(MostSpec):
    """Most that one tenant uses, over all of its keys and models. Tokens are those of prompt and answer together."""

    parallel_requests: _Most | None = None
    """Requests that may be under way at once, over all gateways; the next one gets 429. Only a gatekeeper holds it."""
    max_answer_tokens: _Most | None = None
    """Longest answer, in tokens: a request that asks for more, or gives no length, is answered up to here. Of several
    answers to one request it is the length of all. Only a gatekeeper holds it."""
    max_prompt_tokens: _Most | None = None
    """Longest prompt, estimated as a token for 4 bytes of the request; longer ones get 400. Only a gatekeeper holds
    it."""
    kv_cache_share: Annotated[float, Field(ge=0.001, le=1)] | None = None
    """Share of the KV cache of each of its models that its requests under way may hold, over all gateways; the next one
    gets 429. A request counts with its prompt, estimated as for max_prompt_tokens, and its longest answer, until it has
    ended; one that is larger than the share goes alone. Only a gatekeeper holds it."""
    tokens_per_month: Annotated[int, Field(ge=1, le=_MOST_TOKENS)] | None = None
    """Tokens in one calendar month, UTC, by the ledger's rows; further requests get 429. It needs a gatekeeper and
    `usage`."""
    spend_per_month: Annotated[float, Field(gt=0, le=_MOST_SPENT), AfterValidator(no_finer)] | None = None
    """What it uses in one calendar month, UTC, in `usage.currency`, at the prices of `usage.prices`; further requests
    get 429. It needs a gatekeeper, `usage` and a price of each model of the tenant."""
    guaranteed_tokens_per_minute: _Most | None = None
    """Tokens per minute that are planned for, on each of the tenant's models: a preview refuses guarantees that a
    model is not proven to carry together, at the slow end of its band. It counts and refuses no request."""

    @property
    def bounds(self) -> dict[str, int]:
        """The limits that a gatekeeper holds, by their key, but for the share of caches."""
        return self._set(BOUNDS)

    @property
    def budgets(self) -> dict[str, float]:
        """The limits of a month, by their key: tokens, and money in the currency of the ledger."""
        return self._set(BUDGETS)

    @property
    def shares(self) -> dict[str, float]:
        """Its share of its models' caches, by its key, if it has one."""
        return self._set([CACHE_SHARE])


def limit_of(scope: str, name: str, key: str) -> str:
    """A limit of one key or one model (scope `keys` or `models`) among those of its tenant; names have no dot."""
    return f"{scope}.{name}.{key}"


def scope_of(limit: str) -> tuple[str, str, str]:
    """Scope, name and key of a tenant's limit; no scope and name where it is of the whole tenant."""
    scope, _, own = limit.partition(".")
    name, _, key = own.partition(".")
    return (scope, name, key) if key else ("", "", limit)


class CountersSpec(Spec):
    """How limits are kept. Where the section is written out, what counts runs also while no tenant has a limit."""

    when_away: Literal["refuse", "admit"] = "admit"
    """While the counters do not answer, requests of every tenant are admitted and not counted, or refused (503). Their
    store is one pod: it is away while it moves to another node."""
    volume_gib: int = Field(default=1, ge=1, le=1024)
    """Size of the volume with the counters; a thousand tenants need some MiB."""
    storage_class: str | None = None
    """Class of that volume. If not given: Longhorn's for scratch volumes where this program installs it, and
    `storage.storage_class` elsewhere."""
