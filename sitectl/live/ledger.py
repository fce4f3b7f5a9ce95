"""Asks the ledger of usage in a site's cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import quote, urlencode

from services.ledger import variables
from services.ledger.currencies import digits_of
from sitectl.live import site_service
from sitectl.live.site_cluster import SiteCluster
from sitectl.live.site_service import PlatformService, SiteService

PAGE = "docs/how-to/usage-and-bills.md"
GROUPS = {"tenant": "project_id", "key": "api_key_id", "model": "model", "revision": "revision", "tier": "tier"}
"""What usage may be added up by -> its name in OpenAI's usage API, whose form the ledger's has."""
_LEDGER = PlatformService(
    name=variables.SERVICE,
    port=variables.DEFAULT_PORT,
    called="ledger of usage",
    secret=variables.TOKENS_SECRET,
    token_key=variables.OPERATOR_KEY,
    token_header=variables.TOKEN_HEADER,
    setting="usage.database_secret",
    page=PAGE,
    meanwhile="gateways keep what is not written yet",
)
_COUNTS = ("num_model_requests", "num_failed_requests", "input_tokens", "input_cached_tokens", "output_tokens")
_BUCKETS = 31


@dataclass(frozen=True, kw_only=True)
class Used:
    """What was used in one stretch of time by one group."""

    group: tuple[str, ...]
    """Values of what it is added up by, a day first where it is by day."""
    requests: int
    """Answered."""
    failed: int
    """Refused, or without an answer."""
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    costs: Mapping[str, Decimal]
    """By currency, of which a site may have had several; none without a price."""


def in_words(costs: Mapping[str, Decimal], currency: str = "") -> str:
    """Each amount with its currency; currency: of nothing."""
    shown = costs or {currency: Decimal(0)}
    return " and ".join(f"{cost:,.{digits_of(name)}f} {name}".rstrip() for name, cost in shown.items())


def added(all_costs: Iterable[Mapping[str, Decimal]]) -> dict[str, Decimal]:
    """By currency, in their order."""
    sums = defaultdict[str, Decimal](Decimal)
    for costs in all_costs:
        for currency, cost in costs.items():
            sums[currency] += cost
    return dict(sorted(sums.items()))


@dataclass(frozen=True)
class AskedLedger:
    """Of one site. Every request raises SitectlError where it is refused, or nothing answers."""

    _service: SiteService

    def used(self, begin: datetime, end: datetime, by: Sequence[str], tenant: str | None) -> list[Used]:
        """Usage from begin to end, which are full hours, by these of `GROUPS` and by `day`; groups in order."""
        names = [GROUPS[name] for name in by if name != "day"]
        counts = dict[tuple[str, ...], dict[str, Any]]()
        for page in ("usage/completions", "costs"):
            for bucket, result in self._results(page, begin, end, names, tenant):
                day = (bucket.date().isoformat(),) if "day" in by else ()
                group = (*day, *(str(result.get(name) or "-") for name in names))
                counted = counts.setdefault(group, dict.fromkeys(_COUNTS, 0) | {"costs": {}})
                for name in _COUNTS:
                    counted[name] += result.get(name) or 0
                if amount := result.get("amount"):
                    own = {str(amount["currency"]).upper(): Decimal(amount["exact"])}
                    counted["costs"] = added([counted["costs"], own])
        return [
            Used(
                group=group,
                requests=counted["num_model_requests"],
                failed=counted["num_failed_requests"],
                input_tokens=counted["input_tokens"],
                cached_tokens=counted["input_cached_tokens"],
                output_tokens=counted["output_tokens"],
                costs=counted["costs"],
            )
            for group, counted in sorted(counts.items())
        ]

    def bill(self, tenant: str, month: str, form: str) -> str:
        """A tenant's bill of one month as the ledger writes it: json, csv or focus."""
        return self._service.text(f"/v1/bills/{quote(tenant, safe='')}/{month}?{urlencode({'format': form})}")

    def key_signals(self) -> dict[str, Any]:
        """Signals of keys of the last days, and the thresholds of the site."""
        return self._service.ask("GET", variables.SIGNALS_PATH)

    def _results(
        self, page: str, begin: datetime, end: datetime, names: Sequence[str], tenant: str | None
    ) -> Iterator[tuple[datetime, dict[str, Any]]]:
        asked: list[tuple[str, str | int]] = [
            ("start_time", int(begin.timestamp())),
            ("end_time", int(end.timestamp())),
            ("bucket_width", "1d"),
            ("limit", _BUCKETS),
            *(("group_by", name) for name in names),
            *([("project_ids", tenant)] if tenant else []),
        ]
        following: list[tuple[str, str]] = []
        while True:
            answer = self._service.ask("GET", f"/v1/organization/{page}?{urlencode([*asked, *following])}")
            for bucket in answer["data"]:
                start = datetime.fromtimestamp(bucket["start_time"], UTC)
                yield from ((start, result) for result in bucket["results"])
            if not answer.get("has_more"):
                return
            following = [("page", answer["next_page"])]


@contextmanager
def of_cluster(cluster: SiteCluster) -> Iterator[AskedLedger]:
    """The ledger of a site's cluster. Raises SitectlError where the cluster does not answer, or has none."""
    with site_service.of_cluster(cluster, _LEDGER) as service:
        yield AskedLedger(service)
