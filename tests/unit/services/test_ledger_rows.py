"""The ledger beside a real PostgreSQL: rows that come once, twice, at once and torn, and what is read of them."""

# ruff: noqa: S608 - names and ids of the test

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import httpx
import openai
import pytest

from services.directory import tables as directory
from services.ledger.months import Month
from services.ledger.tables import KEPT, METADATA
from services.ledger.variables import MOST_LINES, ROWS_PATH
from tests.lab.waiting import eventually
from tests.unit.services import ledger_rig
from tests.unit.services.ledger_rig import OPERATOR, WRITER, Ledger, line, written
from tests.unit.services.postgres_rig import PASSWORD, ROOT, Server, differences, setting

pytestmark = [pytest.mark.processes, pytest.mark.row("000.35", "003.20")]

NOW = time.time()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Ledger]]:
    with ledger_rig.running(tmp_path_factory.mktemp("ledger"), "--keep-traces-days", "7300") as running:
        yield running


@pytest.fixture
def operator(both: tuple[Server, Ledger]) -> Iterator[httpx.Client]:
    with both[1].client() as client:
        yield client


def rows_equal_their_sums(server: Server) -> None:
    columns = "tenant, key, model, tier, price_version"
    sums = ", ".join(f"sum({name})" for name in ("input_tokens", "cached_input_tokens", "output_tokens", "cost_pico"))
    of_rows = f"SELECT date_trunc('hour', started, 'UTC') AS hour, {columns}, count(*), {sums} FROM requests"
    of_hours = f"SELECT hour, {columns}, sum(requests), {sums} FROM usage_by_hour"
    grouped = [f"{text} GROUP BY hour, {columns} ORDER BY 1, 2, 3, 4, 5, 6" for text in (of_rows, of_hours)]
    rows, hours = (server.sql(text).stdout for text in grouped)
    assert rows == hours
    assert rows
    tokens, by = "sum(input_tokens + output_tokens), sum(cost_pico)", "GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    of_hours = f"SELECT date_trunc('month', hour, 'UTC'), tenant, price_version, {tokens} FROM usage_by_hour {by}"
    assert server.sql(of_hours).stdout == server.sql("SELECT * FROM spent_by_month ORDER BY 1, 2, 3").stdout


def test_a_row_has_all_of_its_line(both: tuple[Server, Ledger]) -> None:
    server, ledger = both
    more = {"prompt_id": "p-1", "trace_id": "abc", "asked_model": "glm-5-1", "reasoning_tokens": 9}
    more["revision"] = "chat--0a1b2c3d"
    own = line(started="1795000000.123456", status=499, flags="DC", **more)
    assert ledger.send(own) == {"added": 1, "known": 0, "unreadable": 0}
    (row,) = server.rows(f"SELECT * FROM requests WHERE id = '{own['id']}'")
    version = row.pop("price_version")
    assert row == {
        **{name: own[name] for name in own if name not in ("client", "objective", "started")},
        "started": "2026-11-18T11:06:40.123456+00:00",
        "tenant": "search",
        "key": "ci",
        "tier": "interactive",
        "failed": True,
        # 600 at 0.20, 400 at 0.05 and 100 at 0.80 a million.
        "cost_pico": (600 * 20 + 400 * 5 + 100 * 80) * 10_000,
        "trace_id": "abc",
    }
    (kept,) = server.rows(f"SELECT content FROM price_versions WHERE version = '{version}'")
    assert kept["content"] == {**ledger_rig.BOOK["versions"][0], "currency": "EUR"}


def test_doubles_are_known_in_a_batch_and_later(both: tuple[Server, Ledger]) -> None:
    server, ledger = both
    first, second = line(client="double.a"), line(client="double.a")
    assert ledger.send(first, first, second) == {"added": 2, "known": 1, "unreadable": 0}
    assert ledger.send(second, line(client="double.a"), first) == {"added": 1, "known": 2, "unreadable": 0}
    (sums,) = server.rows("SELECT sum(requests) AS requests FROM usage_by_hour WHERE tenant = 'double'")
    assert sums["requests"] == 3
    rows_equal_their_sums(server)


