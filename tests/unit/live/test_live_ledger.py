"""The live checks of the ledger, each on what it is there to find; the lab's site has no ledger."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from sitectl.live import ledger
from sitectl.live.ledger import Used
from stacks.plan.site_plan import SitePlan, plan_file, plan_values
from tests.live import test_live_ledger as checks
from tests.live.running import Object, RunningSite
from tests.unit.stacks.site_examples import prod

pytestmark = pytest.mark.row("opening 5", "000.35")

PROD = plan_file(Path(__file__).parents[3] / "Pulumi.prod.yaml")
MODEL, ROW = "qwen3-32b", (1, 10, 8)


def line(quantity: int, price: str, cost: str, kind: str = "input") -> Object:
    return {"model": MODEL, "kind": kind, "quantity": quantity, "unit_price": price, "currency": "EUR", "cost": cost}


LINES = [line(2_000_000, "0.30", "0.60"), line(500_001, "1.10", "0.5500011"), line(3600, "5000000.00", "18000", "idle")]


@dataclass
class Usage:
    """What a ledger answers; a row is there once it was asked so often."""

    late: int = 0
    cost: Decimal = Decimal("1.1500011")
    total: str = "18001.15"
    rows: int = 0

    def used(self, _: datetime, __: datetime, by: list[str], tenant: str | None) -> list[Used]:
        self.rows += 1
        counted = ROW if self.rows > 1 + self.late else (0, 0, 0)
        group = {"key": "app", "model": MODEL, "day": "2026-12-01", "tenant": str(tenant)}
        return [
            Used(
                group=tuple(group[name] for name in by),
                requests=counted[0],
                failed=0,
                input_tokens=counted[1],
                cached_tokens=0,
                output_tokens=counted[2],
                costs={"EUR": self.cost},
            )
        ]

    def bill(self, *_: str) -> str:
        return json.dumps({"lines": LINES, "totals": [{"currency": "EUR", "total": self.total}]})


class Clock:
    """One that goes on while someone sleeps."""

    def __init__(self) -> None:
        self.now = time.time()

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass(frozen=True, kw_only=True)
class Site(RunningSite):
    """Its Envoy pods, how old their oldest line is, and a model that answers."""

    oldest: dict[str, float] = field(default_factory=lambda: {"envoy-a": 2.0, "envoy-b": 0.0})

    def prometheus(self, path: str, **parameters: str) -> Object:
        assert (path, parameters) == ("query", {"query": checks.OLDEST})
        return {"result": [{"metric": {"pod": pod}, "value": [0, str(age)]} for pod, age in self.oldest.items()]}

    def pods(self, *_: object) -> list[Object]:
        return [{"metadata": {"name": name}} for name in ("envoy-a", "envoy-b")]

    def key_for(self, _: str) -> str:
        return "secret"

    def http(self, _: str | None) -> httpx.Client:
        usage = {"prompt_tokens": ROW[1], "completion_tokens": ROW[2]}
        answer = httpx.MockTransport(lambda _: httpx.Response(200, json={"usage": usage}))
        return httpx.Client(transport=answer, base_url="http://site")


def site(plan: SitePlan = PROD, **more: Any) -> Site:
    keys = {"archive.app": "secret"}
    return Site(name="prod", plan=plan, endpoint="", keys=keys, kubeconfig={}, **more)


@pytest.fixture
def usage(monkeypatch: pytest.MonkeyPatch) -> Usage:
    own = Usage()

    @contextmanager
    def of_cluster(_: object) -> Iterator[Usage]:
        yield own

    monkeypatch.setattr(ledger, "of_cluster", of_cluster)
    monkeypatch.setattr(checks, "generators", lambda of: [of.plan.named[MODEL]])
    monkeypatch.setattr(checks, "time", Clock())
    return own


def test_a_row_that_comes_is_waited_for_and_one_that_does_not_is_found(usage: Usage) -> None:
    evidence: list[str] = []
    usage.late = 3
    checks.test_a_request_has_its_row_in_time(site(), evidence.append)
    assert evidence == [f"archive.app at {MODEL}: a row within {usage.late * checks.LOOK_EVERY_S:.0f} s"]
    usage.rows, usage.late = 0, 10**6
    with pytest.raises(AssertionError, match=rf"no row of a request of archive\.app after {checks.ROW_S:.0f} s"):
        checks.test_a_request_has_its_row_in_time(site(), evidence.append)


def test_a_gateway_that_waits_or_is_not_measured_is_found() -> None:
    evidence: list[str] = []
    checks.test_no_usage_waits_at_the_gateway(site(), evidence.append)
    assert evidence[0] == "envoy-a: the oldest line is of 2 s ago"
    with pytest.raises(AssertionError, match="envoy-b is not measured; envoy-a has had a line for 90 s"):
        checks.test_no_usage_waits_at_the_gateway(site(oldest={"envoy-a": 90.0}), evidence.append)


def test_a_bill_that_is_not_what_its_rows_cost_is_found(usage: Usage) -> None:
    """Idle GPUs are on bills, and cost no row."""
    evidence: list[str] = []
    checks.test_each_bill_is_what_its_rows_cost(site(), evidence.append)
    assert "18001.15 EUR of 3 lines" in evidence[0]
    usage.total = "18001.16"
    with pytest.raises(AssertionError, match=r"18001\.16 EUR in all, and its lines come to 18001\.1500011"):
        checks.test_each_bill_is_what_its_rows_cost(site(), evidence.append)
    usage.total, usage.cost = "18001.15", Decimal("1.25")
    with pytest.raises(AssertionError, match=r"1\.1500011 EUR billed, and its rows cost 1\.25 to 1\.25"):
        checks.test_each_bill_is_what_its_rows_cost(site(), evidence.append)
    wrong = checks.not_added_up({"lines": [line(1_000_000, "0.30", "0.31")], "totals": []}, {}, {"EUR": Decimal(1)})
    assert wrong == [f"1000000 of {MODEL} at 0.30 do not cost 0.31"]


def test_a_site_without_a_ledger_has_no_such_check() -> None:
    plan = plan_values(prod(), "site.yaml")
    for check in (
        checks.test_a_request_has_its_row_in_time,
        checks.test_no_usage_waits_at_the_gateway,
        checks.test_each_bill_is_what_its_rows_cost,
    ):
        with pytest.raises(pytest.skip.Exception, match="no ledger of usage"):
            check(site(plan), list[str]().append)
