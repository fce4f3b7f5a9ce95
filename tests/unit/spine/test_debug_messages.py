"""Secret outputs of the stack and the SDK's debug messages, under the SDK's own test monitor."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest
from pulumi.runtime.stack import wait_for_rpcs

from stacks.program import debug_messages
from tests.unit.pulumi_runtime import in_own_runtime


class Mocks(pulumi.runtime.Mocks):
    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        return args.name, args.inputs

    def call(self, args: pulumi.runtime.MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:  # noqa: ARG002
        return {}, None


@pytest.mark.parametrize("hidden", [True, False])
def test_secret_outputs_stay_out_of_debug_messages(monkeypatch: pytest.MonkeyPatch, hidden: bool) -> None:
    told: list[str] = []
    monkeypatch.setattr(debug_messages, "_tell", lambda msg, *_: told.append(msg))
    monkeypatch.setattr(pulumi.log, "debug", lambda msg, *_: told.append(msg))
    if hidden:
        debug_messages.hide_outputs()

    async def program() -> None:
        part = pulumi.ComponentResource("tests:index:Part", "part")
        part.register_outputs({"key": pulumi.Output.secret("quiet-word")})
        await wait_for_rpcs()

    in_own_runtime(Mocks(), program)
    # The first proves that the SDK still does it, and so that the guard is still needed.
    assert any("quiet-word" in message for message in told) is not hidden
    assert any(message.startswith("resource registration successful: urn=") for message in told)
