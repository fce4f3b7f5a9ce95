"""The ledger of a running site: a row for each request, with exactly the tokens that its client was told of."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import pytest

from components.addons import callers
from components.tenants.gatekeeper import GATEKEEPER
from floor.headers import PROMPT_ID_HEADER
from floor.namespaces import GATEWAY
from lab.cluster import operator_database
from lab.site import supervisor
from services.ledger import variables
from stacks.facts import metrics
from tests import exposition
from tests.lab.site.cluster_objects import kubectl
from tests.lab.site.ledger_rows import Ledger, MeteredLoad, counted, counted_in, fresh_id
from tests.lab.site.replicas import Cluster, Replica, until
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import Document, EditedStack, edited_stack
from tests.lab.site.streams import chat
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("000.32", "000.35", "003.01", "004.13")

MODEL, CLOSED = "qwen3-32b", "glm-5-1"
INPUT, CACHED, OUTPUT = 200_000, 50_000, 800_000
PRICES = {"input": INPUT / 10**6, "cached_input": CACHED / 10**6, "output": OUTPUT / 10**6}
PER_MINUTE = 3
AT_ONCE_S = 5
# Of the currency: a few completions, as each has 20 tokens of answer.
BUDGET = 50 / 10**6
COMPLETION: dict[str, Any] = {"model": MODEL, "prompt": "hello", "max_tokens": 20, "ignore_eos": True}
ANSWER: dict[str, Any] = {"model": MODEL, "input": "hello", "max_output_tokens": 20}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


def _metered(site: Document) -> None:
    site["usage"] = {
        "database_secret": operator_database.USAGE,
        "prices": [{"since": "2026-01-01", "models": {MODEL: PRICES}, "tiers": {"batch": 0.5}}],
    }
    site["tenants"]["nightly"] = {"models": [MODEL], "keys": {"one": {}}, "tier": "batch"}


def _limited(site: Document) -> None:
    _metered(site)
    limits = {"requests_per_minute": PER_MINUTE}
    site["tenants"]["brisk"] = {"models": [MODEL], "keys": {"one": {}}, "limits": limits}


def _deciding(budget: float, site: Document) -> None:
    """One tenant with a budget, where a gatekeeper decides and keys are watched."""
    _metered(site)
    site["usage"]["abuse"] = {}
    site["callers"] = {"decided_by": "gatekeeper"}
    limits = {"spend_per_month": budget}
    site["tenants"]["saving"] = {"models": [MODEL], "keys": {"one": {}}, "limits": limits}


def _both(decided_by: str, site: Document) -> None:
    _metered(site)
    site["callers"] = {"decided_by": decided_by, "keep_both": True}


@pytest.fixture(scope="module")
def stack(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EditedStack]:
    with edited_stack(site.lab, tmp_path_factory.mktemp("usage")) as edited:
        yield edited


@pytest.fixture(scope="module")
def metered(site: Site, stack: EditedStack) -> Site:
    operator_database.ensure(site.lab)
    address = f"--from-literal=url={operator_database.url(site.lab, operator_database.USAGE)}"
    kubectl(site.lab, "create", "secret", "generic", operator_database.USAGE, "-n", GATEWAY, address)
    return replace(site, front=stack.up(_metered))


@pytest.fixture(scope="module")
def ledger(metered: Site) -> Ledger:
    return Ledger(metered.lab)


@pytest.fixture(scope="module", autouse=True)
def shipping(metered: Site, ledger: Ledger) -> None:
    """Envoy's pods are the new ones and know the new tenant, the ledger has its tables, and what is logged arrives."""
    asked: list[str] = []

    def arrives() -> bool:
        # A key that is not in force yet leaves no row.
        asked.append(ask(metered, client="nightly.one")[0])
        return bool(ledger.rows(asked))

    eventually(arrives)


