"""`usage` and `bill`: against a real ledger, by a stand-in for kubectl and the API server behind it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.ledger.months import Month
from sitectl.shell.errors import Exit
from stacks.plan.gpu_time import token_time
from stacks.plan.site_plan import plan_file
from stacks.site.loader import KEY
from tests import documented
from tests.unit.services import ledger_rig
from tests.unit.services.ledger_rig import OPERATOR, WRITER, Ledger, line
from tests.unit.services.postgres_rig import setting
from tests.unit.sitectl.site_with_service import AskedSite
from tests.unit.sitectl.sites_to_work_on import CommandResult

pytestmark = [pytest.mark.processes, pytest.mark.row("004.13", "000.35")]

# A ledger takes no rows of the future, and none that are older than it keeps.
MONTH = Month.of(time.time()) + -1
START = int(MONTH.start.timestamp())
# By what they cost at 0.20, 0.05 and 0.80 per million: 0.220 for 1.6 million tokens, and half of it for the batch.
ROWS = [
    line(started=f"{START + 10}.0", input_tokens=1_000_000, cached_input_tokens=400_000, output_tokens=100_000),
    line(
        started=f"{START + 86_400}.0",
        client="search.nightly",
        objective="batch.chat",
        input_tokens=1_000_000,
        cached_input_tokens=400_000,
        output_tokens=100_000,
    ),
    line(started=f"{START + 20}.0", client="sales.ci", status=429, input_tokens=0, output_tokens=0),
]


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    with ledger_rig.running(tmp_path_factory.mktemp("ledger")) as (_, ledger):
        ledger.send(*ROWS)
        yield ledger


@pytest.fixture
def site(tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> AskedSite:
    made = AskedSite(tmp_path, "ledger", ledger.port, OPERATOR)
    monkeypatch.setenv("PATH", made.path)
    return made


def shown(site: AskedSite, command: list[str]) -> CommandResult:
    """A command of the page, for this site and the month of the rows."""
    return site.run(*({"prod": "lab", "2026-11": str(MONTH)}.get(word, word) for word in command[3:]))


def test_usage_is_added_up_by_what_is_asked(site: AskedSite) -> None:
    usage = shown(site, documented.argv("python -m sitectl usage prod --month 2026-11 --by tenant,key --json"))
    assert usage.status == Exit.OK, usage.err
    rows = {(row["tenant"], row["key"]): row for row in json.loads(usage.out)["usage"]}
    assert {group: (row["requests"], row["failed"], row["costs"]["EUR"]) for group, row in rows.items()} == {
        ("sales", "ci"): (0, 1, "0.00"),
        ("search", "ci"): (1, 0, "0.22"),
        ("search", "nightly"): (1, 0, "0.11"),
    }
    assert rows["search", "ci"]["cached_tokens"] == 400_000
    of_now = shown(site, documented.argv("python -m sitectl usage prod"))
    assert of_now.out.splitlines()[-1].startswith(f"lab, {MONTH + 1}: 0 requests")
    of_tenant = shown(site, documented.argv("python -m sitectl usage prod --by day,model --tenant search"))
    assert of_tenant.status == Exit.OK
    by_day = site.run("usage", "lab", "--month", str(MONTH), "--by", "model,day", "--tenant", "search").out.splitlines()
    assert [line.split()[:3] for line in by_day] == [
        ["DAY", "MODEL", "REQUESTS"],
        [f"{MONTH}-01", "chat", "1"],
        [f"{MONTH}-02", "chat", "1"],
        ["lab,", f"{MONTH}:", "2"],
    ]
    assert by_day[-1] == f"lab, {MONTH}: 2 requests, 0.33 EUR"


def test_amounts_of_two_currencies_are_apart(site: AskedSite, ledger: Ledger) -> None:
    """Of a site that has priced in another one before: half of a tenant's rows here."""
    prices = setting(ledger.folder, "--prices-file")
    before = prices.read_text()
    prices.write_text(before.replace("EUR", "CHF"))
    month = MONTH + -2
    started = f"{int(month.start.timestamp()) + 5}.0"
    tokens = {"input_tokens": 1_000_000, "cached_input_tokens": 0, "output_tokens": 0}
    ledger.send(line(started=started, **tokens))
    prices.write_text(before)
    ledger.send(line(started=started, objective="batch.chat", **tokens))
    text = site.run("usage", "lab", "--month", str(month))
    assert text.status == Exit.OK, text.err
    assert text.out.splitlines()[-1] == f"lab, {month}: 2 requests, 0.20 CHF and 0.10 EUR"
    data = json.loads(site.run("usage", "lab", "--month", str(month), "--json").out)
    assert [row["costs"] for row in data["usage"]] == [{"CHF": "0.20", "EUR": "0.10"}]
    with_a_load(site)
    costs = site.run("costs", "lab", "--month", str(month))
    assert "tenants owe 0.20 CHF and 0.10 EUR" in costs.out


