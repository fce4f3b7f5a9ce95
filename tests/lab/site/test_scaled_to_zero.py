"""A model that may have no replica, on a running site: what is asked while there is none starts one, and is not held.

KEDA's operator, the gateway, the picker and Prometheus are real programs. The last replica stays for a quarter of an
hour; the test shortens that on the cluster.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from lab import session
from tests.lab.site.added_charts import keda_chart
from tests.lab.site.replicas import Cluster, until
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import Document, edited_stack
from tests.lab.site.streams import chat
from tests.lab.site.test_autoscaling import ask_of_no_model, condition, patch, uids

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("001.24", "001.30")]

MODEL = "qwen3-32b"
_SOON = {"cooldownPeriod": 5, "initialCooldownPeriod": 5}
_LATER = {"cooldownPeriod": 900}
# KEDA looks every 15 s, and would act on the fourth failed query.
_PASSED_S = 90


def may_end(site: Document) -> None:
    site["models"][MODEL]["server"] |= {"replicas": 2, "scaling": {"least": 0}}


@dataclass(frozen=True)
class Answer:
    """One answer of the gateway."""

    status: int
    code: str
    retry_after: str
    message: str
    seconds: float


@dataclass(kw_only=True)
class Walk:
    """What was seen, step by step."""

    began: set[str] = field(default_factory=set)
    """Replicas after `up`."""
    unasked: int = -1
    """After minutes without a request."""
    unasked_and_blind: int = -1
    """The same while Prometheus has no answer either."""
    refused: Answer
    """Of the first request."""
    others: list[Answer] = field(default_factory=list)
    """Of those until one was answered."""
    served: set[str] = field(default_factory=set)
    blind: int = -1
    """After the last request, without an answer of Prometheus, for longer than a replica would stay."""
    ended: set[str] = field(default_factory=set)
    """Once it has a number again."""
    active: str = ""
    """KEDA's own word for whether its triggers work, while there is no replica."""


def ask(site: Site) -> Answer:
    begun = time.monotonic()
    with site.http() as client:
        answer = client.post("/chat/completions", json=chat(MODEL))
    error = answer.json().get("error", {})
    return Answer(
        answer.status_code,
        error.get("code", ""),
        answer.headers.get("retry-after", ""),
        error.get("message", ""),
        time.monotonic() - begun,
    )


def fails(site: Site) -> bool:
    """Whether KEDA has no answer to its queries."""
    return condition(site, "scaledobject", MODEL, "Ready") != "True"


@pytest.fixture(scope="module")
def walk(site: Site, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    with keda_chart(), edited_stack(site.lab, tmp_path_factory.mktemp("zero")) as stack:
        stack.up(may_end)
        began = uids(cluster, 2)
        patch(site, _SOON)
        uids(cluster, 0)
        # KEDA looks every 15 s; that it starts none unasked shows in no other way.
        time.sleep(2 * 15)
        unasked = len(cluster.replicas(MODEL))
        works = condition(site, "scaledobject", MODEL, "Ready")
        triggers = ask_of_no_model(site)
        until(lambda: fails(site), what="failed queries")
        # That none starts shows in no other way.
        time.sleep(_PASSED_S)
        blind = len(cluster.replicas(MODEL))
        patch(site, triggers)
        until(lambda: not fails(site), what="queries that work again")
        patch(site, _LATER)
        walked = Walk(began=began, unasked=unasked, unasked_and_blind=blind, active=works, refused=ask(site))

        def answered() -> bool:
            walked.others.append(ask(site))
            # As a client that is refused, and asks again.
            time.sleep(2)
            return walked.others[-1].status == 200

        until(answered, what="an answer")
        walked.served = uids(cluster, 1)
        triggers = ask_of_no_model(site)
        until(lambda: fails(site), what="failed queries")
        patch(site, _SOON)
        # A replica that would go is gone by then; that none goes shows in no other way.
        time.sleep(_PASSED_S)
        walked.blind = len(cluster.replicas(MODEL))
        patch(site, triggers)
        uids(cluster, 0)
    # KEDA may have stopped what the first `up` started, before it took KEDA's order away.
    session.run_pulumi(site.lab, "up", "--refresh", "--yes", "--skip-preview", "--stack", session.STACK)
    walked.ended = uids(cluster, 2)
    yield walked


def test_a_model_that_no_one_asks_for_has_no_replica(walk: Walk) -> None:
    assert (len(walk.began), walk.unasked) == (2, 0)
    assert walk.active == "True"


def test_without_an_answer_of_prometheus_none_is_started(walk: Walk) -> None:
    assert walk.unasked_and_blind == 0


def test_requests_meanwhile_are_refused_at_once_with_the_models_own_time(walk: Walk) -> None:
    for answer in (walk.refused, *walk.others[:-1]):
        assert (answer.status, answer.code) == (503, "model_starting")
        assert answer.retry_after == "60"
        assert answer.seconds < 5
    assert walk.refused.message.startswith(f"The model '{MODEL}' has no replica now. This request starts one")


def test_the_first_request_starts_a_replica_which_answers(walk: Walk) -> None:
    assert walk.others[-1].status == 200
    assert len(walk.served) == 1


def test_without_an_answer_of_prometheus_the_last_replica_stays(walk: Walk) -> None:
    assert walk.blind == 1


def test_a_number_starts_it_again(walk: Walk) -> None:
    assert len(walk.ended) == 2