def ask(
    site: Site, path: str = "/chat/completions", body: dict[str, Any] | None = None, *, client: str = ""
) -> tuple[str, httpx.Response]:
    """The prompt's id, and the whole answer."""
    prompt_id = fresh_id()
    with site.http(key=site.front.keys[client or site.front.client]) as http:
        return prompt_id, http.post(path, json=body or chat(MODEL), headers={PROMPT_ID_HEADER: prompt_id})


def row_of(ledger: Ledger, prompt_id: str) -> dict[str, Any] | None:
    rows = ledger.rows([prompt_id])
    assert len(rows) < 2
    return rows[0] if rows else None


def the_row(ledger: Ledger, prompt_id: str) -> dict[str, Any]:
    return until(partial(row_of, ledger, prompt_id), what="a row")


def reported(answer: httpx.Response) -> tuple[int, int, int]:
    """The usage at the end of an answer, whole or streamed."""
    events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    last = json.loads(events[-1] if events else answer.text)
    return counted(last.get("usage") or last["response"]["usage"])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/chat/completions", chat(MODEL, "hello " * 50, tokens=20)),
        ("/chat/completions", chat(MODEL, "hello " * 50, tokens=20) | USAGE),
        ("/completions", COMPLETION),
        ("/completions", COMPLETION | USAGE),
        ("/responses", ANSWER),
        ("/responses", ANSWER | {"stream": True}),
        ("/embeddings", {"model": MODEL, "input": ["hello", "and goodbye"]}),
    ],
)
def test_a_row_has_the_tokens_that_the_answer_reports(
    metered: Site, ledger: Ledger, path: str, body: dict[str, Any]
) -> None:
    prompt_id, answer = ask(metered, path, body, client="nightly.one")
    assert answer.status_code == 200, answer.text
    row = the_row(ledger, prompt_id)
    tokens = reported(answer)
    assert counted_in(row) == tokens
    assert tokens[0]
    assert (row["tenant"], row["key"], row["model"], row["tier"]) == ("nightly", "one", MODEL, "batch")
    assert (row["path"], row["status"], row["failed"]) == (f"/v1{path}", 200, False)
    fresh = tokens[0] - tokens[1]
    assert row["cost_pico"] == (fresh * INPUT + tokens[1] * CACHED + tokens[2] * OUTPUT) // 2


def test_a_row_is_there_at_once(metered: Site, cluster: Cluster, ledger: Ledger) -> None:
    envoy = the_envoy(cluster)
    options = json.loads(cluster.envoy_admin(envoy, "/server_info"))["command_line_options"]
    assert options["file_flush_interval"] == "1s"

    def seconds() -> float:
        prompt_id, _ = ask(metered)
        began = time.monotonic()
        the_row(ledger, prompt_id)
        return time.monotonic() - began

    until(lambda: seconds() < AT_ONCE_S, what=f"a row within {AT_ONCE_S} s")


def test_a_refusal_is_a_row_without_tokens(metered: Site, stack: EditedStack, ledger: Ledger) -> None:
    """Of a client that is known: a stranger leaves none."""
    asked = {403: ask(metered, body=chat(CLOSED), client="globex.laptop")}
    limiting = replace(metered, front=stack.up(_limited))

    def limited() -> bool:
        asked[429] = ask(limiting, client="brisk.one")
        return asked[429][1].status_code == 429

    until(limited, what="a refusal of a limit")
    for status, (prompt_id, answer) in asked.items():
        assert answer.status_code == status
        row = the_row(ledger, prompt_id)
        assert (row["status"], row["failed"], counted_in(row), row["cost_pico"]) == (status, True, (0, 0, 0), 0)
        assert row["tenant"] == ("globex" if status == 403 else "brisk")
    stranger = fresh_id()
    with metered.http(key="sk-made-up") as http:
        headers = {PROMPT_ID_HEADER: stranger}
        assert http.post("/chat/completions", json=chat(MODEL), headers=headers).status_code == 401
    the_row(ledger, ask(metered)[0])
    assert not ledger.rows([stranger])


