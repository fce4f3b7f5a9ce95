"""Debug messages of the SDK and stack traces of registrations, under the SDK's own test monitor: none is sent."""

from __future__ import annotations

import sys
import traceback
from typing import Any

import pulumi
import pytest
from pulumi.runtime.stack import wait_for_rpcs

from stacks.program import debug_messages, source_positions
from tests.unit.pulumi_runtime import EchoingMocks, Recorder, in_own_runtime


class Thing(pulumi.CustomResource):
    def __init__(self, name: str) -> None:
        super().__init__("tests:index:Thing", name, {"size": 1})


@pytest.mark.parametrize("none", [True, False])
def test_the_engine_gets_no_debug_message(monkeypatch: pytest.MonkeyPatch, none: bool) -> None:
    """Each is a call that the program waits for, and those of outputs have secrets in plain text."""
    sent: list[str] = []
    monkeypatch.setattr(pulumi.log, "_log", lambda _engine, _severity, message, *_: sent.append(message))
    monkeypatch.setattr(pulumi.log, "debug", pulumi.log.debug)
    if none:
        debug_messages.send_none()

    async def program() -> None:
        part = pulumi.ComponentResource("tests:index:Part", "part")
        Thing("thing")
        part.register_outputs({"key": pulumi.Output.secret("quiet-word")})
        await wait_for_rpcs()
        pulumi.log.info("reported")

    in_own_runtime(EchoingMocks(), program)
    if none:
        assert sent == ["reported"]
    else:
        # What the SDK does by itself: so much for each resource, and the secret.
        assert sum("thing" in message for message in sent) >= 3
        assert any("quiet-word" in message for message in sent)


def test_a_registration_has_no_stack_trace() -> None:
    recorder = Recorder()

    async def program() -> None:
        with source_positions.left_out():
            Thing("inside")
        Thing("outside")
        await wait_for_rpcs()

    in_own_runtime(EchoingMocks(), program, monitor=recorder, positions=True)
    frames = {name: len(request.stackTrace.frames) for name, request in recorder.requests.items()}
    assert frames["inside"] == 0
    assert not recorder.requests["inside"].HasField("sourcePosition")
    # What the SDK does by itself.
    assert frames["outside"] > 5


@pytest.mark.parametrize("limit", [None, 50])
def test_an_error_of_the_program_still_has_its_traceback(monkeypatch: pytest.MonkeyPatch, limit: int | None) -> None:
    if limit:
        monkeypatch.setattr(sys, "tracebacklimit", limit, raising=False)
    before: Any = getattr(sys, "tracebacklimit", None)

    def declare() -> None:
        raise pulumi.RunError("refused")

    with pytest.raises(pulumi.RunError) as refused, source_positions.left_out():
        declare()
    assert "in declare" in "".join(traceback.format_exception(refused.value))
    assert getattr(sys, "tracebacklimit", None) == before
