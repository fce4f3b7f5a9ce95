"""How long pages of the portal and answers of the ledger take, over the sums of many rows of a thousand tenants."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import httpx
import oidc_provider_mock

from benchmarks import processes, serving
from benchmarks.arithmetic import percentile
from benchmarks.report import Cell, Result, Row, Table, note
from benchmarks.serving import Database
from lab.errors import LabError
from lab.paths import Lab
from services.ledger.months import Month
from services.ledger.store import summed
from services.ledger.tables import SPENT, USAGE
from services.ledger.variables import ROWS_PATH, TOKEN_HEADER

HELP = "pages and answers that read usage, with 1,000 tenants and 10 million rows; needs no lab"
NEEDS_LAB = False
PARAMETERS = (
    click.Option(
        ["--page-rows"], type=int, default=10_000_000, show_default=True, help="portal_pages: rows of the ledger"
    ),
    click.Option(["--page-loads"], type=int, default=100, show_default=True, help="portal_pages: of each page"),
)
TENANTS, KEYS, MODELS = 1000, 5, 3
GOAL_S = 0.1
_PORT = 43_220
_WRITERS = 2
_SECRET = "benchmark"  # noqa: S105 - of services that live as long as a benchmark
_PRICES = {"input": 200_000, "cached_input": 50_000, "output": 800_000}
_OFFERED = {
    "title": "Model",
    "task": "generate",
    "context_tokens": 32768,
    "revision": "0" * 40,
    "replicas": 2,
    "gpus": 4,
    "prices": [{"currency": "EUR", "input": 0.2, "cached_input": 0.05, "output": 0.8}],
}
# In the order of time, over ten hours of each day; few tenants, keys and models have most of them. Rows are
# as wide as Envoy's lines make them.
_FILL = """
INSERT INTO requests (started, id, tenant, key, tier, model, path, status, details, flags, duration_ms, ttft_ms, itl_ms,
    input_tokens, cached_input_tokens, output_tokens, reasoning_tokens, attempts, replica, prompt_id, trace_id,
    asked_model, revision, failed, price_version, cost_pico)
SELECT began, gen_random_uuid()::text, tenant, key, 'interactive', model, '/v1/chat/completions', 200, 'via_upstream',
    '-', 4200, 81.5, 7.25, input, cached, output, 0, 1, '10.244.3.17:8000', '', md5(number::text), '', model, false,
    '{version}', (input - cached) * {input}::bigint + cached * {cached}::bigint + output * {output}::bigint
FROM (
    SELECT number,
        timestamptz '{start}' + make_interval(days => ({days} * number::bigint / {rows})::int,
            secs => 8 * 3600 + 36000.0 * ({days} * number::bigint % {rows}) / {rows}) AS began,
        'team-' || lpad(floor({tenants} * random() ^ 3)::text, 4, '0') AS tenant,
        'key-' || floor({keys} * random() ^ 2)::text AS key,
        'model-' || floor({models} * random() ^ 2)::text AS model,
        1000 + floor(random() * 4000)::int AS input, floor(random() * 1000)::int AS cached,
        floor(random() * 1000)::int AS output
    FROM generate_series({first}, {last}) AS number
) AS made;
"""


# Half of all keys, prompts and orders are the largest tenant's; nine of ten keys have ended within the last month.
_FILL_DIRECTORY = """
INSERT INTO keys (id, digest, tenant, name, models, created, expires, revoked, version)
SELECT lpad(to_hex(number), 10, '0'), md5(number::text),
    'team-' || lpad((number % 2 * number % {tenants})::text, 4, '0'),
    'person-key-' || number % 500 || '-aaaaaaaa', ARRAY['model-0'], now - 90000, now + 86400 * 90,
    CASE WHEN number % 10 > 0 THEN now - 600 END, 1
FROM generate_series(1, {keys}) AS number, LATERAL (SELECT extract(epoch FROM now())::bigint AS now) AS clock;
INSERT INTO prompts (tenant, id, number, text, in_use, at, actor, version)
SELECT 'team-0000', 'prompt-' || number / 4, number % 4 + 1, repeat('Keep to the facts of {{{{ticket}}}}. ', 100),
    number % 4 = 3, 1, 'portal:ann aaaaaaaa', 1
