"""Budgets of a month: the front door in the pinned Envoy, a real gatekeeper, and a real ledger with its database.

The test itself is the AI gateway and the shipper: it tells the ledger what each request used.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from components.specs.access import TenantSpec
from components.specs.limits import LimitsSpec
from lab.paths import Lab
from services.ledger.months import Month
from tests.lab.gatekeeper_rig import MODEL, Rig, rig
from tests.lab.waiting import PATIENCE_S, eventually
from tests.unit.services import ledger_rig
from tests.unit.services.ledger_rig import Ledger, line

pytestmark = pytest.mark.row("000.32", "001.40", "004.17")

# Of one request of the ledger's rig, at its prices: 220 millionths.
TOKENS, COST = 1100, 0.00022
# As services/gatekeeper/budgets.go has it, and what a busy machine takes for an answer.
POLL_S, BUSY_S = 5, 5
BODY: dict[str, Any] = {"model": MODEL}


def tenant(**limits: Any) -> TenantSpec:
    return TenantSpec(models=(MODEL,), limits=LimitsSpec(**limits) if limits else None)


TENANTS = {
    "acme": tenant(spend_per_month=2.5 * COST),
    "words": tenant(tokens_per_month=3 * TOKENS),
    "brisk": tenant(tokens_per_month=20 * TOKENS),
    "globex": tenant(),
}


@dataclass
class Door:
    """The front door, and the ledger behind it."""

    rig: Rig
    ledger: Ledger

    def use(self, name: str, body: dict[str, Any] = BODY) -> httpx.Response:
        """One request, whose row is there before the next one."""
        answer = self.rig.ask(name, body)
        tokens = {} if answer.status_code == 200 else {"input_tokens": 0, "output_tokens": 0}
        row = line(client=f"{name}.key", started=f"{time.time():.6f}", status=answer.status_code, **tokens)
        self.ledger.send(row)
        return answer

    def share(self, name: str) -> dict[str, float]:
        """Of each of its budgets, as it is measured."""
        pattern = rf'^gatekeeper_budget_used_ratio{{budget="(\w+)",tenant="{name}"}} (\S+)$'
        shares = re.findall(pattern, self.rig.state_of("/metrics").text, re.MULTILINE)
        return {budget: float(share) for budget, share in shares}

    def is_refused(self, name: str) -> bool:
        return self.rig.ask(name, BODY).status_code == 429


@pytest.fixture(scope="module")
def door(module_lab_of_tools: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with (
        ledger_rig.running(tmp_path_factory.mktemp("ledger")) as (_, ledger),
        rig(module_lab_of_tools, tmp_path_factory.mktemp("rig"), TENANTS, ledger=ledger.url) as made,
    ):
        yield Door(made, ledger)


def test_a_spent_budget_refuses_its_tenant_alone(door: Door) -> None:
    """On every path that costs; what it may call is still listed."""
    for _ in range(2):
        assert door.use("acme").status_code == 200
    eventually(lambda: door.share("acme") == {"spend_per_month": 0.8})
    assert door.use("acme").status_code == 200
    eventually(lambda: door.is_refused("acme"))
    assert door.share("acme") == {"spend_per_month": 1.2}
    before = time.time()
    refused, now = door.rig.ask("acme", {**BODY, "stream": True}), time.time()
    month = Month.of(now)
    ends = (month + 1).start
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["type"]) == (429, "insufficient_quota", "insufficient_quota")
    assert error["message"] == (
        f"This tenant has used its spend_per_month of 0.00055 EUR: 0.00066 EUR in {month}. It may go on at "
        f"{ends:%Y-%m-%dT%H:%M:%SZ}."
    )
    assert refused.headers["x-should-retry"] == "false"
    # In whole seconds, rounded up, from the moment of the refusal.
    assert ends.timestamp() - now - 5 < int(refused.headers["retry-after"]) < ends.timestamp() - before + 1
    assert door.rig.ask("acme", {**BODY, "input": "x"}, "/v1/embeddings").status_code == 429
    assert door.rig.client.get("/v1/models", headers=door.rig.headers("acme")).status_code == 200
    assert door.use("globex").status_code == 200
    assert 'gatekeeper_bodies_total{answer="insufficient_quota.spend_per_month"}' in door.rig.state_of("/metrics").text


def test_a_larger_budget_lets_it_go_on(door: Door) -> None:
    """Within the seconds in which the gatekeeper reads its files again; what it has used still counts."""
    for _ in range(3):
        assert door.use("words").status_code == 200
    eventually(lambda: door.is_refused("words"))
    door.rig.tenants = {**TENANTS, "words": tenant(tokens_per_month=4 * TOKENS)}
    door.rig.write_files()
    eventually(lambda: not door.is_refused("words"))
    assert door.share("words") == {"tokens_per_month": 0.75}
    door.use("words")
    eventually(lambda: door.is_refused("words"))


def test_a_budget_is_exceeded_by_what_begins_within_a_poll_and_by_what_is_under_way(door: Door) -> None:
    begun, finished = list[float](), list[httpx.Response]()
    held = threading.Thread(target=lambda: finished.append(door.use("brisk", {**BODY, "stream": True})))
    held.start()
    deadline = time.time() + PATIENCE_S
    while True:
        began = time.time()
        assert began < deadline, "it is never refused"
        if door.use("brisk").status_code == 429:
            break
        begun.append(began)
    assert len(begun) >= 20
    assert begun[-1] - begun[19] < POLL_S + BUSY_S
    door.rig.engine.go_on.set()
    held.join()
    assert finished[0].status_code == 200


def test_without_the_ledger_its_last_answer_counts_and_a_new_gatekeeper_knows_none(door: Door) -> None:
    """It says so in a metric, and holds budgets again once the ledger is back."""
    assert door.is_refused("brisk")
    door.ledger.end()
    # Longer than until it asks again, and hears nothing.
    time.sleep(POLL_S + 1)
    assert door.is_refused("brisk")
    door.rig.kill("gatekeeper")
    door.rig.start_gatekeeper()
    eventually(lambda: door.rig.ask("brisk", BODY).status_code == 200)
    never = "gatekeeper_budgets_last_answer_timestamp_seconds 0\n"
    assert never in door.rig.state_of("/metrics").text
    assert door.share("brisk") == {}
    door.ledger.start()
    door.ledger.wait_ready()
    eventually(lambda: door.is_refused("brisk"))
    assert never not in door.rig.state_of("/metrics").text


class SimulatedLedger(ThreadingHTTPServer):
    """Has answers about a month that goes on until a test ends it, and then none any more."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Spent)
        self.ends = int(time.time()) + 3600
        self.given = 0
        self.answers = True


