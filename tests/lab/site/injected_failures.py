"""Failures of a running platform on purpose: one for each failure mode, with what shows it and what answers it."""

from __future__ import annotations

import asyncio
import math
import secrets
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx
import yaml

from components.monitoring.dashboards import failure_modes
from components.monitoring.dashboards.board import PanelGroup
from floor.headers import SERVED_HEADER
from stacks.plan.site_plan import SitePlan, plan_values
from tests.lab.site.cluster_objects import kubectl
from tests.lab.site.full_replicas import filled
from tests.lab.site.measured import Prometheus
from tests.lab.site.replicas import MODELS, Cluster, Replica, set_pace, until
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import KEY, Document
from tests.lab.site.streams import chat, fresh_prompt

LARGE, SMALL = "glm-5-1", "qwen3-32b"
USUAL, ACCEPTS, SHEDDABLE = "acme.laptop", "takes.one", "idle.one"
TARGET_S = 2.5
SHORT_WINDOW = "1m"
COPY = "InAMinute"
"""What the names of the alerts over a minute end in."""
SESSIONS = 40


def drilled_site(site: Document) -> None:
    """What failure modes 6 and 7 need beside the lab's site: a gatekeeper, a model that overflows, a canary."""
    site["callers"] = {"decided_by": "gatekeeper"}
    for model in site["models"].values():
        model.setdefault("overrides", {})["stall_s"] = {"value": 7200, "reason": "faults hold its engine still"}
    canary = {"percent": 50, "server": {"replicas": 1, "extra_args": ["--seed=7"]}}
    load = {"requests_per_s": 15, "prompt_tokens": {"p50": 20, "p95": 100}, "answer_tokens": {"p50": 2, "p95": 10}}
    site["models"][SMALL] |= {"slo": {"ttft_p95_ms": round(TARGET_S * 1e3)}, "load": load, "canary": canary}
    site["models"][LARGE]["overflow"] = {"to": SMALL}
    both = {"models": [LARGE, SMALL], "keys": {"one": {}}}
    site["tenants"] |= {"takes": {**both, "overflow": "accept"}, "idle": {**both, "tier": "batch"}}


def planned(site: Site) -> SitePlan:
    document = yaml.safe_load(site.lab.site_file.read_text())["config"][KEY]
    drilled_site(document)
    return plan_values(document, site.lab.site_file.name)


@dataclass(kw_only=True)
class Got:
    """What clients were answered."""

    answers: list[httpx.Response] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def refused(self) -> list[str]:
        return self.failed + [f"{answer.status_code} {answer.text}" for answer in self.answers if not answer.is_success]


@dataclass(frozen=True, kw_only=True)
class Rig:
    """The site, and what it is asked with."""

    site: Site
    cluster: Cluster
    prometheus: Prometheus
    canary: Replica

    @contextmanager
    def asked(self, key: str, body: Callable[[], Document], *, clients: int, pause_s: float = 0) -> Iterator[Got]:
        """So many clients ask, one request after the other, until it ends."""
        got, over = Got(), threading.Event()

        def ask() -> None:
            with self.site.http(key=self.site.front.keys[key]) as http:
                while not over.wait(pause_s):
                    try:
                        got.answers.append(http.post("/chat/completions", json=body()))
                    except httpx.HTTPError as error:
                        got.failed.append(f"{type(error).__name__}: {error}")

        with ThreadPoolExecutor(clients) as pool:
            asking = [pool.submit(ask) for _ in range(clients)]
            try:
                yield got
            finally:
                over.set()
            for client in asking:
                client.result()

    def usual(self) -> AbstractContextManager[Got]:
        """Short requests of many conversations to the model that has a canary."""
        return self.asked(USUAL, lambda: conversation(secrets.token_hex(4)), clients=4, pause_s=0.5)

    def ask(self, key: str, model: str) -> httpx.Response:
        with self.site.http(key=self.site.front.keys[key]) as http:
            return http.post("/chat/completions", json=chat(model, tokens=1))

    def fires(self, mode: Mode) -> bool:
        """Whether its alert does, about its model."""
        labels = [
            sample["metric"]
            for sample in self.prometheus.query(f'ALERTS{{alertname="{mode.alert}{COPY}", alertstate="firing"}}')
        ]
        return mode.model in [label.get("model") or label.get("deployment") for label in labels]

    def reads(self, mode: Mode) -> float:
        """The largest value of the panel of the failure mode."""
        panel, query = mode.shown
        expression = mode.group.panels[panel].queries[query].expression
        for variable, value in {"$model": f"{mode.model}.*", "$__rate_interval": SHORT_WINDOW}.items():
            expression = expression.replace(variable, value)
        values = [float(sample["value"][1]) for sample in self.prometheus.query(expression)]
        return max((value for value in values if not math.isnan(value)), default=0.0)