def test_many_writers_at_two_ledgers_add_each_row_once(both: tuple[Server, Ledger]) -> None:
    """Of the same lines in opposite orders and other batches, so that they meet in the table: none ends the other."""
    server, first = both
    second = Ledger(first.folder)
    second.start()
    second.wait_ready()
    try:
        lines = [
            line(client=f"many.k{place % 3}", started=f"{1795000000 + 700 * (place % 40)}.5") for place in range(6000)
        ]
        starts = threading.Barrier(4, timeout=20)

        def send(seed: int) -> int:
            choose = random.Random(seed)  # noqa: S311 - a repeatable choice
            added = 0
            for beginning in range(0, len(lines), 1500):
                batch = lines[beginning : beginning + 1500][:: 1 if seed % 2 else -1]
                starts.wait()
                cut = choose.randrange(1500) if seed > 1 else 0
                ledger = (first, second)[seed % 2]
                added += ledger.send(*batch[cut:])["added"] + (ledger.send(*batch[:cut])["added"] if cut else 0)
            return added

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(send, range(4))) == len(lines)
        (sums,) = server.rows("SELECT sum(requests) AS requests FROM usage_by_hour WHERE tenant = 'many'")
        assert sums["requests"] == len(lines)
        rows_equal_their_sums(server)
    finally:
        second.end(signal.SIGKILL)


def test_odd_lines_never_keep_others_back(both: tuple[Server, Ledger]) -> None:
    """Each field with each odd value, and bytes of all kinds, beside a line that is good."""
    server, ledger = both
    odd: list[Any] = [None, "", "-", "\0", "\ud800", "\u20ac" * 300, "1e400", "NaN"]
    odd += [-1, 10**30, 1e308, True, [], {"a": [1]}]
    fields = [line(client="odd.a") | {name: value} for name in line() for value in odd]
    texts = [json.dumps(own).encode() for own in fields]
    texts += [
        b"\xff\xfe",
        b"[]",
        b"{",
        b"null",
        b'{"' * 5000,
        b"[" * 9_000,
        b"\0\0\0",
        b'{"id": 1' + b"0" * 5000 + b"}",
    ]
    good = line(client="odd.good")
    with ledger.client(WRITER) as client:
        answer = client.post(ROWS_PATH, content=b"\n".join([*texts, json.dumps(good).encode()]))
    counts = answer.json()
    assert answer.status_code == 200, answer.text
    assert sum(counts.values()) == len(texts) + 1
    assert counts["unreadable"] > 40
    assert server.rows("SELECT id FROM requests WHERE key = 'good'") == [{"id": good["id"]}]
    rows_equal_their_sums(server)


def test_a_row_after_a_torn_line_is_added(both: tuple[Server, Ledger]) -> None:
    """A process died in the middle of a line; the next one wrote behind it."""
    _, ledger = both
    whole = line(client="torn.a", path='/v1/{"a":"{')
    text = written(whole)
    with ledger.client(WRITER) as client:
        for cut in range(1, len(text) - 1, 7):
            later = line(client="torn.a", path='/v1/{"b{')
            answer = client.post(ROWS_PATH, content=text[:cut] + written(later))
            assert answer.json() == {"added": 1, "known": 0, "unreadable": 1}, cut
        assert client.post(ROWS_PATH, content=text.strip() + written(line(client="torn.a"))).json()["added"] == 2


def test_a_time_that_no_request_has_is_refused_and_old_months_go(both: tuple[Server, Ledger]) -> None:
    server, ledger = both
    oldest = (Month.of(NOW) + -13).start.timestamp()
    counts = ledger.send(line(started=oldest - 1), line(started=oldest + 1), line(started=NOW + 90_000))
    assert counts == {"added": 1, "known": 0, "unreadable": 2}
    months = [f"requests_{str(Month.of(NOW) + number).replace('-', '_')}" for number in (-13, 0, 1, 2)]
    there = " OR ".join(f"relname = '{month}'" for month in months)
    # Of months without a row, by the ledger that has just started.
    eventually(lambda: len(server.rows(f"SELECT FROM pg_class WHERE {there}")) == 4)
    server.sql("CREATE TABLE requests_2020_01 PARTITION OF requests FOR VALUES FROM ('2020-01-01') TO ('2020-02-01')")
    ledger.end()
    ledger.start()
    ledger.wait_ready()
    deadline = time.monotonic() + 20
    while server.rows("SELECT relname FROM pg_class WHERE relname = 'requests_2020_01'"):
        assert time.monotonic() < deadline, "the old month is still there"


def test_a_partition_that_is_lost_is_made_again(both: tuple[Server, Ledger]) -> None:
    server, ledger = both
    started = (Month.of(NOW) + -2).start.timestamp()
    assert ledger.send(line(started=started, client="lost.a"))["added"] == 1
    server.sql(f"DROP TABLE requests_{str(Month.of(started)).replace('-', '_')}; DELETE FROM usage_by_hour")
    server.sql("TRUNCATE requests, spent_by_month")
    assert ledger.send(line(started=started, client="lost.a"))["added"] == 1


