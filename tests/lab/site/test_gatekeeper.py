"""A site whose callers a gatekeeper decides about: the change to it, what it decides, and what happens without it."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import anthropic
import httpx
import pytest

from components.addons import callers
from components.addons.addon import Addon
from components.tenants.gatekeeper import GATEKEEPER
from floor.headers import CLIENT_HEADER, OBJECTIVE_HEADER, SERVED_HEADER, TENANT_HEADER
from floor.namespaces import GATEWAY
from lab.cluster import operator_database
from lab.paths import CHECKOUT
from stacks.facts import metrics
from tests import exposition
from tests.lab.site import guide
from tests.lab.site import test_limits as limited
from tests.lab.site.cluster_objects import kubectl
from tests.lab.site.full_replicas import filled
from tests.lab.site.replicas import Cluster, Replica, until
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import Document, EditedStack, edited_stack
from tests.lab.site.streams import chat
from tests.lab.site.test_answers import error_of
from tests.lab.site.test_identity import heads_at_engines
from tests.lab.site.under_load import Load

pytestmark = pytest.mark.row("000.34", "004.11")

OPEN, CLOSED = "qwen3-32b", "glm-5-1"
PER_MINUTE = 3
_MANY = 12
SHORT = 8


def _both(site: Document) -> None:
    site["callers"] = {"decided_by": "gatekeeper", "keep_both": True}
    _limited(site)


def _both_back(site: Document) -> None:
    site["callers"] = {"decided_by": "gateway", "keep_both": True}
    _limited(site)


def _by_gatekeeper(site: Document) -> None:
    site["callers"] = {
        "decided_by": "gatekeeper",
        "database_secret": operator_database.DIRECTORY,
        "pepper": "disposable",
    }
    _limited(site)
    limits = {"parallel_requests": 1, "max_answer_tokens": SHORT}
    site["tenants"]["sharing"] = {"models": [OPEN], "keys": {"one": {}}, "prefix_cache": "shared"}
    site["models"][CLOSED]["overflow"] = {"to": OPEN}
    site["tenants"]["takes"] = {"models": [OPEN, CLOSED], "keys": {"one": {}}, "overflow": "accept"}
    site["tenants"]["bounded"] = {"models": [OPEN], "keys": {"one": {}}, "limits": limits}


def _limited(site: Document) -> None:
    site["plans"] = {"brisk": {"requests_per_minute": PER_MINUTE}}
    site["tenants"]["brisk"] = {"models": [OPEN], "keys": {"one": {}}, "plan": "brisk"}
    site["tenants"]["counted"] = {"models": [OPEN], "keys": {"one": {}}, "limits": {"tokens_per_day": 1_000_000}}
    site["tenants"]["narrow"] = {
        "models": [OPEN, CLOSED],
        "keys": {"one": {"limits": {"requests_per_minute": 1}}, "two": {}},
        "model_limits": {CLOSED: {"requests_per_minute": 1}},
    }


@pytest.fixture(scope="module")
def stack(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EditedStack]:
    with edited_stack(site.lab, tmp_path_factory.mktemp("gatekeeper")) as edited:
        yield edited


@pytest.fixture(scope="module")
def changed(site: Site, stack: EditedStack) -> tuple[Site, Load]:
    """The site once the gatekeeper decides, and what its clients got meanwhile."""
    operator_database.ensure(site.lab)
    address = f"--from-literal=url={operator_database.url(site.lab, operator_database.DIRECTORY)}"
    kubectl(site.lab, "create", "secret", "generic", operator_database.DIRECTORY, "-n", GATEWAY, address)
    load = Load(model=OPEN, stream_tokens=20)
    fronts = []
    for step in (_both, _by_gatekeeper):
        asyncio.run(load.during(site, partial(lambda edit: fronts.append(stack.up(edit)), step)))
    return replace(site, front=fronts[-1]), load


@pytest.fixture(scope="module")
def decided(changed: tuple[Site, Load]) -> Site:
    return changed[0]


def ask(site: Site, key: str, model: str = OPEN) -> httpx.Response:
    with site.http(key=site.front.keys[key]) as client:
        return client.post("/chat/completions", json=chat(model, tokens=1))


def test_keys_work_through_the_change(site: Site, changed: tuple[Site, Load]) -> None:
    """Nobody gets another key or a refusal."""
    decided, load = changed
    assert load.short
    assert not load.failures()
    assert site.front.keys.items() <= decided.front.keys.items()


def test_the_caller_is_named_with_its_tier(decided: Site, cluster: Cluster) -> None:
    """The engine sees whose key it was, whatever a client claims, and neither the key nor another header with it."""
    claims = {CLIENT_HEADER: "globex.laptop", OBJECTIVE_HEADER: "x", TENANT_HEADER: "globex"}

    def send() -> None:
        with decided.http() as client:
            assert client.post("/chat/completions", json=chat(CLOSED), headers=claims).status_code == 200

    (head,) = heads_at_engines(cluster, CLOSED, send)
    assert head[CLIENT_HEADER] == decided.front.client
    assert head[TENANT_HEADER] == decided.front.client.partition(".")[0]
    assert head[OBJECTIVE_HEADER] == f"interactive.{CLOSED}"
    assert decided.key not in str(head)


def test_a_tenant_calls_and_sees_its_own_models(decided: Site) -> None:
    refused = ask(decided, "globex.laptop", CLOSED)
    assert (refused.status_code, error_of(refused)["code"]) == (403, "model_not_allowed")
    unknown = ask(decided, "globex.laptop", "none")
    assert (unknown.status_code, error_of(unknown)["code"]) == (404, "model_not_found")
    for key, models in (("globex.laptop", [OPEN]), (decided.front.client, [CLOSED, OPEN])):
        with decided.http(key=decided.front.keys[key]) as client:
            listed = client.get("/models").json()["data"]
        # Aliases have capitals, slashes or dots.
        assert [model["id"] for model in listed if re.fullmatch("[a-z0-9-]+", model["id"])] == models


def test_its_limits_hold(decided: Site) -> None:
    until(lambda: ask(decided, "brisk.one").status_code == 429, what="a tenant at its limit")
    assert ask(decided, "globex.laptop").status_code == 200


@pytest.mark.parametrize("streamed", [True, False])
def test_engines_tell_tenants_apart_by_a_salt_that_no_client_sets(
    decided: Site, cluster: Cluster, *, streamed: bool
) -> None:
    def salt(client: str) -> str:
        body = {**chat(OPEN, tokens=1, stream=streamed), "cache_salt": "guessed"}

        def send() -> None:
            with decided.http(key=decided.front.keys[client]) as http:
                assert http.post("/chat/completions", json=body).status_code == 200

        (seen,) = {head[":line"] for head in heads_at_engines(cluster, OPEN, send, "cache_salt")}
        return seen

    first, again, other = salt(decided.front.client), salt(decided.front.client), salt("globex.laptop")
    assert first == again != other
    assert "guessed" not in (first, other)


@pytest.mark.row("000.08")
def test_anthropics_client_is_answered(decided: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a tenant that shares the engines' caches, by the guide's program; of others this API loses the salt."""
    (program,) = guide.programs("anthropic")
    monkeypatch.setenv("NO_PROXY", "*")
    guide.run(program, decided, decided.front.keys["sharing.one"])
    hello: list[anthropic.types.MessageParam] = [{"role": "user", "content": "hello"}]

    def asking(client: str) -> anthropic.Anthropic:
        key = decided.front.keys[client]
        return anthropic.Anthropic(base_url=f"{decided.address}/anthropic", api_key=key, max_retries=0)

    with asking("sharing.one") as client:
        with client.messages.stream(model=OPEN, max_tokens=SHORT, messages=hello) as stream:
            assert "".join(stream.text_stream)
        assert 0 < stream.get_final_message().usage.output_tokens <= SHORT
    with asking(decided.front.client) as client, pytest.raises(anthropic.PermissionDeniedError):
        client.messages.create(model=OPEN, max_tokens=SHORT, messages=hello)


