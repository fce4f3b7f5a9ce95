"""Orders of a served model by the portal's API and in Chromium: to the first event of an answer with the new key.

An order makes a key and no object of Kubernetes (docs/adr/0055-portal-keeps-nothing.md), which the benchmark counts.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click
import httpx

from benchmarks import browser, issuer, many_tenants, models
from benchmarks.arithmetic import percentile
from benchmarks.models import Bench
from benchmarks.report import Result, Table, note
from lab.cluster import operator_database
from lab.errors import LabError
from lab.paths import Lab
from services.directory.acts import MOST_ACTS
from services.portal import variables

HELP = "orders by the portal's API with 500 others present: time to the first streamed answer, and what they leave"
MODEL = "bench-ordered"
GOAL_S = 10.0
_HOST, _LOGIN, _CLIENT = "portal.site.example", "portal-login", "inference-portal"
_EACH = MOST_ACTS // 2
"""Orders of one person and tenant: so many are made and removed within a minute."""
_IN_BROWSER = 5
_AT_ONCE = 4
_PATIENCE_S = 60.0
_AGAIN_S = 0.02
# What the cluster writes by itself.
_OWN = ("events", "leases", "metrics.k8s.io")
PARAMETERS = (
    click.Option(
        ["--orders-present"], type=int, default=500, show_default=True, help="orders: made before, and removed after"
    ),
    click.Option(["--orders-timed"], type=int, default=200, show_default=True, help="orders: that are timed"),
)


@dataclass(frozen=True, kw_only=True)
class Order:
    """One key."""

    id: str
    tenant: str
    key: str


class Portal:
    """Its API, for the one person of each tenant."""

    def __init__(self, address: str, token_of: Callable[[str], str]) -> None:
        headers = {"Host": _HOST}
        self.address, self._token_of = address, functools.lru_cache(maxsize=None)(token_of)
        self._client = httpx.Client(base_url=f"http://{address}/api/v1", headers=headers, trust_env=False, timeout=60)

    def order(self, number: int) -> Order:
        """A key of the model, in the tenant that has room for it."""
        tenant = _tenant(number)
        body = {"tenant": tenant, "model": MODEL, "name": f"order-{number}", "expires_in_days": 7}
        made = self._taken(self._client.post("/keys", json=body, headers=self._as(tenant)))
        return Order(id=made["id"], tenant=tenant, key=made["key"])

    def revoke(self, order: Order) -> None:
        headers, asked = self._as(order.tenant), {"tenant": order.tenant}
        self._taken(self._client.delete(f"/keys/{order.id}", params=asked, headers=headers))

    def working(self, tenants: Sequence[str]) -> int:
        """Keys that work."""
        listed = (
            self._taken(self._client.get("/keys", params={"tenant": tenant}, headers=self._as(tenant)))["keys"]
            for tenant in tenants
        )
        return sum(key["state"] == "works" for keys in listed for key in keys)

    def is_there(self) -> bool:
        try:
            return self._client.get("/models", headers=self._as(_tenant(0))).status_code == 200
        except httpx.TransportError:
            return False

    def _as(self, tenant: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token_of(_person(tenant))}"}

    @staticmethod
    def _taken(answer: httpx.Response) -> dict[str, Any]:
        if answer.is_error:
            raise LabError(f"the portal answers {answer.status_code} {answer.text[:200]}", fix="python -m lab logs")
        taken: dict[str, Any] = answer.json()
        return taken


def run(lab: Lab, *, orders_present: int, orders_timed: int) -> Result:
    """Raises LabError when the platform does not come up, a key does not live or die in time, or an object stays."""
    models.give_databases(lab, operator_database.DIRECTORY, operator_database.USAGE)
    models.give_secret(lab, _LOGIN, {variables.CLIENT_SECRET_KEY: "of-the-portal"})
    # The tenant after the last one is for the browser.
    with _selling(lab, orders_present + orders_timed + _EACH) as (bench, portal):
        before = _objects(lab)
        orders = _all_of(portal.order, range(orders_present))
        present = portal.working(sorted({order.tenant for order in orders}))
        timed, seconds, ordered = [], [], []
        for number in range(orders_present, orders_present + orders_timed):
            began = time.perf_counter()
            timed.append(portal.order(number))
            ordered.append(time.perf_counter() - began)
            _first_event(bench, timed[-1].key)
            seconds.append(time.perf_counter() - began)
        in_browser, on_page = _in_browser(bench, portal, _tenant(orders_present + orders_timed + _EACH - 1))
        with_orders = _objects(lab)
        note(f"{present} orders present; p99 of {orders_timed}: {percentile(seconds, 0.99):.2f} s")
        began = time.perf_counter()
        _all_of(portal.revoke, [*orders, *timed])
        removed_s = time.perf_counter() - began
        _all_of(lambda order: _refused(bench, order.key), [*orders, *timed])
        left = portal.working(sorted({order.tenant for order in (*orders, *timed)}))
        after = _objects(lab)
    if present != orders_present or left:
        raise LabError(f"{present} of {orders_present} orders worked, and {left} were left", fix="python -m lab logs")
    more = sorted((with_orders | after) - before)
    p50, p99 = (round(percentile(seconds, share), 2) for share in (0.5, 0.99))
    return Result(
        benchmark="orders",
        question="How long does an order of a served model take to its first streamed answer, and what does it leave?",
        conditions={
            "site": "the lab's, with a gatekeeper, a directory and a portal; the model is a simulator",
            "order": "a key of one model, by POST /api/v1/keys; no route and no other object of its own",
            "times": f"{orders_timed} orders, one after another, from the POST to the first event of the answer; "
            f"asked for again every {_AGAIN_S:g} s until the key is taken",
            "browser": f"{_IN_BROWSER} orders in Chromium, from the page of the model to the first event, with the "
            "click, the page with the key, and the reading of it; then the page of usage is loaded until it has them",
        },
        tables=[
            Table(
                title="Orders",
                rows=[
                    {
                        "present": present,
                        "timed": orders_timed,
                        "to the key p50, s": round(percentile(ordered, 0.5), 2),
                        "to the first event p50, s": p50,
                        "p99, s": p99,
                        "slowest, s": round(max(seconds), 2),
                        "objects more": len(more),
                        "removed": len(orders) + len(timed),
                        "removed in, s": round(removed_s, 1),
                        "left": left,
                    }
                ],
            ),
            Table(
                title="Orders in a browser",
                rows=[
                    {"order": number, "to the first event, s": round(answered, 2), "tokens on the page after, s": seen}
                    for number, (answered, seen) in enumerate(zip(in_browser, on_page, strict=True), 1)
                ],
            ),
        ],
        findings=[
            f"{_IN_BROWSER} orders in a browser took {max(in_browser):.1f} s at most to the first event; their tokens "
            f"were on the page after {max(on_page):g} s at most.",
            f"p99 of {orders_timed} orders with {present} present is {p99} s, "
            f"{'below' if p99 < GOAL_S else 'above'} {GOAL_S:g} s.",
            f"{len(more)} Kubernetes objects more with them than before" + (f": {', '.join(more)}." if more else "."),
            f"All {len(orders) + len(timed)} were removed and refused by the gateway; {left} are left.",
        ],
    )


def _in_browser(bench: Bench, portal: Portal, tenant: str) -> tuple[list[float], list[float]]:
    """Seconds of each order to the first event, and from that until the page of usage counts its request."""
    site, answered, seen = f"http://{_HOST}", [], []
    with browser.chromium({_HOST: portal.address}) as running:
        page = running.new_page()
        page.set_default_timeout(_PATIENCE_S * 1000)
        browser.logged_in(page, site, _person(tenant))
        for number in range(1, _IN_BROWSER + 1):
            began = time.perf_counter()
            _first_event(bench, browser.order(page, site, MODEL, f"seen-{number}"))
            answered.append(time.perf_counter() - began)
            began = time.perf_counter()
            while f"-seen-{number}" not in page.goto(f"{site}/usage").text():  # type: ignore[union-attr]
                if time.perf_counter() - began > _PATIENCE_S:
                    raise LabError("a request is not on the page of usage", fix="python -m lab logs")
            seen.append(round(time.perf_counter() - began, 1))
    return answered, seen


@contextmanager
def _selling(lab: Lab, orders: int) -> Iterator[tuple[Bench, Portal]]:
    """The site with a portal, and so many tenants of one person that there is room for the orders."""
    address = str(lab.network.load_balancers[20])
    tenants = [_tenant(number) for number in range(0, orders, _EACH)]
    with issuer.issuing(str(lab.network.uplink[1]), {_person(tenant): [tenant] for tenant in tenants}) as issuing:

        def edit(site: dict[str, Any]) -> None:
            site["callers"] = {
                "decided_by": "gatekeeper",
                "database_secret": operator_database.DIRECTORY,
                "pepper": "disposable",
            }
            site["portal"] = {
                "hostname": _HOST,
                "port": 80,
                "address": address,
                "issuer": issuing.url,
                "client_id": _CLIENT,
                "client_secret": _LOGIN,
            }
            site["usage"] = {
                "database_secret": operator_database.USAGE,
                "prices": [{"since": "2026-01-01", "models": {MODEL: {"input": 1, "output": 2}}}],
            }
            for tenant in tenants:
                site["tenants"][tenant] = {"models": [], "keys": {}, "people": {"users": [tenant]}}

        with models.served(lab, {MODEL: models.simulator(replicas=1)}, edit) as bench:
            portal = Portal(address, lambda person: issuing.token(person, _CLIENT))
            deadline = time.monotonic() + _PATIENCE_S
            while not portal.is_there():
                if time.monotonic() > deadline:
                    raise LabError(f"the portal does not answer within {_PATIENCE_S:.0f} s", fix="python -m lab logs")
                # Its pods start beside all others.
                time.sleep(0.5)
            yield bench, portal


def _tenant(number: int) -> str:
    return f"buyers-{number // _EACH:03}"


def _person(tenant: str) -> str:
    return f"of-{tenant}"


def _all_of(act: Callable[[Any], Any], what: Sequence[Any]) -> list[Any]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(act, what))


def _first_event(bench: Bench, key: str) -> None:
    """Ask until the key is taken, and read the first event. Raises LabError after a minute."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "stream": True}
    deadline = time.monotonic() + _PATIENCE_S
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(verify=bench.front.trust, headers=headers, trust_env=False, timeout=_PATIENCE_S) as client:
        while time.monotonic() < deadline:
            with client.stream("POST", f"{bench.front.endpoint}/chat/completions", json=body) as answer:
                if answer.status_code == 200:
                    next(line for line in answer.iter_lines() if line.startswith("data:"))
                    return
            # No gateway reports that it knows a key.
            time.sleep(_AGAIN_S)
    raise LabError(f"no answer with a new key within {_PATIENCE_S:.0f} s", fix="python -m lab logs")


def _refused(bench: Bench, key: str) -> None:
    with httpx.Client(base_url=bench.front.endpoint, verify=bench.front.trust, trust_env=False) as door:
        many_tenants.until_answered(door, key, 401)


def _objects(lab: Lab) -> set[str]:
    """Names of all objects of the cluster that it does not write by itself."""
    environment = {**os.environ, "KUBECONFIG": str(lab.kubeconfig)}
    kubectl = str(lab.bin / "kubectl")

    def run_kubectl(*words: str) -> str:
        done = subprocess.run([kubectl, *words], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"kubectl {words[0]}: {done.stderr.strip()}", fix="python -m lab status")
        return done.stdout

    kinds = [
        kind
        for kind in run_kubectl("api-resources", "--verbs=list", "--output=name").split()
        if not any(own in kind for own in _OWN)
    ]
    listed = json.loads(run_kubectl("get", ",".join(kinds), "--all-namespaces", "--output=json"))["items"]
    return {
        "/".join((item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"])) for item in listed
    }
