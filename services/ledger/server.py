"""The HTTP interface. Errors have one form: {"error": {"code", "message"}}."""

from __future__ import annotations

import asyncio
import collections
import logging
import math
import time
from collections.abc import Awaitable, Callable

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, Histogram, generate_latest

from services import serving
from services.database import Database
from services.failure import ServiceError
from services.ledger import focus, hours, spending, usage
from services.ledger.bills import bill_of
from services.ledger.idle import keep_days, next_day
from services.ledger.lines import read
from services.ledger.months import Month
from services.ledger.reader import UsageReader
from services.ledger.retention import Retention
from services.ledger.settings import LedgerSettings
from services.ledger.signals import WINDOW_MINUTES, Thresholds
from services.ledger.store import Writer
from services.ledger.tables import KEPT
from services.ledger.unreadable import UnreadableLines
from services.ledger.variables import MOST_BYTES, MOST_LINES, ROWS_PATH, SIGNALS_PATH, TOKEN_HEADER
from services.ledger.watched import LOOK_EVERY_S, KeyWatch, measured
from services.ledger.writing import RowWriter

_REQUESTS = Counter(
    "inference_usage_http_requests", "Requests to the ledger by method, path and status.", ["method", "path", "status"]
)
_ROWS = Counter("inference_usage_rows", "Rows that came, by what became of them: added, or known before.", ["result"])
_UNREADABLE = Counter("inference_usage_unreadable_lines", "Lines that are no row, by reason.", ["reason"])
_TOKENS = Counter(
    "inference_usage_tokens",
    "Tokens of rows that were added, to hold against the engines' own.",
    ["model", "revision", "kind"],
)
_UNPRICED = Counter("inference_usage_unpriced_rows", "Rows with tokens whose model has no price.")
_STALE_PRICES = Gauge("inference_usage_prices_unusable", "1 while the file of prices is not usable.")
_INTAKE = Histogram(
    "inference_usage_intake_seconds", "Of a batch of rows, to its commit.", buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10)
)
_SIGNALS = Gauge("inference_usage_key_signals", "1 for a key that may be abused now.", ["tenant", "key", "signal"])
_IDLE_CLOSED = Gauge(
    "inference_usage_idle_closed_timestamp_seconds", "Start of the last day whose idle GPUs are on bills. 0: none."
)
_LOOKED = Gauge("inference_usage_keys_looked_timestamp_seconds", "When keys were last looked at. 0: never.")
_FAILURES = Counter(
    "inference_usage_chore_failures", "Times that what a ledger does by itself failed; it is tried again.", ["chore"]
)
for _result in ("added", "known"):
    _ROWS.labels(_result)
_FORMATS = ("json", "csv", "focus")
_PARTITIONS_EVERY_S, _FORGET_EVERY_S = 3600.0, 3600.0
_DAYS_EVERY_S, _RECOUNT_EVERY_S = 600.0, 600.0
_AGAIN_AFTER_S, _LONGEST_PAUSE_S = 2.0, 120.0

log = logging.getLogger(__name__)


def application(
    settings: LedgerSettings,
    database: Database,
    *,
    keep_months: int,
    keep_traces_days: int,
    issuer: str,
    watch_keys: Thresholds | None = None,
) -> FastAPI:
    """The service, for one database. watch_keys: from what on a key may be abused; None: none is watched."""
    watches = watch_keys is not None
    writer = Writer(database, keep_months, keep_traces_days=keep_traces_days, watches=watches)
    requests = _LedgerRequests(settings, database, writer, issuer, watch_keys)
    kept = (requests.keep_partitions, requests.forget, requests.recount, requests.keep_days, requests.watch_keys)
    tasks = (*kept, requests.show_hours, requests.show_month)
    return serving.application(database, requests.router(), page="docs/how-to/usage-and-bills.md", tasks=tasks)