@pytest.mark.row("001.14", "001.37")
def test_a_tenant_holds_no_more_requests_and_no_longer_answers_than_it_may(decided: Site, cluster: Cluster) -> None:
    # So slow that the first one is not over before the second.
    slowly = cluster.pace(OPEN, inter_token_latency="500ms")
    with slowly, decided.http(key=decided.front.keys["bounded.one"]) as client:
        whole = client.post("/chat/completions", json=chat(OPEN, tokens=50)).json()
        assert whole["usage"]["completion_tokens"] == SHORT
        with client.stream("POST", "/chat/completions", json=chat(OPEN, tokens=SHORT, stream=True)) as held:
            lines = held.iter_lines()
            next(lines)
            second = ask(decided, "bounded.one")
            assert (second.status_code, error_of(second)["code"]) == (429, "rate_limit_exceeded")
            assert ask(decided, "globex.laptop").status_code == 200
        until(lambda: ask(decided, "bounded.one").status_code == 200, what="a request after the first one's end")


@pytest.mark.row("004.14")
def test_another_model_answers_while_one_is_full(decided: Site, cluster: Cluster) -> None:
    """Whoever has not accepted it is refused as before."""

    async def scenario() -> None:
        async with filled(CLOSED, cluster.ready_replicas(CLOSED)):
            await asyncio.to_thread(until, lambda: served("takes.one") == OPEN, what="an answer of the other model")
            assert (await asyncio.to_thread(ask, decided, decided.front.client, CLOSED)).status_code == 503

    def served(key: str) -> str | None:
        answered: str | None = ask(decided, key, CLOSED).headers.get(SERVED_HEADER)
        return answered

    assert served("takes.one") is None
    with cluster.pace(CLOSED, prefill_overhead="280s", time_factor_under_load=1.0):
        asyncio.run(scenario())
        until(lambda: not any(replica.under_way() for replica in cluster.replicas(CLOSED)), what="free replicas")
    until(lambda: served("takes.one") is None, what="its own model's answer")


