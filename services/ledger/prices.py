"""The price book of a site, and what a row costs: whole numbers alone, so that every sum is exact.

A price is in micro-units of the currency per million tokens, so a token costs as many pico-units (1e-12). A tier's
factor, in millionths, is on the price: a unit price is rounded once, half up, to a whole micro-unit per million tokens,
and costs are quantities times unit prices, never rounded. A bill's lines so add up to the costs of its rows.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from services.ledger.idle import BilledGpus
from services.ledger.lines import UsageRow
from services.mounted import unusable

UNPRICED = "none"
"""The version of a row whose model has no price."""
KINDS = ("input", "cached_input", "output")
_WHOLE = 1_000_000
_Amount = Annotated[int, Field(ge=0, le=10**15)]


class ModelPrices(BaseModel):
    """Micro-units of the currency per million tokens."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    input: _Amount
    cached_input: _Amount
    output: _Amount


class PriceVersion(BaseModel):
    """Prices that hold from a moment on, until those of the next."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)

    currency: str = Field(pattern=r"^[A-Z]{3}$")
    since: Annotated[int, Field(ge=0, le=10**11, alias="from")]
    """Seconds of Unix time."""
    models: Mapping[str, ModelPrices]
    factors: Mapping[str, _Amount] = Field(default={}, alias="tiers")
    """Of tiers, in millionths; a tier that is not here has 1,000,000."""
    dedicated: Mapping[str, BilledGpus] = {}
    """By revision, where GPUs are billed by the hour, of whose days this price holds."""
    free: Mapping[str, Sequence[str]] = {}
    """By model, tenants whose tokens are in the price of its dedicated GPUs."""

    def content(self) -> dict[str, Any]:
        """What the table of versions keeps, of which the version is a digest."""
        content = self.model_dump(by_alias=True, exclude={"dedicated"})
        # A version of before these were has the digest that it had.
        return content if self.free else {name: value for name, value in content.items() if name != "free"}

    @property
    def version(self) -> str:
        """A short digest of all that is in it."""
        text = json.dumps(self.content(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def is_free(self, tenant: str, model: str) -> bool:
        """Whether the tenant pays for GPUs in the place of this model's tokens."""
        return tenant in self.free.get(model, ())

    def unit_price(self, tenant: str, model: str, tier: str, kind: str) -> int:
        """In micro-units per million tokens, with the tier's factor; 0 for a model without a price, and for a tenant
        that pays for its GPUs.
        """
        if self.is_free(tenant, model) or model not in self.models:
            return 0
        price: int = getattr(self.models[model], kind)
        return (price * self.factors.get(tier, _WHOLE) + _WHOLE // 2) // _WHOLE


def quantities(input_tokens: int, cached_input_tokens: int, output_tokens: int) -> dict[str, int]:
    """Tokens by the kind that has a price."""
    counts = (input_tokens - cached_input_tokens, cached_input_tokens, output_tokens)
    return dict(zip(KINDS, counts, strict=True))


class _Book(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    currency: str
    versions: list[PriceVersion]
    idle: dict[str, BilledGpus] = {}
    served: list[str] | None = None

    @model_validator(mode="before")
    @classmethod
    def _with_currency(cls, book: Any) -> Any:
        """Each version has the book's currency: a digest of it has to name what its figures are of."""
        versions = [{**version, "currency": book["currency"]} for version in book["versions"]]
        return {**book, "versions": sorted(versions, key=lambda version: int(version["from"]))}


@dataclass(frozen=True)
class RowPrice:
    """What a row costs, and by which version."""

    version: str
    cost_pico: int


class PriceBook:
    """All versions of a site's prices."""

    def __init__(
        self,
        currency: str,
        versions: list[PriceVersion],
        idle: Mapping[str, BilledGpus] = MappingProxyType({}),
        served: Collection[str] | None = None,
    ) -> None:
        """served: what models may be called; None where that is not known."""
        self.currency, self.idle = currency, idle
        priced = {model for version in versions for model in version.models}
        self._names = None if served is None else priced.union(served)
        self._versions = [(version.version, version) for version in versions]
        self._from_us = [version.since * 1_000_000 for version in versions]
        self._units: dict[tuple[int, str, str], tuple[int, ...]] = {}

    def contents(self) -> dict[str, PriceVersion]:
        """Each version by its digest."""
        return dict(self._versions)

    def gpus_of(self, moment: float) -> dict[str, BilledGpus]:
        """By revision, those that are billed on the day that begins then, in Unix time: one that is billed by the hour
        has no idle time.
        """
        place = bisect_right(self._from_us, int(moment * 1_000_000)) - 1
        return {**self.idle, **(self._versions[place][1].dedicated if place >= 0 else {})}

    def made_up(self, row: UsageRow) -> bool:
        """Whether the row's model is a text of a client alone, that no model answered to."""
        has_tokens = row.input_tokens + row.output_tokens > 0
        return self._names is not None and not has_tokens and row.model not in self._names

    def price(self, row: UsageRow) -> RowPrice:
        """By the version that held when the request started; by `UNPRICED` where none has the model."""
        place = bisect_right(self._from_us, row.started_us) - 1
        if place < 0:
            return RowPrice(UNPRICED, 0)
        name, version = self._versions[place]
        if version.is_free(row.tenant, row.model):
            return RowPrice(name, 0)
        if row.model not in version.models:
            return RowPrice(UNPRICED, 0)
        used = (place, row.model, row.tier)
        units = self._units.get(used)
        if units is None:
            units = tuple(version.unit_price(row.tenant, row.model, row.tier, kind) for kind in KINDS)
            # Tiers and models with a price are the site's, so these are few.
            self._units[used] = units
        fresh = row.input_tokens - row.cached_input_tokens
        return RowPrice(name, fresh * units[0] + row.cached_input_tokens * units[1] + row.output_tokens * units[2])


def book_of(file: Path) -> PriceBook:
    """Raises ServiceError for a file that is missing or not in its form."""
    allowed = (
        '{"currency": "EUR", "versions": [{"from", "models": {NAME: {"input", "cached_input", "output"}}, "tiers"}]}'
    )
    try:
        book = _Book.model_validate(json.loads(file.read_bytes()))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise unusable(file, f"{place or 'the file'}: {problem['msg'].lower()}", allowed) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise unusable(file, type(error).__name__, allowed) from None
    return PriceBook(book.currency, book.versions, book.idle, book.served)
