"""What the SDK looks at while it waits for the end of a program, under its own test monitor."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pulumi
import pytest
from pulumi.runtime.stack import run_pulumi_func, wait_for_rpcs

from stacks.program import ending
from tests.unit.pulumi_runtime import in_own_runtime

RESOURCES = 60


class Mocks(pulumi.runtime.Mocks):
    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        if args.name == "refused":
            raise pulumi.RunError("this one is refused")
        return args.name, args.inputs

    def call(self, args: pulumi.runtime.MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:  # noqa: ARG002
        return {}, None


class Part(pulumi.CustomResource):
    def __init__(self, name: str) -> None:
        super().__init__("tests:index:Part", name, {f"input{at}": at for at in range(8)})


async def ended(declare: Callable[[], None]) -> None:
    """Run a program to its end, as the language host does; the mocks' own stack is registered before."""
    await wait_for_rpcs()
    await run_pulumi_func(declare)


@pytest.mark.parametrize("in_order", [True, False])
def test_outputs_are_looked_at_when_registrations_are_made(monkeypatch: pytest.MonkeyPatch, in_order: bool) -> None:
    looked: list[int] = []
    wait = asyncio.wait

    async def counted(tasks: Collection[asyncio.Task[Any]], **how: Any) -> Any:
        looked.append(len(tasks))
        return await wait(tasks, **how)

    def declare() -> None:
        monkeypatch.setattr(asyncio, "wait", counted)
        if in_order:
            ending.wait_for_registrations_first()
        for number in range(RESOURCES):
            Part(f"part-{number}")

    in_own_runtime(Mocks(), lambda: ended(declare))
    # The second proves that the SDK still does it, and so that the entry is still needed.
    assert (sum(looked) < RESOURCES) is in_order, looked


def test_what_fails_in_a_registration_is_still_reported() -> None:
    def declare() -> None:
        ending.wait_for_registrations_first()
        for name in ("first", "refused", "last"):
            Part(name)

    with pytest.raises(pulumi.RunError, match="this one is refused"):
        in_own_runtime(Mocks(), lambda: ended(declare))


def test_what_fails_in_an_output_is_still_reported() -> None:
    async def ask() -> str:
        raise pulumi.RunError("a machine refuses")

    def declare() -> None:
        ending.wait_for_registrations_first()
        Part("first")
        answer: Awaitable[Any] = ask()
        pulumi.Output.from_input(answer)

    with pytest.raises(pulumi.RunError, match="a machine refuses"):
        in_own_runtime(Mocks(), lambda: ended(declare))