FROM generate_series(0, 99) AS number;
INSERT INTO model_orders (id, tenant, model, note, state, why, asked_by, changed_by, asked, changed)
SELECT lpad(to_hex(number), 10, '0'), 'team-' || lpad((number % 2 * number)::text, 4, '0'), 'ordered-' || number,
    'agents', 'asked', '', 'portal:ann aaaaaaaa', 'portal:ann aaaaaaaa', number, number
FROM generate_series(1, 200) AS number;
INSERT INTO audit (number, at, actor, source, action, subject, tenant, hash)
SELECT number, number, 'portal:ann aaaaaaaa', 'portal 10.1.2.3', 'create', lpad(to_hex(number), 10, '0'), 'team-0000',
    md5(number::text)
FROM generate_series(1, {keys}) AS number;
ANALYZE;
"""
_DIRECTORY_KEYS = 20_000


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A page or an answer: what it is, and how it is loaded for the number of a load."""

    what: str
    who: str
    load: Callable[[int], httpx.Response]


def run(lab: Lab, *, page_rows: int, page_loads: int) -> Result:  # noqa: ARG001 - the form of every benchmark
    """Rows of the last whole month. Raises LabError where a page is not what it should be."""
    month = Month.of(time.time()) + -1
    with tempfile.TemporaryDirectory(prefix="portal-pages-") as name, ExitStack() as stack:
        folder = Path(name)
        kept = stack.enter_context(serving.database(folder, "usage", port=_PORT))
        models = {f"model-{number}": _PRICES for number in range(MODELS)}
        ledger = stack.enter_context(serving.ledger(folder, kept, models, port=_PORT + 1))
        _fill(kept, month, page_rows)
        sums = int(kept.sql("SELECT count(*) FROM usage_by_hour"))
        disk_gb = sum(file.stat().st_size for file in kept.data.rglob("*") if file.is_file()) / 1e9
        note(f"{page_rows:,} rows, {sums:,} sums by hour, {disk_gb:.1f} GB")
        pages, portal = stack.enter_context(_pages(folder, month))
        pids = {"portal": portal, "ledger": ledger, "PostgreSQL": kept.pid}
        rows = [_measured(asked, page_loads, pids) for asked in pages]
        if kept.sql(f"SELECT count(DISTINCT tenant) FROM {SPENT.name}") in {"0", "1"}:  # noqa: S608 - a table's name
            raise LabError("what tenants have spent is empty", fix="measure for less than an hour: --page-loads")
    slow = [str(row["page"]) for row in rows if float(row["p95, ms"] or 0) >= 1000 * GOAL_S]
    return Result(
        benchmark="portal_pages",
        question="How long do pages and answers that read usage take with many rows behind them?",
        conditions={
            "rows": f"{page_rows:,} of {TENANTS:,} tenants in one month, {KEYS} keys and {MODELS} models each; a tenth "
            "of them of one tenant",
            "directory": f"{_DIRECTORY_KEYS:,} keys, half of one tenant and nine tenths ended; as many acts, 200 "
            "orders, 100 versions of prompts",
            "sums by hour": sums,
            "database": f"PostgreSQL of this machine with 16 MB of buffers and without fsync, {disk_gb:.1f} GB",
            "loads": f"{page_loads} of each, one after another, without what a browser draws; tenants by turns",
            "cores_shared_by": f"ledger, portal, directory, PostgreSQL and clients share {os.cpu_count()} cores",
        },
        tables=[Table(title="Time to the whole answer", rows=rows)],
        findings=[
            f"{len(rows) - len(slow)} of {len(rows)} are below {1000 * GOAL_S:.0f} ms at p95"
            + (f"; not: {', '.join(slow)}." if slow else ".")
        ],
    )