def test_a_stream_is_charged_whose_client_asks_for_no_count(decided: Site) -> None:
    """Of completions, where the AI gateway asks for none either."""
    key = decided.front.keys["counted.one"]
    meter = limited.Meter(decided, key)
    answer = limited.ask(decided, key, "/completions", **limited.COMPLETION, stream=True)
    used = limited.total(answer.text)
    assert used >= limited.COMPLETION["max_tokens"]
    until(lambda: meter.charged() == used, what=f"a charge of {used} tokens")


def test_limits_of_a_key_and_of_a_model_hold(decided: Site) -> None:
    """Each by itself: another key and another model of the tenant go on."""
    until(lambda: ask(decided, "narrow.one").status_code == 429, what="a key at its limit")
    until(lambda: ask(decided, "narrow.two", CLOSED).status_code == 429, what="a model at its tenant's limit")
    assert [ask(decided, "narrow.two").status_code for _ in range(PER_MINUTE)] == [200] * PER_MINUTE


def test_no_key_is_in_the_cluster(decided: Site, cluster: Cluster) -> None:
    """A Secret with digests is all that there is of keys."""
    secrets = cluster.core.list_secret_for_all_namespaces().items
    values = [base64.b64decode(value) for secret in secrets for value in (secret.data or {}).values()]
    assert any(b'"digest"' in value for value in values)
    for client, key in decided.front.keys.items():
        assert not [value for value in values if key.encode() in value], client


def test_a_key_is_made_and_revoked_while_the_site_runs(decided: Site) -> None:
    """It opens what its tenant may call, as far as it is said to, and then nothing."""
    made = json.loads(sitectl(decided, "key", "create", "lab", "acme", "ci", "--models", OPEN, "--json"))
    until(lambda: _always(decided, made["key"], 200), what="a key that every gatekeeper knows")
    with decided.http(key=made["key"]) as client:
        assert {model["id"] for model in client.get("/models").json()["data"]} == {OPEN}
        assert client.post("/chat/completions", json=chat(CLOSED)).status_code == 403
    sitectl(decided, "key", "revoke", "lab", made["id"])
    until(lambda: _always(decided, made["key"], 401), what="a key that no gatekeeper takes")


@pytest.mark.row("002.09")
@pytest.mark.parametrize("addon", [callers.GATEKEEPER, callers.DIRECTORY], ids=lambda addon: addon.key)
def test_what_decides_is_measured(decided: Site, cluster: Cluster, addon: Addon) -> None:
    """Both pods of each have the metrics that its alerts ask for."""
    (target,) = addon.targets
    pods = cluster.pods(GATEWAY, f"app.kubernetes.io/name={addon.key}")
    assert len(pods) == 2
    texts = [
        cluster.run_in(pod, "curl", "-sS", "--fail", f"http://{pod.ip}:{target.port}{target.path}") for pod in pods
    ]
    assert exposition.differences(metrics.load()[addon.key], exposition.union(texts)) == []


def test_keys_work_on_without_the_directory(decided: Site, cluster: Cluster) -> None:
    """Also at a gatekeeper that is new, which has them from the other one, and when both start again at once."""
    key = sitectl(decided, "key", "create", "lab", "globex", "ci").strip()
    until(lambda: _always(decided, key, 200), what="a key that every gatekeeper knows")
    scale = ("-n", GATEWAY, "scale", "deployment/directory")
    kubectl(decided.lab, *scale, "--replicas=0")
    try:
        until(lambda: not cluster.pods(GATEWAY, "app.kubernetes.io/name=directory"), what="no directory")
        old, _ = until(lambda: _ready(cluster), what="two gatekeepers")
        kubectl(decided.lab, "-n", GATEWAY, "delete", "pod", old.name)
        until(lambda: _asked_by_envoy(cluster) == 2 and _ready(cluster), what="two gatekeepers again")
        assert _always(decided, key, 200)
        before = _restarts(cluster)
        for pod in _ready(cluster) or ():
            cluster.kill(pod, GATEKEEPER)
        until(lambda: _restarts(cluster) >= before + 2, what="two gatekeepers that began again")
        until(lambda: _always(decided, key, 200), what="the keys that both had kept")
    finally:
        kubectl(decided.lab, *scale, "--replicas=2")


