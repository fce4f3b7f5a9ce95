"""Dedicated replicas on a running site: they answer their tenant alone, and break no stream as they come and go."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import httpx
import pytest

from floor.revision_ids import RevisionId
from tests.lab.site.replicas import Cluster, Replica, until
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import Document, edited_stack
from tests.lab.site.streams import chat
from tests.lab.site.under_load import Load

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("001.10")]

MODEL = "qwen3-32b"
OWN = RevisionId(MODEL, group="acme").name
ITS, OTHER = "acme.laptop", "globex.laptop"
REQUESTS = 20
STREAM_TOKENS = 40


def _both(site: Document) -> None:
    site["callers"] = {"decided_by": "gatekeeper", "keep_both": True}


def _decided(site: Document) -> None:
    site["callers"] = {"decided_by": "gatekeeper"}


def _dedicated(when_away: str, tenants: list[str], site: Document) -> None:
    _decided(site)
    group = {"tenants": tenants, "server": {"replicas": 1}, "when_away": when_away}
    site["models"][MODEL]["dedicated"] = {"acme": group}


@dataclass(kw_only=True)
class Walk:
    """What both tenants got while the replicas came, hung and went."""

    coming: Load
    going: Load
    answered: dict[str, int] = field(default_factory=dict)
    """Key -> requests of it that the dedicated replica answered."""
    volumes: list[set[str]] = field(default_factory=list)
    """Claims of a shared and of a dedicated replica."""
    hung: dict[str, dict[str, httpx.Response]] = field(default_factory=dict)
    """What the site does while none is ready -> key -> an answer then."""


@pytest.fixture(scope="module")
def walk(site: Site, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    coming, going = (Load(model=MODEL, stream_tokens=STREAM_TOKENS, key=ITS) for _ in range(2))
    walked = Walk(coming=coming, going=going)
    with edited_stack(site.lab, tmp_path_factory.mktemp("dedicated")) as stack:
        for edit in (_both, _decided):
            stack.up(edit)
        for tenants in ([], ["acme"]):
            asyncio.run(walked.coming.during(site, partial(stack.up, partial(_dedicated, "refuse", tenants))))
        (replica,) = cluster.ready_replicas(OWN, 1)
        walked.answered = {key: _answered(site, replica, key) for key in (ITS, OTHER)}
        walked.volumes = [_claims(cluster, some) for some in (cluster.replicas(MODEL)[0], replica)]
        for when_away in ("refuse", "shared"):
            stack.up(partial(_dedicated, when_away, ["acme"]))
            (replica,) = cluster.ready_replicas(OWN, 1)
            with _held(cluster, replica):
                wanted = 503 if when_away == "refuse" else 200
                until(partial(_is_answered, site, wanted), what=f"{wanted} for {ITS}")
                walked.hung[when_away] = {key: _ask(site, key) for key in (ITS, OTHER)}
        cluster.ready_replicas(OWN, 1)
        asyncio.run(walked.going.during(site, partial(stack.up, _decided)))
        yield walked


def _ask(site: Site, key: str) -> httpx.Response:
    with site.http(key=site.front.keys[key]) as client:
        return client.post("/chat/completions", json=chat(MODEL, tokens=1))


def _is_answered(site: Site, status: int) -> bool:
    return _ask(site, ITS).status_code == status


def _answered(site: Site, replica: Replica, key: str) -> int:
    before = replica.served()
    for _ in range(REQUESTS):
        assert (answer := _ask(site, key)).status_code == 200, answer.text
    return replica.served() - before


def _claims(cluster: Cluster, replica: Replica) -> set[str]:
    pod = cluster.core.read_namespaced_pod(replica.name, replica.namespace)
    volumes = (pod.spec.volumes if pod.spec else None) or []
    return {volume.persistent_volume_claim.claim_name for volume in volumes if volume.persistent_volume_claim}


@contextmanager
def _held(cluster: Cluster, replica: Replica) -> Iterator[None]:
    """Its processes are stopped until its readiness has failed, for less long than its liveness needs."""
    held = cluster.all_processes(replica)
    for pid in held:
        os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: not any(other.ready for other in cluster.replicas(OWN)), what=f"no ready replica of {OWN}")
        yield
    finally:
        for pid in held:
            os.kill(pid, signal.SIGCONT)


def test_they_answer_their_tenant_alone_on_the_models_weights(walk: Walk) -> None:
    assert walk.answered == {ITS: REQUESTS, OTHER: 0}
    assert walk.volumes[0] == walk.volumes[1] != set()


def test_while_none_is_ready_their_tenant_waits_or_has_the_shared_ones_as_the_site_sets(walk: Walk) -> None:
    assert {when: {key: got.status_code for key, got in all_.items()} for when, all_ in walk.hung.items()} == {
        "refuse": {ITS: 503, OTHER: 200},
        "shared": {ITS: 200, OTHER: 200},
    }
    assert walk.hung["refuse"][ITS].headers["retry-after"]


def test_clients_lose_nothing_as_they_come(walk: Walk) -> None:
    assert len(walk.coming.streams) > 10
    assert not walk.coming.failures()


def test_clients_lose_nothing_as_they_go(walk: Walk) -> None:
    assert len(walk.going.streams) > 10
    assert not walk.going.failures()