def test_a_stream_that_its_client_leaves_has_what_went_by(metered: Site, ledger: Ledger) -> None:
    """Its prompt by its bytes, and an event for a token."""
    prompt, tokens, read, prompt_id = "word " * 400, 2000, 10, fresh_id()
    body = chat(MODEL, prompt, tokens=tokens, stream=True)
    with metered.http() as http:
        headers = {PROMPT_ID_HEADER: prompt_id}
        with http.stream("POST", "/chat/completions", json=body, headers=headers) as answer:
            lines = (line for line in answer.iter_lines() if line.startswith("data:"))
            for _ in range(read):
                next(lines)
    row = the_row(ledger, prompt_id)
    assert len(prompt) // 4 <= row["input_tokens"] < len(prompt)
    assert read <= row["output_tokens"] < tokens
    assert "DC" in row["flags"]


def test_a_stream_that_reports_no_usage_is_no_gift(metered: Site, ledger: Ledger) -> None:
    """Of a completion that does not ask for it: what went by counts."""
    tokens = int(COMPLETION["max_tokens"])
    prompt_id, answer = ask(metered, "/completions", COMPLETION | {"stream": True})
    assert '"usage"' not in answer.text or '"usage":null' in answer.text
    row = the_row(ledger, prompt_id)
    assert tokens <= row["output_tokens"] <= tokens + 3
    assert row["input_tokens"]


def arrived(ledger: Ledger, load: MeteredLoad) -> bool:
    """Whether each request that ended whole has its row, with the tokens that its answer reported."""
    rows = ledger.rows(load.finished)
    assert len(rows) <= len(load.finished)
    return {row["prompt_id"]: counted_in(row) for row in rows} == load.finished


@pytest.mark.row("opening 17")
def test_the_ledger_and_the_engines_count_the_same(metered: Site, cluster: Cluster, ledger: Ledger) -> None:
    names = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")

    def engines() -> list[float]:
        counts = [replica.counts() for replica in cluster.ready_replicas(MODEL)]
        return [sum(count.get(name, 0) for count in counts) for name in names]

    load, before = MeteredLoad(model=MODEL), engines()
    # The load goes on for as long.
    asyncio.run(load.during(metered, lambda: time.sleep(5)))
    assert load.finished
    assert not load.failed
    until(lambda: arrived(ledger, load), what="a row of each request")
    rows = ledger.rows(load.finished)
    sums = [sum(row[kind] for row in rows) for kind in ("input_tokens", "output_tokens")]
    assert [after - first for after, first in zip(engines(), before, strict=True)] == sums


def test_rows_arrive_once_the_database_is_back(metered: Site, ledger: Ledger) -> None:
    """It hangs for a while, and then its processes die. No request notices."""
    part = next(part for part in supervisor.components(metered.lab) if part.name == operator_database.COMPONENT)
    pid = eventually(part.pid)
    load = MeteredLoad(model=MODEL)

    def away() -> None:
        os.killpg(pid, signal.SIGSTOP)
        # Longer than a ledger waits for its database, so that shippers are refused.
        time.sleep(20)
        os.killpg(pid, signal.SIGKILL)
        eventually(lambda: part.pid() not in {None, pid})

    asyncio.run(load.during(metered, away))
    assert not load.failed
    eventually(lambda: arrived(ledger, load))
    assert ledger.doubles() == 0


def test_rows_arrive_when_ledgers_die(metered: Site, cluster: Cluster, ledger: Ledger) -> None:
    load = MeteredLoad(model=MODEL)

    def kill() -> None:
        for pod in cluster.pods(GATEWAY, f"app.kubernetes.io/name={variables.SERVICE}"):
            for pid in cluster.all_processes(pod):
                os.kill(pid, signal.SIGKILL)
            # Requests arrive between the two, too.
            time.sleep(2)

    asyncio.run(load.during(metered, kill))
    assert not load.failed
    until(lambda: arrived(ledger, load), what="a row of each request")
    assert ledger.doubles() == 0


