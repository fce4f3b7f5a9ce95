"""What several sites need is asked for once, and nothing waits longer than its limit and the total."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bundle.asking import Asking, NoAnswerError, WaitingTimes
from bundle.errors import BundleError
from bundle.fetching import Sources, place_of, write_crds
from bundle.helm import Helm
from components.addons.charts import Chart
from stacks.facts import versions


@dataclass
class Clock:
    """A time that passes by what is asked alone."""

    now_s: float = 0.0
    limits_s: list[float] = field(default_factory=list)

    def answers(self, text: str, after_s: float) -> Callable[[float], str]:
        def ask(limit_s: float) -> str:
            self.limits_s.append(limit_s)
            self.now_s += min(after_s, limit_s)
            if after_s > limit_s:
                raise NoAnswerError("it", limit_s)
            return text

        return ask


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def asking(clock: Clock, notes: list[str]) -> Asking:
    return Asking(WaitingTimes(answer_s=60, total_s=100), notes.append, lambda: clock.now_s)


def test_a_question_is_asked_once(asking: Asking, clock: Clock, notes: list[str]) -> None:
    answers = [asking.once("a", "chart a", "oci://hub", clock.answers("text", 1)) for _ in range(3)]
    assert answers == ["text"] * 3
    assert clock.limits_s == [60]
    assert notes == ["  asking for chart a, at most 60 s"]


def test_an_error_is_shared_too(asking: Asking, clock: Clock) -> None:
    calls = 0

    def fails(limit_s: float) -> str:
        nonlocal calls
        calls += 1
        raise BundleError("no such chart", fix="another")

    for _ in range(2):
        with pytest.raises(BundleError, match="no such chart"):
            asking.once("a", "chart a", "oci://hub", fails)
    assert calls == 1


def test_a_place_that_gives_no_answer_is_not_asked_again(asking: Asking, clock: Clock) -> None:
    for question in ("a", "b", "c"):
        with pytest.raises(NoAnswerError, match="gave no answer within 60 s"):
            asking.once(question, "a chart", "oci://silent", clock.answers("", 1000))
    assert clock.now_s == 60
    assert asking.once("d", "a chart", "oci://other", clock.answers("text", 1)) == "text"


def test_all_answers_share_the_total(asking: Asking, clock: Clock) -> None:
    for place in ("first", "second"):
        with pytest.raises(NoAnswerError):
            asking.once(place, "a chart", place, clock.answers("", 1000))
    assert clock.limits_s == [60, 40]
    with pytest.raises(BundleError, match="a chart was not asked for: time is up") as error:
        asking.once("third", "a chart", "third", clock.answers("text", 1))
    assert (error.value.problem.allowed, clock.limits_s) == ("100 s for all answers", [60, 40])
    assert "--total-timeout" in error.value.problem.fix
    # What is known needs no time.
    with pytest.raises(NoAnswerError):
        asking.once("first", "a chart", "first", clock.answers("", 1))


@pytest.mark.parametrize(
    ("chart", "place"),
    [
        (Chart(chart="oci://docker.io/envoyproxy/gateway-helm", version="v1"), "oci://docker.io"),
        (Chart(chart="cilium", version="v1", repository="https://helm.cilium.io/a"), "https://helm.cilium.io"),
        (Chart(chart="./mirrored/gateway-helm-v1.tgz", version="v1"), "mirrored"),
    ],
)
def test_who_has_a_chart(chart: Chart, place: str) -> None:
    assert place_of(chart) == place


def test_a_helm_that_hangs_is_stopped_and_asked_once_for_all_sites(tmp_path: Path) -> None:
    helm = tmp_path / "helm"
    helm.write_text(f"#!/bin/sh\necho asked >>{tmp_path}/asked\nexec sleep 600\n")
    helm.chmod(0o755)
    asking = Asking(WaitingTimes(answer_s=2, total_s=300))
    for site in ("berlin", "paris", "rome"):
        sources = Sources(versions=versions.load(), helm=Helm(str(helm), tmp_path), asking=asking)
        with pytest.raises(NoAnswerError, match=r"oci://docker\.io/envoyproxy/ai-gateway-crds-helm gave no answer"):
            write_crds(sources, tmp_path / site, lambda _: None)
    assert (tmp_path / "asked").read_text() == "asked\n"


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = []
        threading.Thread(target=lambda: taken.append(server.accept()), daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        for connection, _ in taken:
            connection.close()


def test_a_release_file_that_does_not_come_is_given_up(silent_server: str, tmp_path: Path) -> None:
    pins = versions.load()
    source = pins.crd_sources["inference-extension.json"].model_copy(update={"file": f"{silent_server}/releases/x"})
    pins = pins.model_copy(update={"crd_sources": {**pins.crd_sources, "inference-extension.json": source}})
    sources = Sources(versions=pins, helm=Helm("helm", tmp_path), asking=Asking(WaitingTimes(answer_s=0.2)))
    with pytest.raises(NoAnswerError, match=r"http://127\.0\.0\.1:\d+/releases/x gave no answer"):
        sources.definitions("inference-extension.json")