def test_each_token_opens_what_it_is_for(both: tuple[Server, Ledger]) -> None:
    usage, costs = "organization/usage/completions?start_time=0", "organization/costs?start_time=0"
    paths = [f"/v1/{question}" for question in (usage, costs, "bills/a/2026-12", "spent")]
    answers = {}
    for token in ("", "wrong", WRITER, OPERATOR):
        with both[1].client(token) as client:
            answers[token] = [client.post(ROWS_PATH).status_code, *(client.get(path).status_code for path in paths)]
    assert answers == {"": [401] * 5, "wrong": [401] * 5, WRITER: [200, *[403] * 4], OPERATOR: [403, *[200] * 4]}


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/v1/organization/costs", "start_time: missing"),
        ("/v1/organization/costs?start_time=5&end_time=5", "end_time: not after"),
        ("/v1/organization/costs?start_time=5&bucket_width=1m", "1h, 1d"),
        ("/v1/organization/costs?start_time=5&group_by=user_id", "project_id, api_key_id, model, revision, tier"),
        ("/v1/organization/usage/completions?start_time=5&limit=32", "1 to 31"),
        ("/v1/organization/usage/completions?start_time=5&project_id=a", "project_ids"),
        ("/v1/bills/search/2026-13", "2026-12"),
        ("/v1/bills/search/2026-12?format=pdf", "json, csv, focus"),
    ],
)
def test_a_wrong_question_gets_what_is_allowed(operator: httpx.Client, path: str, code: str) -> None:
    answer = operator.get(path)
    assert answer.status_code == 422
    assert code in answer.json()["error"]["message"]
    assert "fix: " in answer.json()["error"]["message"]


def test_a_body_past_its_bounds_is_refused(both: tuple[Server, Ledger]) -> None:
    with both[1].client(WRITER) as client:
        assert client.post(ROWS_PATH, content=b"{}\n" * (MOST_LINES + 1)).status_code == 413
        assert client.post(ROWS_PATH, content=b" " * (2**20 + 1)).status_code == 413
        assert client.post(ROWS_PATH, content=b"{}\n" * MOST_LINES).json()["unreadable"] == MOST_LINES


def test_openais_client_reads_usage_and_costs(both: tuple[Server, Ledger]) -> None:
    server, ledger = both
    day = int(datetime(2026, 11, 20, tzinfo=UTC).timestamp())
    ledger.send(
        *(
            line(started=f"{day + 3600 * hour + 60}.0", client=f"{tenant}.ci", objective=f"{tier}.chat", status=status)
            for hour in (0, 5, 30)
            for tenant, tier, status in (("api", "batch", 200), ("api", "", 200), ("api", "", 503), ("other", "", 200))
        )
    )
    client = openai.OpenAI(base_url=f"{ledger.url}/v1", api_key="none", admin_api_key=OPERATOR)
    read = client.admin.organization.usage
    usage = read.completions(start_time=day, end_time=day + 2 * 86_400, group_by=["project_id", "model"]).to_dict()
    buckets: Any = usage["data"]
    assert [bucket["start_time"] - day for bucket in buckets] == [0, 86_400]
    results = {result["project_id"]: result for result in buckets[0]["results"]}
    assert set(results) == {"api", "other"}
    expected: dict[str, Any] = {"input_tokens": 6000, "input_cached_tokens": 2400, "output_tokens": 600}
    expected |= {"model": "chat", "api_key_id": None, "num_model_requests": 4, "num_failed_requests": 2}
    assert {name: results["api"][name] for name in expected} == expected
    tokens: dict[int, int] = {}
    hourly: Any = {"start_time": day + 10, "end_time": day + 86_400, "bucket_width": "1h", "limit": 4}
    hourly["project_ids"] = ["api"]
    for _ in range(6):
        answer: Any = read.completions(**hourly).to_dict()
        for bucket in answer["data"]:
            tokens[bucket["start_time"] - day] = sum(result["input_tokens"] for result in bucket["results"])
        hourly["page"] = answer["next_page"]
    assert answer["has_more"] is False
    assert tokens == {3600 * hour: 3000 if hour in (0, 5) else 0 for hour in range(24)}
    answer = read.costs(start_time=day, end_time=day + 86_400, project_ids=["api"], group_by=["project_id"]).to_dict()
    (cost,) = answer["data"][0]["results"]
    # Of three, one is of the tier at half price: 2.5 times 0.00022, twice.
    assert cost["amount"] == {"value": 0.0011, "currency": "eur", "exact": "0.0011"}
    rows_equal_their_sums(server)