def test_a_bill_is_printed_in_each_form(site: AskedSite) -> None:
    text = shown(site, documented.argv("python -m sitectl bill prod search"))
    assert text.status == Exit.OK, text.err
    assert text.out.splitlines()[-1].startswith(f"search at lab, {MONTH}: 0.33 EUR")
    assert [line.split() for line in text.out.splitlines()[1:4]] == [
        ["chat", "batch", "nightly", "input", "600,000", "0.10", "0.060000"],
        ["chat", "batch", "nightly", "cached_input", "400,000", "0.025", "0.010000"],
        ["chat", "batch", "nightly", "output", "100,000", "0.40", "0.040000"],
    ]
    bill = json.loads(site.run("bill", "lab", "search", "--month", str(MONTH), "--format", "json").out)
    assert bill["totals"] == [{"currency": "EUR", "exact": "0.33", "total": "0.33"}]
    focus = shown(
        site, documented.argv("python -m sitectl bill prod search --month 2026-11 --format focus")
    ).out.splitlines()
    assert {"BilledCost", "ChargePeriodStart", "ServiceName"} <= set(focus[0].split(","))
    assert len(focus) > 6


def with_a_load(site: AskedSite, **more: Any) -> None:
    """Its model is proven for one, and its GPUs have a price. more: keys of the model."""
    file = site.project / "Pulumi.lab.yaml"
    document = yaml.safe_load(file.read_text())
    values = document["config"][KEY]
    load = {"requests_per_s": 1, "prompt_tokens": {"p50": 1000, "p95": 6000}, "answer_tokens": {"p50": 250, "p95": 500}}
    chat = {"catalogue": "qwen3-32b-fp8", "load": load, "server": {"engine": "simulator"}} | more
    values |= {"callers": {"decided_by": "gatekeeper"}} if more else {}
    values |= {"prices": {"gpu_hour": 2.5}, "models": {"chat": chat}}
    values["tenants"] = {"search": {"models": ["chat"], "keys": {"ci": {}}}}
    file.write_text(yaml.safe_dump(document))


@pytest.mark.row("001.15", "001.40")
def test_usage_is_counted_in_seconds_of_a_gpu(site: AskedSite, ledger: Ledger) -> None:
    """As the proof has it, alike for whatever it is added up by; a model without a load has none."""
    month = ("usage", "lab", "--month", str(MONTH), "--json")
    assert {row["gpu_seconds"] for row in json.loads(site.run(*month).out)["usage"]} == {None}
    with_a_load(site)
    time = token_time(plan_file(site.project / "Pulumi.lab.yaml").named["chat"])
    assert time is not None
    of_one = time.of(1_000_000, 400_000, 100_000)
    for by, group in (("tenant,model", "tenant"), ("day", "day"), ("key", "key")):
        rows = json.loads(site.run(*month, "--by", by).out)["usage"]
        seconds = {row[group]: row["gpu_seconds"] for row in rows}
        assert sum(seconds.values()) == pytest.approx(2 * of_one, rel=1e-4), by
    assert seconds == {"ci": pytest.approx(of_one, rel=1e-4), "nightly": pytest.approx(of_one, rel=1e-4)}
    # An earlier ledger has no group of this name.
    site.set(replaced=["group_by=revision", "group_by=later"])
    earlier = site.run(*month[:-1])
    assert (earlier.status, earlier.out.splitlines()[1].split()[-3:]) == (Exit.OK, ["-", "0.00", "EUR"])
    assert "no GPU-seconds: the ledger is an earlier one (group_by: no group" in earlier.err
    site.set()
    (head, *_) = site.run("usage", "lab", "--month", str(MONTH)).out.splitlines()
    assert head.split()[-2:] == ["GPU-S", "COST"]
    own = {"tenants": ["search"], "server": {"replicas": 1}, "load": {"requests_per_s": 0.1}}
    # In larger steps, a token takes another time.
    with_a_load(site, dedicated={"own": own}, slo={"ttft_p95_ms": 4000})
    times = [token_time(plan_file(site.project / "Pulumi.lab.yaml").named[name]) for name in ("chat--for-own", "chat")]
    assert None not in times and times[0] != times[1]
    tokens = (1_000_000, 400_000, 100_000)
    before = MONTH + -1
    began = int(before.start.timestamp())
    counted = dict(zip(("input_tokens", "cached_input_tokens", "output_tokens"), tokens, strict=True))
    ledger.send(*(line(started=f"{began}.0", revision=name, **counted) for name in ("chat--for-own", None)))
    command = documented.argv("python -m sitectl usage prod --by model,revision --json")
    words = [{"prod": "lab"}.get(word, word) for word in command[3:]]
    rows = json.loads(site.run(*words, "--month", str(before)).out)["usage"]
    assert [(row["model"], row["revision"], row["requests"]) for row in rows] == [
        ("chat", "chat", 1),
        ("chat", "chat--for-own", 1),
    ]
    expected = [pytest.approx(taken.of(*tokens), rel=1e-4) for taken in reversed(times) if taken]
    assert [row["gpu_seconds"] for row in rows] == expected