class _LedgerRequests:
    """One method per request. Tokens are checked before a body is read."""

    def __init__(
        self,
        settings: LedgerSettings,
        database: Database,
        writer: Writer,
        issuer: str,
        watch_keys: Thresholds | None,
    ) -> None:
        self._settings, self._database, self._issuer = settings, database, issuer
        self._writer = writer
        self._rows: RowWriter = writer
        self._unreadable, self._retention = UnreadableLines(database), Retention(database, self._writer)
        self._refused_at = -math.inf
        """When rows were last not added, by the monotonic clock."""
        self._reader, self._watch = UsageReader(database), KeyWatch(database, watch_keys)

    def router(self) -> APIRouter:
        """All of them, by their paths."""
        handlers: serving.Handlers = {
            ("POST", ROWS_PATH): self.rows,
            ("GET", "/v1/organization/usage/completions"): self.completions,
            ("GET", "/v1/organization/costs"): self.costs,
            ("GET", "/v1/bills/{tenant}/{month}"): self.bill,
            ("GET", "/v1/spent"): self.spent,
            ("GET", SIGNALS_PATH): self.key_signals,
            ("GET", "/healthz"): self.health,
            ("GET", "/readyz"): self.ready,
            ("GET", "/metrics"): self.metrics,
        }
        return serving.router_of(KEPT.service, _REQUESTS, handlers)

    async def keep_partitions(self) -> None:
        """Now and then, for ever."""

        # A row makes the partition that it needs.
        await self._again_and_again("partitions", self._writer.keep_partitions, _PARTITIONS_EVERY_S)

    async def forget(self) -> None:
        """Delete what is kept for no longer than rows, for ever."""

        async def act() -> None:
            await self._unreadable.forget(self._writer.earliest())
            await self._retention.keep()

        await self._again_and_again("forgetting", act, _PARTITIONS_EVERY_S)

    async def recount(self) -> None:
        """Look whether sums of the month are to be counted again, for ever."""
        await self._again_and_again("sums of the month", self._writer.recount, _RECOUNT_EVERY_S)

    async def keep_days(self) -> None:
        """Open and close days of idle GPUs, for ever; whatever else is kept may be slow, or fail."""

        async def keep() -> None:
            prices = self._settings.prices_in_use()
            gpus = prices.gpus_of(next_day(time.time()))
            sound_s = min(self._database.connected_s, time.monotonic() - self._refused_at)
            _IDLE_CLOSED.set(await keep_days(self._database, gpus, prices.currency, sound_s=sound_s))

        await self._again_and_again("idle GPUs", keep, _DAYS_EVERY_S)

    async def watch_keys(self) -> None:
        """Look which may be abused, for ever; where none is watched, delete what was kept of them before."""

        async def look() -> None:
            signals = await self._watch.look()
            # Nothing is measured between these.
            _SIGNALS.clear()
            for signal in measured(signals):
                _SIGNALS.labels(signal.tenant, signal.key, signal.signal).set(1)
            _LOOKED.set_to_current_time()

        await self._again_and_again("keys", look, LOOK_EVERY_S if self._watch.most else _FORGET_EVERY_S)

    async def show_hours(self) -> None:
        """Measure the last full hour, for ever."""
        watch = hours.HourWatch(self._database)

        async def look() -> None:
            await watch.look(time.time())

        await self._again_and_again("hours", look, hours.LOOK_EVERY_S)

    async def show_month(self) -> None:
        """Measure the running month, for ever."""
        watch = spending.MonthWatch(self._database)

        async def look() -> None:
            await watch.look(time.time(), self._settings.prices_in_use().currency)

        await self._again_and_again("month", look, spending.LOOK_EVERY_S)

    async def _again_and_again(self, chore: str, act: Callable[[], Awaitable[None]], every_s: float) -> None:
        """After a failure sooner, and later each time."""
        failed, failures = _FAILURES.labels(chore), 0
        while True:
            try:
                self._database.next_change()
            except ServiceError:
                await asyncio.sleep(_AGAIN_AFTER_S)
                continue
            try:
                await act()
                failures, pause_s = 0, every_s
            except Exception as error:  # noqa: BLE001 - it is tried again
                log.error(
                    "%s failed: %s", chore, error.code if isinstance(error, ServiceError) else type(error).__name__
                )
                failed.inc()
                failures += 1
                pause_s = min(every_s, _AGAIN_AFTER_S * 2**failures, _LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s)

    async def rows(self, request: Request) -> Response:
        token = request.headers.get(TOKEN_HEADER, "")
        if not self._settings.is_writer(token):
            raise _not_allowed(is_known=self._settings.is_operator(token), whose="a shipper's")
        fix = f"send fewer lines: at most {MOST_LINES} of together {MOST_BYTES} bytes"
        body = await serving.body_of(request, MOST_BYTES, fix)
        if (count := body.rstrip(b"\n").count(b"\n") + 1) > MOST_LINES:
            raise ServiceError(413, "too_large", "too many lines", got=str(count), allowed=str(MOST_LINES), fix=fix)
        began = time.monotonic()
        lines = read(body, **self._writer.bounds_us(time.time()))
        try:
            await self._unreadable.keep(lines.unreadable)
            added = await self._rows.add(lines.rows, self._settings.prices_in_use())
        except ServiceError:
            self._refused_at = time.monotonic()
            raise
        _INTAKE.observe(time.monotonic() - began)
        _ROWS.labels("added").inc(added.added)
        _ROWS.labels("known").inc(added.known)
        _UNPRICED.inc(added.unpriced)
        for place, tokens in added.tokens.items():
            _TOKENS.labels(*place).inc(tokens)
        for reason, number in collections.Counter(own.reason for own in lines.unreadable).items():
            _UNREADABLE.labels(reason).inc(number)
            log.warning("%d unreadable lines: %s", number, reason)
        return JSONResponse({"added": added.added, "known": added.known, "unreadable": len(lines.unreadable)})

    async def completions(self, request: Request) -> Response:
        return await self._usage(request, usage.COMPLETIONS)

    async def costs(self, request: Request) -> Response:
        return await self._usage(request, usage.COSTS)

    async def _usage(self, request: Request, kind: str) -> Response:
        self._operator(request)
        query = usage.query_of(kind, request.query_params.multi_items())
        rows = await self._reader.sums(query, self._settings.prices_in_use().currency)
        return JSONResponse(usage.page(query, rows))

    async def bill(self, request: Request, tenant: str, month: str) -> Response:
        self._operator(request)
        form = request.query_params.get("format", "json")
        if form not in _FORMATS:
            raise usage.wrong("format", "not a form of a bill", form, ", ".join(_FORMATS))
        if (chosen := Month.named(month)) is None:
            raise usage.wrong("month", "not a month", month, "a year and a month of UTC, as 2026-12")
        used, versions, idle, is_open = await self._reader.month(tenant, chosen)
        currency = self._settings.prices_in_use().currency
        if form == "focus":
            rows = focus.rows_of(tenant, chosen, used, versions, idle, currency=currency, issuer=self._issuer)
            return Response(focus.as_csv(rows), media_type="text/csv")
        final = chosen < Month.of(time.time()) and not is_open
        bill = bill_of(tenant, chosen, used, versions, idle, currency=currency, final=final)
        if form == "csv":
            return Response(bill.as_csv(), media_type="text/csv")
        return JSONResponse(bill.as_json())

    async def spent(self, request: Request) -> Response:
        """What gatekeepers hold tenants' budgets against, every few seconds."""
        self._operator(request)
        month, currency = Month.of(time.time()), self._settings.prices_in_use().currency
        tenants = await self._reader.spent(month, currency)
        ends = int((month + 1).start.timestamp())
        return JSONResponse({"month": str(month), "ends": ends, "currency": currency, "tenants": tenants})

    async def key_signals(self, request: Request) -> Response:
        """What directories suspend by, and people read."""
        self._operator(request)
        if self._watch.most is None:
            fix = "set usage.abuse in the site's file, and run pulumi up"
            raise ServiceError(404, "not_watched", "no key is watched", fix=fix)
        most = self._watch.most.model_dump()
        return JSONResponse({"thresholds": most, "window_s": 60 * WINDOW_MINUTES, "signals": await self._watch.kept()})

    async def health(self) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(self) -> Response:
        """Asks the database nothing: its connection is tried all the time, for every probe."""
        self._database.next_change()
        return PlainTextResponse("ok\n")

    async def metrics(self) -> Response:
        _STALE_PRICES.set(self._settings.has_unusable_prices)
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    def _operator(self, request: Request) -> None:
        """Raises ServiceError for anyone but an operator; OpenAI's clients have the token as a bearer's."""
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        token = request.headers.get(TOKEN_HEADER, bearer)
        if not self._settings.is_operator(token):
            raise _not_allowed(is_known=self._settings.is_writer(token), whose="the operator's")


def _not_allowed(*, is_known: bool, whose: str) -> ServiceError:
    fix = f"send {whose} token as {TOKEN_HEADER}"
    if is_known:
        return ServiceError(403, "forbidden", "the token is not for this request", fix=fix)
    return ServiceError(401, "unauthorized", f"the header {TOKEN_HEADER} has no token of this ledger", fix=fix)