def conversation(name: str, prompt: str = "hi") -> Document:
    """A request to the model that has a canary. Of one name, each goes to the same revision."""
    return {**chat(SMALL, prompt, tokens=2), "prompt_cache_key": name}


Fault = Callable[[Rig], AbstractContextManager[Callable[[], str]]]
"""Injects a failure mode for as long as it is entered; gives what looks at the platform's answer to it, in words."""


@contextmanager
def long_prompts(rig: Rig) -> Iterator[Callable[[], str]]:
    slow = rig.cluster.pace(SMALL, prefill_time_per_token="3ms", time_factor_under_load=1.0)
    long = rig.asked(USUAL, lambda: conversation(secrets.token_hex(4), fresh_prompt(4000)), clients=10)
    with slow, rig.usual() as short, long:

        def answer() -> str:
            seconds = statistics.median(answer.elapsed.total_seconds() for answer in short.answers[-50:])
            assert seconds < TARGET_S
            return f"half of the short requests are answered within {seconds:.2f} s"

        yield answer


@contextmanager
def full_caches(rig: Rig) -> Iterator[Callable[[], str]]:
    server = planned(rig.site).models[LARGE].stable.server
    # As many as take all but a hundredth of a cache, each within the model's context.
    parts = 5
    tokens = round(server.kv_blocks * server.block_tokens * 0.99 / parts)
    bodies = [chat(LARGE, fresh_prompt(tokens), tokens=300, stream=True) for _ in range(parts)]

    async def hold(over: asyncio.Event) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=600) as client:
            held = [
                asyncio.create_task(client.post(f"{replica.url}/v1/chat/completions", json=body))
                for replica in rig.cluster.ready_replicas(LARGE)
                for body in bodies
            ]
            await over.wait()
            for task in held:
                task.cancel()
            await asyncio.gather(*held, return_exceptions=True)

    with rig.cluster.pace(LARGE, prefill_time_per_token="1us", inter_token_latency="2s"), beside(hold):
        yield lambda: _shed(rig)


@contextmanager
def slow_decode(rig: Rig) -> Iterator[Callable[[], str]]:
    chunk = planned(rig.site).models[SMALL].stable.settings["max_num_batched_tokens"].whole
    with rig.cluster.pace(SMALL, inter_token_latency="250ms"), rig.usual():
        yield lambda: f"vLLM's steps have at most {chunk:,} tokens of prompts; a simulator has no steps"


@contextmanager
def full_queues(rig: Rig) -> Iterator[Callable[[], str]]:
    def answer() -> str:
        refused = rig.ask(USUAL, LARGE)
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        return f"{_refused(rig)}; others beyond what it holds get 503, and when to try again"

    with _filled(rig):
        yield answer


@contextmanager
def no_room(rig: Rig) -> Iterator[Callable[[], str]]:
    """A replica is lost while no node takes its successor."""
    nodes = kubectl(rig.site.lab, "get", "nodes", "-o", "name").split()
    lost, _ = rig.cluster.ready_replicas(SMALL)
    kubectl(rig.site.lab, "cordon", *nodes)
    try:
        with rig.usual() as got:

            def answer() -> str:
                assert len(got.answers) > SESSIONS
                assert not got.refused()
                return f"the other replica answers: {len(got.answers)} requests, none refused"

            kubectl(rig.site.lab, "delete", "pod", lost.name, "-n", MODELS, "--wait=false")
            yield answer
    finally:
        kubectl(rig.site.lab, "uncordon", *nodes)
        rig.cluster.ready_replicas(SMALL)


def served_by(answer: httpx.Response) -> str | None:
    """The model that it is of, where that is not the one that was asked for."""
    model: str | None = answer.headers.get(SERVED_HEADER)
    return model


