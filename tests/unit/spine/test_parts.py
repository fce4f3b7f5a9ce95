"""The parts of a site are declared in the order of their needs, each with what it needs and nothing else."""

from __future__ import annotations

from graphlib import CycleError
from typing import Any, cast

import pytest

from stacks.program.parts import PartDone, PartStep, SitePart, declare_parts, group

NOTHING: Any = None


def resource(name: str) -> Any:
    return cast("Any", name)


def test_each_part_is_declared_after_what_it_needs_whatever_the_order_of_the_table() -> None:
    order: list[str] = []

    def part(name: str, *needs: str) -> SitePart:
        def declare(step: PartStep) -> PartDone:
            order.append(name)
            assert step.ready() == [resource(need) for need in needs]
            return PartDone(ready=[resource(name)])

        return SitePart(name, declare, needs)

    last = declare_parts([part("models", "gateway", "crds"), part("gateway", "crds"), part("crds")], NOTHING)
    assert order == ["crds", "gateway", "models"]
    assert last.ready("models", "crds") == [resource("models"), resource("crds")]


def test_a_part_sees_nothing_that_it_does_not_name() -> None:
    crds = SitePart("crds", lambda _: PartDone(ready=[resource("crds")]))
    secretly = SitePart("models", lambda step: PartDone(ready=step.ready("crds")))
    with pytest.raises(KeyError, match="crds"):
        declare_parts([crds, secretly], NOTHING)


def test_needs_in_a_circle_and_needs_that_no_part_is_are_refused() -> None:
    def part(name: str, *needs: str) -> SitePart:
        return SitePart(name, lambda _: PartDone(), needs)

    with pytest.raises(CycleError, match=r"(a.*b|b.*a)"):
        declare_parts([part("a", "b"), part("b", "a")], NOTHING)
    with pytest.raises(KeyError, match="certificates"):
        declare_parts([part("gateway", "certificates")], NOTHING)


def test_a_group_is_ready_with_its_members_and_a_handle_is_of_the_kind_that_is_asked_for() -> None:
    parts = [
        SitePart("gpus", lambda _: PartDone(ready=[resource("gpus")], handle=8)),
        SitePart("volumes", lambda _: PartDone()),
        group("hardware", ["gpus", "volumes"]),
        group("nothing", []),
    ]
    last = declare_parts(parts, NOTHING)
    assert (last.ready("hardware"), last.ready("nothing"), last.handle("gpus", int)) == ([resource("gpus")], [], 8)
    with pytest.raises(TypeError, match="gpus leaves int, not str"):
        last.handle("gpus", str)