@pytest.mark.row("000.04", "004.17", "opening 15")
def test_costs_show_what_tenants_owe_and_what_stood_idle(site: AskedSite) -> None:
    """2 replicas of 2.42 requests/s at the slow end would carry thousands of times as much."""
    command = documented.argv("python -m sitectl costs prod --month 2026-11 --json")
    assert "fix: set prices.gpu_hour in the file of lab" in shown(site, command).err
    with_a_load(site)
    costs = shown(site, command)
    assert costs.status == Exit.OK, costs.err
    data = json.loads(costs.out)
    served, *rest = data["models"]
    assert (served["model"], served["gpus"], served["tokens"], served["billed"]["EUR"]) == (
        "chat",
        2,
        2_200_000,
        "0.33",
    )
    assert (served["cost"], data["hours"]) == (pytest.approx(2 * 2.5 * data["hours"]), pytest.approx(730, abs=60))
    assert 0 < served["used_share"] < 0.001
    band = served["used_share_over_the_band"]
    assert band["fast"] < served["used_share"] < band["slow"]
    assert [row["model"] for row in rest] in ([], [None])
    assert data["idle_share"] > 0.99
    lines = site.run("costs", "lab", "--month", str(MONTH)).out.splitlines()
    assert lines[0].split()[:3] == ["MODEL", "GPUS", "TOKENS"]
    assert "  0 % (0 to 0 %)  " in lines[1]
    assert lines[-1].endswith("tenants owe 0.33 EUR; 100 % stood idle")
    now = shown(site, documented.argv("python -m sitectl costs prod"))
    assert "tenants owe 0.00 EUR" in now.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("usage", "lab", "--month", "2026-13"), "got '2026-13'; allowed: a year and a month of UTC"),
        (("usage", "lab", "--by", "tenant,colour"), "allowed: some of tenant,key,model,revision,tier,day, each once"),
        (("bill", "lab", "search", "--format", "pdf"), "allowed: text, csv, json, focus"),
    ],
)
def test_a_wrong_command_line_asks_nothing(site: AskedSite, words: tuple[str, ...], says: str) -> None:
    site.set(refuses="asked")
    wrong = site.run(*words)
    assert wrong.status == Exit.USAGE
    assert says in wrong.err
    assert "asked" not in wrong.err


def test_a_site_without_a_ledger_is_reported_with_its_setting(site: AskedSite) -> None:
    site.set(token="")
    refused = site.run("usage", "lab")
    assert refused.status == Exit.REFUSED
    assert "lab has no ledger of usage: not found\n  fix: set usage.database_secret in the file of lab" in refused.err


def test_a_shipper_s_token_reads_no_bill(site: AskedSite) -> None:
    site.set(token=WRITER)
    refused = site.run("bill", "lab", "search")
    assert (refused.status, refused.out) == (Exit.REFUSED, "")
    assert "the token is not for this request" in refused.err