def _fill(kept: Database, month: Month, rows: int) -> None:
    """Rows and their sums, by the statement of the ledger."""
    start = int(month.start.timestamp())
    first = {"id": "first", "started": f"{start}.0", "client": "team-0000.key-0", "model": "model-0", "status": 200}
    # It makes the month's partition and the version of prices.
    url = f"http://127.0.0.1:{_PORT + 1}{ROWS_PATH}"
    httpx.post(url, content=json.dumps(first), headers={TOKEN_HEADER: serving.WRITER}, timeout=60).raise_for_status()
    facts = {
        "version": kept.sql("SELECT version FROM price_versions"),
        "start": month.start.isoformat(),
        "days": ((month + 1).start - month.start).days,
        "rows": rows + 1,
        "tenants": TENANTS,
        "keys": KEYS,
        "models": MODELS,
        "input": _PRICES["input"],
        "cached": _PRICES["cached_input"],
        "output": _PRICES["output"],
    }
    kept.sql("TRUNCATE usage_by_hour; DELETE FROM requests")
    parts = [(rows * at // _WRITERS + 1, rows * (at + 1) // _WRITERS) for at in range(_WRITERS)]
    with ThreadPoolExecutor(_WRITERS) as pool:
        list(pool.map(lambda part: kept.sql(_FILL.format(first=part[0], last=part[1], **facts)), parts))
    added = "SELECT date_trunc('hour', started, 'UTC') AS hour, * FROM requests"
    kept.sql(f"WITH added AS ({added}) {summed(USAGE)}")
    # Gatekeepers ask for the running month. A ledger makes its sums again an hour after its start, out of no hours.
    spent = "tenant, price_version, sum(input_tokens + output_tokens), sum(cost_pico)"
    now = Month.of(time.time()).start.isoformat()
    kept.sql(f"INSERT INTO {SPENT.name} SELECT '{now}', {spent} FROM {USAGE.name} GROUP BY tenant, price_version")  # noqa: S608
    kept.sql("ANALYZE")


@contextmanager
def _pages(folder: Path, month: Month) -> Iterator[tuple[list[_Asked], int]]:
    """What reads usage, of the largest tenant's people and of an operator; and the portal's process id.

    A directory and an issuer run beside it.
    """
    tenants = {
        f"team-{number:04}": {
            "models": [f"model-{model}" for model in range(MODELS)],
            "admins": [f"leads-{number}"],
            "users": [f"people-{number}"],
        }
        for number in range(TENANTS)
    }
    groups = {"user": ["people-0"], "admin": ["leads-0"], "operator": ["platform"]}
    people = [
        oidc_provider_mock.User(sub=name, claims={"preferred_username": name, "groups": groups[name]})
        for name in groups
    ]
    url = f"http://127.0.0.1:{_PORT + 4}"
    with ExitStack() as stack:
        keys = stack.enter_context(serving.database(folder, "directory", port=_PORT + 2))
        stack.enter_context(serving.directory(folder, keys, tenants, port=_PORT + 3))
        keys.sql(_FILL_DIRECTORY.format(tenants=TENANTS, keys=_DIRECTORY_KEYS))
        issuer = stack.enter_context(oidc_provider_mock.run_server_in_thread(user_claims=people))
        offered = dict.fromkeys(tenants["team-0000"]["models"], _OFFERED)
        catalogue = {"site": "bench", "models": offered, "tenants": tenants, "operators": ["platform"]}
        addresses = {
            "public-url": url,
            "issuer": f"http://localhost:{issuer.server_port}",
            "endpoint": "https://inference.example.com",
            "gateway": "http://127.0.0.1:9",
            "directory": f"http://127.0.0.1:{_PORT + 3}",
            "ledger": f"http://127.0.0.1:{_PORT + 1}",
            "client-id": "portal",
        }
        files = {
            "--client-secret-file": _SECRET,
            "--session-secret-file": _SECRET,
            "--catalogue-file": json.dumps(catalogue),
            "--directory-token-file": serving.OPERATOR,
            "--ledger-token-file": serving.OPERATOR,
        }
        words = [word for name, value in addresses.items() for word in (f"--{name}", value)]
        portal = stack.enter_context(serving.service(folder, "portal", words, files, port=_PORT + 4))
        browsers = {name: stack.enter_context(_browser(url, name)) for name in groups}
        token = {TOKEN_HEADER: serving.OPERATOR}
        ledger = stack.enter_context(httpx.Client(base_url=addresses["ledger"], headers=token, timeout=60))
        yield [*_of_portal(browsers, month), *_of_ledger(ledger, month)], portal


@contextmanager
def _browser(url: str, person: str) -> Iterator[httpx.Client]:
    """One in which this person is logged in."""
    with httpx.Client(base_url=url, timeout=60, follow_redirects=True) as client:
        form = client.get("/login")
        client.post(form.url, data={"sub": person}).raise_for_status()
        yield client


def _of_portal(browsers: Mapping[str, httpx.Client], month: Month) -> list[_Asked]:
    largest = {"month": str(month), "tenant": "team-0000"}

    def page(what: str, who: str, path: str, **more: str) -> _Asked:
        return _Asked(what=what, who=who, load=lambda _: browsers[who].get(path, params=largest | more))

    def of_each(number: int) -> httpx.Response:
        return browsers["operator"].get("/usage", params=largest | {"tenant": _tenant(number)})

    return [
        page("usage, of the largest tenant", "user", "/usage"),
        page("usage, of the largest tenant", "admin", "/usage"),
        _Asked(what="usage, of each tenant by turns", who="operator", load=of_each),
        *(
            page(f"bill of the largest tenant, {form}", "admin", "/usage/bill", format=form)
            for form in ("csv", "focus")
        ),
        page("models", "user", "/"),
        page("a model", "user", "/models/model-0"),
        page("keys of the largest tenant", "admin", "/keys"),
        page("keys of one's own", "user", "/keys"),
        page("orders of the largest tenant", "user", "/orders"),
        page("prompts of the largest tenant", "user", "/prompts"),
        page("a prompt, compared", "user", "/prompts/prompt-7", version="1"),
        page("what operators see of all tenants", "operator", "/platform"),
    ]


def _of_ledger(ledger: httpx.Client, month: Month) -> list[_Asked]:
    times = {"start_time": int(month.start.timestamp()), "end_time": int((month + 1).start.timestamp()), "limit": 31}

    def sums(kind: str, groups: list[str], tenant: Callable[[int], str]) -> Callable[[int], httpx.Response]:
        asked: dict[str, Any] = times | {"group_by": groups}
        return lambda number: ledger.get(f"/v1/organization/{kind}", params=asked | {"project_ids": tenant(number)})

    by, largest = ["model", "api_key_id"], lambda _: "team-0000"
    asked = {
        "usage API, of the largest tenant": sums("usage/completions", by, largest),
        "usage API, of the largest tenant by revision": sums("usage/completions", ["revision"], largest),
        "usage API, of each tenant by turns": sums("usage/completions", by, _tenant),
        "costs API, of each tenant by turns": sums("costs", by, _tenant),
        "bill API, of each tenant by turns": lambda number: ledger.get(f"/v1/bills/{_tenant(number)}/{month}"),
        "what tenants have spent, for gatekeepers": lambda _: ledger.get("/v1/spent"),
    }
    return [_Asked(what=what, who="operator", load=load) for what, load in asked.items()]


def _tenant(number: int) -> str:
    """Over all of them in a hundred loads."""
    return f"team-{number * TENANTS // 100 % TENANTS:04}"


def _measured(asked: _Asked, loads: int, pids: Mapping[str, int]) -> Row:
    """pids: whose CPU time is shown."""
    seconds, size = [], 0
    asked.load(0)
    before = {name: processes.family_cpu_s(pid) for name, pid in pids.items()}
    for number in range(loads):
        began = time.perf_counter()
        answer = asked.load(number)
        seconds.append(time.perf_counter() - began)
        if answer.status_code != 200:
            raise LabError(f"{asked.what}: {answer.status_code} {answer.text[:200]}", fix="read the service's log")
        size = max(size, len(answer.content))
    p50, p95 = (round(1000 * percentile(seconds, share), 1) for share in (0.5, 0.95))
    used = {
        f"{name}, ms of CPU": round(1000 * (processes.family_cpu_s(pid) - before[name]) / loads, 1)
        for name, pid in pids.items()
    }
    times: dict[str, Cell] = {"page": asked.what, "asked by": asked.who, "p50, ms": p50, "p95, ms": p95, **used}
    note(str(times))
    return times | {"largest, KB": size // 1000}