class _Spent(BaseHTTPRequestHandler):
    server: SimulatedLedger

    def do_GET(self) -> None:
        used = {"words": {"cost_millionths": 0, "tokens": 10**9}}
        ends = self.server.ends
        answer = {"month": "2026-12", "ends": ends, "currency": "EUR", "tenants": used}
        self.send_response(200 if self.server.answers else 503)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())
        self.server.given = ends

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def test_a_month_that_is_over_holds_no_one_back(lab_of_tools: Lab, tmp_path: Path) -> None:
    """By the gatekeeper's own clock, also while the ledger is away."""
    with SimulatedLedger() as ledger:
        threading.Thread(target=ledger.serve_forever, daemon=True).start()
        with rig(lab_of_tools, tmp_path, TENANTS, ledger=f"http://127.0.0.1:{ledger.server_port}") as made:
            # From the first decision on: a new gatekeeper asks before it answers anyone.
            assert made.ask("words", BODY).status_code == 429
            # Not from the start: a busy machine takes long to start an Envoy.
            ledger.ends = int(time.time()) + 8
            eventually(lambda: ledger.given == ledger.ends)
            ledger.answers = False
            eventually(lambda: made.ask("words", BODY).status_code == 200)
            assert time.time() >= ledger.ends
        ledger.shutdown()