def test_an_envoy_that_ends_leaves_no_row_behind(metered: Site, cluster: Cluster, ledger: Ledger) -> None:
    """It drains, and its sidecar ships what its last requests were."""
    load = MeteredLoad(model=MODEL)

    def replaced() -> None:
        old = the_envoy(cluster)
        kubectl(metered.lab, "-n", old.namespace, "delete", "pod", old.name, "--wait=false")
        until(lambda: others_ready(cluster, old), what="another Envoy")
        until(lambda: old.name not in {pod.name for pod in cluster.envoys()}, what="the end of the first")

    asyncio.run(load.during(metered, replaced))
    assert load.finished
    until(lambda: arrived(ledger, load), what="a row of each request")
    assert ledger.doubles() == 0


@pytest.mark.row("002.09")
def test_ledger_and_shippers_are_measured(metered: Site, cluster: Cluster) -> None:
    """With the metrics that alerts ask for."""
    (target,) = callers.LEDGER.targets
    pods = {
        (callers.LEDGER.key, target.port): cluster.pods(GATEWAY, f"app.kubernetes.io/name={callers.LEDGER.key}"),
        ("usage_shipper", variables.SHIPPER_PORT): cluster.envoys(),
    }
    for (part, port), measured in pods.items():
        assert measured
        texts = [cluster.run_in(pod, "curl", "-sS", "--fail", f"http://{pod.ip}:{port}/metrics") for pod in measured]
        assert exposition.differences(metrics.load()[part], exposition.union(texts)) == []


@pytest.mark.exhaustive
@pytest.mark.row("001.40", "004.11", "004.17")
def test_a_used_budget_is_refused_until_it_is_raised(
    metered: Site, stack: EditedStack, ledger: Ledger, cluster: Cluster
) -> None:
    """By the path of every request: Envoy's line, the ledger's sum, the gatekeeper's refusal, and its row."""
    stack.up(partial(_both, "gatekeeper"))
    saving = replace(metered, front=stack.up(partial(_deciding, BUDGET)))
    ask_budgeted = partial(ask, saving, "/completions", COMPLETION, client="saving.one")
    asked = list[tuple[str, httpx.Response]]()

    def refused() -> bool:
        asked.append(ask_budgeted())
        return asked[-1][1].status_code == 429

    until(refused, what="a refusal")
    *answered, (last, answer) = asked
    assert {got.status_code for _, got in answered} == {200}
    assert answer.json()["error"]["code"] == "insufficient_quota"
    assert answer.headers["x-should-retry"] == "false"
    row = the_row(ledger, last)
    assert row["details"] == "gatekeeper_insufficient_quota.spend_per_month"
    assert (row["status"], row["failed"], counted_in(row), row["cost_pico"]) == (429, True, (0, 0, 0), 0)
    used = sum(the_row(ledger, prompt_id)["cost_pico"] for prompt_id, _ in answered)
    assert used >= BUDGET * 10**12
    assert ask(saving)[1].status_code == 200, "it is another tenant's budget"
    with saving.http(key=saving.front.keys["saving.one"]) as http:
        assert http.get("/models").status_code == 200
    stack.up(partial(_deciding, 1.0))
    gatekeepers = partial(cluster.pods, GATEWAY, f"app.kubernetes.io/name={GATEKEEPER}")
    until(lambda: len(gatekeepers()) == 2, what="the gatekeepers before to have left")
    assert ask_budgeted()[1].status_code == 200
    # Out of the gatekeeper's decision, by Envoy's line and the shipper.
    assert {len(name) for name in ledger.networks("saving")} == {16}
    stack.up(partial(_both, "gateway"))


def the_envoy(cluster: Cluster) -> Replica:
    """Once an earlier one has drained."""
    until(lambda: len(cluster.envoys()) == 1, what="one Envoy")
    return cluster.envoys()[0]


def others_ready(cluster: Cluster, old: Replica) -> bool:
    return any(pod.ready for pod in cluster.envoys() if pod.name != old.name)