def test_one_of_two_may_die(decided: Site, cluster: Cluster) -> None:
    load = Load(model=OPEN, stream_tokens=20)

    def kill_both_in_turn() -> None:
        for pod in until(lambda: _ready(cluster), what="two gatekeepers"):
            until(lambda: _asked_by_envoy(cluster) == 2, what="two gatekeepers in Envoy")
            before = _restarts(cluster)
            cluster.kill(pod, GATEKEEPER)
            until(partial(_more_restarts, cluster, before), what="two gatekeepers again")

    asyncio.run(load.during(decided, kill_both_in_turn))
    assert not load.failures()


def test_without_one_nothing_passes(decided: Site, cluster: Cluster) -> None:
    """While all hang, a client with a key reads that it may try again."""
    pods = until(lambda: _ready(cluster), what="two gatekeepers")
    held = [pid for pod in pods for pid in cluster.processes(pod, GATEKEEPER)]
    for pid in held:
        os.kill(pid, signal.SIGSTOP)
    try:
        answer = ask(decided, "globex.laptop")
    finally:
        for pid in held:
            os.kill(pid, signal.SIGCONT)
    assert (answer.status_code, error_of(answer)["code"]) == (503, "gateway_unavailable")
    assert answer.headers["retry-after"]
    until(lambda: ask(decided, "globex.laptop").status_code == 200, what="a gatekeeper that answers")


def _with_a_key_more(site: Document) -> None:
    _by_gatekeeper(site)
    site["tenants"]["globex"]["keys"]["later"] = {}


@pytest.mark.exhaustive
def test_an_up_that_is_killed_may_be_taken_back(decided: Site, stack: EditedStack, cluster: Cluster) -> None:
    """It has written the new digests and ends before the pods that start for them: no key that stays is refused."""
    load = Load(model=OPEN, stream_tokens=20)

    def killed_and_back() -> None:
        stack.killed(_with_a_key_more, "callers-keys updated")
        stack.up(_by_gatekeeper)

    asyncio.run(load.during(decided, killed_and_back))
    assert not load.failures()
    assert until(lambda: _ready(cluster), what="two gatekeepers")


@pytest.mark.exhaustive
def test_a_key_of_the_file_works_once_up_has_ended(decided: Site, stack: EditedStack) -> None:
    """At each gatekeeper, within the seconds in which a pod that has mounted an earlier file reads the new one."""
    front = stack.up(_with_a_key_more)
    until(lambda: _always(decided, front.keys["globex.later"], 200), what="a key that every gatekeeper knows")
    stack.up(_by_gatekeeper)
    until(lambda: _always(decided, front.keys["globex.later"], 401), what="a key that no gatekeeper takes")


@pytest.mark.exhaustive
def test_keys_work_through_the_change_back(decided: Site, stack: EditedStack) -> None:
    load = Load(model=OPEN, stream_tokens=20)
    for step in (_both_back, _limited):
        asyncio.run(load.during(decided, partial(stack.up, step)))
    assert not load.failures()


def _ready(cluster: Cluster) -> list[Replica] | None:
    pods = [pod for pod in cluster.pods(GATEWAY, f"app.kubernetes.io/name={GATEKEEPER}") if pod.ready]
    return pods if len(pods) == 2 else None


def sitectl(site: Site, *words: str) -> str:
    """What the command prints on stdout."""
    command = [sys.executable, "-m", "sitectl", *words]
    done = subprocess.run(command, cwd=CHECKOUT, env=site.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _always(site: Site, key: str, status: int) -> bool:
    """Whether the key gets this status over many connections, so that each gatekeeper is asked."""

    def asked() -> int:
        with site.http(key=key) as client:
            return client.post("/chat/completions", json=chat(OPEN, tokens=1)).status_code

    return all(asked() == status for _ in range(_MANY))


def _restarts(cluster: Cluster) -> int:
    return sum(pod.restarts for pod in _ready(cluster) or ())


def _more_restarts(cluster: Cluster, before: int) -> bool:
    return _restarts(cluster) > before


def _asked_by_envoy(cluster: Cluster) -> int:
    """Addresses that Envoy has of it out of DNS."""
    (envoy,) = cluster.envoys()
    known = cluster.envoy_admin(envoy, "/clusters")
    return len(set(re.findall(r"^inference-platform/gatekeeper::([\d.]+):", known, re.MULTILINE)))