@contextmanager
def overflow(rig: Rig) -> Iterator[Callable[[], str]]:
    with _filled(rig), rig.asked(ACCEPTS, partial(chat, LARGE, tokens=1), clients=4, pause_s=0.5) as got:

        def answer() -> str:
            until(lambda: SMALL in map(served_by, got.answers), what=f"{SMALL}'s answer")
            return f"{SMALL} answers tenants that accept it, and its name is in the answer"

        yield answer


@contextmanager
def slow_canary(rig: Rig) -> Iterator[Callable[[], str]]:
    before = httpx.get(f"{rig.canary.url}/admin/config", trust_env=False).json()
    set_pace(rig.canary, {"prefill-overhead": "1s"})
    try:
        with ExitStack() as usual:
            usual.enter_context(rig.usual())

            def answer() -> str:
                # Who else asks would be counted too.
                usual.close()
                first, second = (_sessions_of(rig) for _ in range(2))
                assert first == second
                assert 0 < first < SESSIONS
                return f"{first} of {SESSIONS} sessions are the canary's, and the same number when asked again"

            yield answer
    finally:
        set_pace(rig.canary, {"prefill-overhead": before["prefill-overhead"]})


def _sessions_of(rig: Rig) -> int:
    before = _served(rig.canary)
    with rig.site.http(key=rig.site.front.keys[USUAL]) as http:
        for number in range(SESSIONS):
            http.post("/chat/completions", json=conversation(f"s{number}")).raise_for_status()
    return _served(rig.canary) - before


def _served(replica: Replica) -> int:
    """A simulator counts a moment after it has answered."""
    until(lambda: not replica.under_way(), what="the end of all requests")
    time.sleep(1)
    return replica.served()


@contextmanager
def _filled(rig: Rig) -> Iterator[None]:
    async def hold(over: asyncio.Event) -> None:
        async with filled(LARGE, rig.cluster.ready_replicas(LARGE)):
            await over.wait()

    with rig.cluster.pace(LARGE, prefill_overhead="1800s", time_factor_under_load=1.0), beside(hold):
        yield
    until(lambda: not any(replica.under_way() for replica in rig.cluster.replicas(LARGE)), what="free replicas")


@contextmanager
def beside(work: Callable[[asyncio.Event], Any]) -> Iterator[None]:
    """Runs `work` in a thread, which ends when its event is set."""
    loop, over = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(work(over)))
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


def _shed(rig: Rig) -> str:
    assert rig.ask(USUAL, LARGE).status_code == 200
    return f"{_refused(rig)}, and others are answered"


def _refused(rig: Rig) -> str:
    until(lambda: rig.ask(SHEDDABLE, LARGE).status_code == 429, what="a refusal of the tier below 0")
    return "pickers refuse the tier below 0"


@dataclass(frozen=True, kw_only=True)
class Mode:
    """One failure mode: what injects it, which panel of its group shows it, and the alert that fires."""

    number: int
    """From 1 on."""
    title: str
    model: str
    inject: Fault
    shown: tuple[int, int]
    """Panel of its group, and query of the panel."""
    alert: str

    @property
    def group(self) -> PanelGroup:
        return failure_modes.GROUPS[self.number - 1]


MODES = (
    Mode(
        number=1,
        title="long prompts hold up first tokens",
        model=SMALL,
        inject=long_prompts,
        shown=(0, 1),
        alert="ModelLatencyAboveTarget",
    ),
    Mode(
        number=2,
        title="long prompts fill the caches of all replicas",
        model=LARGE,
        inject=full_caches,
        shown=(0, 0),
        alert="ModelCacheFull",
    ),
    Mode(
        number=3,
        title="each step takes 250 ms",
        model=SMALL,
        inject=slow_decode,
        shown=(0, 1),
        alert="ModelSlowerThanPromised",
    ),
    Mode(
        number=4,
        title="all replicas hold as much as they can",
        model=LARGE,
        inject=full_queues,
        shown=(0, 0),
        alert="ModelQueueGrows",
    ),
    Mode(
        number=5,
        title="a replica is lost, and no node has room for the next",
        model=SMALL,
        inject=no_room,
        shown=(0, 0),
        alert="ReplicaMissing",
    ),
    Mode(
        number=6,
        title="a full model's requests go to another one",
        model=LARGE,
        inject=overflow,
        shown=(0, 0),
        alert="ModelOverflows",
    ),
    Mode(
        number=7,
        title="a canary's first tokens take a second longer",
        model=SMALL,
        inject=slow_canary,
        shown=(1, 0),
        alert="CanarySlower",
    ),
)
