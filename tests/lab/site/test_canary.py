"""A canary on a running site: it gets its share, grows, takes all, and goes, while clients lose no stream."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest
import yaml

from stacks.plan.site_plan import SitePlan, plan_values
from tests.lab.site.replicas import Cluster, Replica, set_pace
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import KEY, Document, edited_stack
from tests.lab.site.streams import chat
from tests.lab.site.under_load import Load

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("001.06", "002.13", "002.14", "004.23", "opening 8")]

MODEL = "qwen3-32b"
SESSIONS = 200
STREAM_TOKENS = 40
SLOWLY: dict[str, str | float] = {"inter_token_latency": "250ms", "time_factor_under_load": 1.0}


def _both(site: Document) -> None:
    site["callers"] = {"decided_by": "gatekeeper", "keep_both": True}


def _decided(site: Document) -> None:
    site["callers"] = {"decided_by": "gatekeeper"}


def _canary(percent: int, site: Document) -> None:
    _decided(site)
    server = {"replicas": 1, "extra_args": ["--seed=7"]}
    site["models"][MODEL]["canary"] = {"percent": percent, "pinned": {"acme": "stable"}, "server": server}


@dataclass(kw_only=True)
class Walk:
    """What clients got while the canary came, grew and went, and what it answered at each of its shares."""

    load: Load
    sessions: dict[int, list[int]] = field(default_factory=dict)
    """Percent -> how many of the same sessions it answered, asked twice."""
    pinned: dict[int, int] = field(default_factory=dict)
    """Percent -> requests of a pinned tenant that it answered."""


@pytest.fixture(scope="module")
def walk(site: Site, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    """Streams of ten seconds run through each change of the site, and through the way back."""
    walked = Walk(load=Load(model=MODEL, stream_tokens=STREAM_TOKENS, key="globex.laptop"))
    with edited_stack(site.lab, tmp_path_factory.mktemp("canary")) as stack:
        for edit in (_both, _decided):
            stack.up(edit)
        (canary,) = planned(site).named.keys() - planned(site).models.keys()
        with cluster.pace(MODEL, **SLOWLY):
            for percent in (25, 100):
                asyncio.run(walked.load.during(site, partial(stack.up, partial(_canary, percent))))
                (replica,) = cluster.ready_replicas(canary, 1)
                set_pace(replica, {key.replace("_", "-"): value for key, value in SLOWLY.items()})
                walked.sessions[percent] = [_answered(site, replica, "globex.laptop") for _ in range(2)]
                walked.pinned[percent] = _answered(site, replica, "acme.laptop")
            asyncio.run(walked.load.during(site, partial(stack.up, _decided)))
        yield walked


def planned(site: Site) -> SitePlan:
    """The site with a canary, whose name is the same at every share."""
    document = yaml.safe_load(site.lab.site_file.read_text())["config"][KEY]
    _canary(25, document)
    return plan_values(document, site.lab.site_file.name)


def _answered(site: Site, replica: Replica, key: str) -> int:
    """How many of these sessions it answers."""
    before = replica.served()
    with site.http(key=site.front.keys[key]) as client:
        for number in range(SESSIONS):
            answer = client.post("/chat/completions", json={**chat(MODEL, tokens=1), "prompt_cache_key": f"s{number}"})
            assert answer.status_code == 200, answer.text
    return replica.served() - before


def test_it_answers_its_share_of_sessions_each_time_the_same(walk: Walk) -> None:
    first, second = walk.sessions[25]
    assert first == second
    assert abs(first / SESSIONS - 0.25) < 0.1
    assert walk.sessions[100] == [SESSIONS, SESSIONS]


def test_a_pinned_tenant_stays_on_the_stable_revision(walk: Walk) -> None:
    assert walk.pinned == {25: 0, 100: 0}


def test_clients_lose_nothing_as_it_comes_grows_and_goes(walk: Walk) -> None:
    """Its last streams run on after its route has gone."""
    assert len(walk.load.streams) > 10
    assert not walk.load.failures()