@pytest.mark.row("000.32", "001.40")
def test_what_a_tenant_has_used_of_a_month_is_summed(both: tuple[Server, Ledger], operator: httpx.Client) -> None:
    """Over its keys, tiers and hours, from the month's first moment on, and in the currency of today's prices.

    A ledger that migrates the tables of an earlier one finds what that had.
    """
    server, ledger = both
    month = Month.of(time.time())
    first = int(month.start.timestamp())
    now = max(first, int(time.time()) - 3600)
    one_token = {"input_tokens": 1, "cached_input_tokens": 0, "output_tokens": 0}
    ledger.send(
        line(client="saver.a", started=f"{first - 1}.999999"),
        line(client="saver.a", started=f"{first}.000000"),
        line(client="saver.b", started=f"{now}.000000", objective="batch.chat"),
        line(client="saver.b", started=f"{now}.000000", **one_token),
        line(client="saver.b", started=f"{now}.000000", status=429, input_tokens=0, output_tokens=0),
        line(client="spender.a", started=f"{now}.000000"),
    )

    def spent() -> dict[str, Any]:
        answer: dict[str, Any] = operator.get("/v1/spent").json()
        return answer

    answer = spent()
    assert (answer["month"], answer["ends"]) == (str(month), (month + 1).start.timestamp())
    # 220 at the whole price, half of that, and a fifth of a millionth, which is not yet one.
    assert answer["tenants"]["saver"] == {"cost_millionths": 330, "tokens": 2201}
    assert answer["tenants"]["spender"] == {"cost_millionths": 220, "tokens": 1100}
    file = setting(ledger.folder, "--prices-file")
    before = file.read_text()
    file.write_text(before.replace("EUR", "CHF"))
    assert spent()["currency"] == "CHF"
    assert spent()["tenants"]["saver"] == {"cost_millionths": 0, "tokens": 2201}
    file.write_text(before)
    ledger.end()
    url = setting(ledger.folder, "--database-url-file")
    back = [sys.executable, "-m", "services.ledger.back", "0001", "--database-url-file", str(url)]
    subprocess.run(back, cwd=ROOT, check=True)
    # As an earlier program beside the first later one, which knows nothing of months.
    ledger.start()
    ledger.wait_ready()
    assert spent() == answer
    server.sql("UPDATE usage_by_hour SET input_tokens = input_tokens + 5 WHERE tenant = 'spender'")
    assert server.sql("UPDATE recounts SET due = now()").stdout == "UPDATE 1\n"
    ledger.end()
    ledger.start()
    ledger.wait_ready()
    eventually(lambda: spent()["tenants"]["spender"]["tokens"] == 1105)


def test_prices_are_read_again_and_unusable_ones_are_not_used(both: tuple[Server, Ledger]) -> None:
    server, ledger = both
    file = setting(ledger.folder, "--prices-file")
    before = file.read_text()

    def cost(model: str) -> tuple[int, str]:
        own = line(model=model, client="book.a")
        ledger.send(own)
        (row,) = server.rows(f"SELECT cost_pico, price_version FROM requests WHERE id = '{own['id']}'")
        return row["cost_pico"], row["price_version"]

    assert cost("new") == (0, "none")
    book: Any = json.loads(before)
    book["versions"][0]["models"]["new"] = {"input": 1, "cached_input": 1, "output": 1}
    file.write_text(json.dumps(book))
    assert cost("new")[0] == 1100
    file.write_text('{"currency": "EUR", "versions": [{"from": 0, "models": {"new": {"input": -1}}}]}')
    assert cost("new")[0] == 1100
    with ledger.client() as client:
        assert "inference_usage_prices_unusable 1.0" in client.get("/metrics").text
        assert client.get("/readyz").status_code == 200
    file.write_text(before)
    assert cost("new") == (0, "none")
    with ledger.client() as client:
        metrics = client.get("/metrics").text
    assert "inference_usage_prices_unusable 0.0" in metrics
    assert "inference_usage_unpriced_rows_total " in metrics


def test_no_secret_is_in_a_log(both: tuple[Server, Ledger]) -> None:
    text = both[1].log.read_text()
    assert [secret for secret in (OPERATOR, WRITER, PASSWORD) if secret in text] == []


def test_migrations_make_the_tables_that_the_program_uses(both: tuple[Server, Ledger]) -> None:
    made = asyncio.run(differences(both[0].url, KEPT, METADATA))
    # Each month's own table is no part of the description.
    assert [difference for difference in made if "requests_2" not in str(difference)] == []


def test_the_directory_may_have_its_tables_in_the_same_database(both: tuple[Server, Ledger]) -> None:
    server, ledger = both
    asyncio.run(differences(server.url, directory.KEPT, directory.METADATA))
    assert len(server.rows("SELECT version_num FROM alembic_version")) == 1
    assert server.rows("SELECT * FROM keys") == []
    assert ledger.send(line(client="shared.a"))["added"] == 1
