"""The rules as a stack transform: all violations at once, and nothing registered when one is broken (opening 15)."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable
from typing import Any

import pulumi
import pytest
from pulumi.runtime.mocks import MockResourceArgs, Mocks, set_mocks
from pulumi.runtime.settings import set_root_resource
from pulumi.runtime.stack import run_in_stack

from components.objects import declare
from components.rules.model import HIDDEN, SiteFacts
from components.rules.transform import RulesError, body_of, watch

TODAY = datetime.date(2026, 6, 15)


class Recorder(Mocks):
    def __init__(self) -> None:
        self.made: list[str] = []

    def new_resource(self, args: MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        self.made.append(args.name)
        return args.name, dict(args.inputs)

    def call(self, args: Any) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:  # noqa: ARG002 - the mocks' form
        return {}, None


def run(program: Callable[[], None]) -> list[str]:
    recorder = Recorder()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    set_mocks(recorder, project="inference-platform", stack="test")
    set_root_resource(None)  # type: ignore[arg-type]
    try:
        loop.run_until_complete(run_in_stack(program))
    finally:
        set_root_resource(None)  # type: ignore[arg-type]
        program.__dict__["made"] = recorder.made
    return recorder.made


def namespace(name: str, level: str | None) -> None:
    labels = {"pod-security.kubernetes.io/enforce": level} if level else {}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    declare(name, body, pulumi.ResourceOptions())


def test_a_program_that_keeps_the_rules_registers_everything() -> None:
    def program() -> None:
        rules = watch(SiteFacts(name="test"), (), TODAY)
        namespace("one", "baseline")
        namespace("two", "restricted")
        rules.decide()

    assert sorted(run(program)) == ["one", "two"]


def test_a_broken_rule_says_all_and_registers_nothing() -> None:
    def program() -> None:
        rules = watch(SiteFacts(name="test"), (), TODAY)
        namespace("good", "baseline")
        namespace("silent", None)
        namespace("open", "privileged")
        rules.decide()

    with pytest.raises(RulesError) as caught:
        run(program)
    said = str(caught.value)
    assert said.startswith("test: 2 violations of the platform's rules\n")
    assert "Namespace silent: says nothing of pod security" in said
    assert "Namespace open: lets privileged pods run" in said
    assert said.count("fix: ") == 2
    assert program.__dict__["made"] == []


def test_bodies_are_seen_in_wire_format_with_outputs_hidden() -> None:
    asyncio.set_event_loop(asyncio.new_event_loop())
    props = {
        "api_version": "v1",
        "kind": "Secret",
        "string_data": {"key": pulumi.Output.secret("sk-1"), "plain": "text"},
        "metadata": {"name": "keys"},
        "immutable": None,
    }
    assert body_of("kubernetes:core/v1:Secret", props) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "stringData": {"key": HIDDEN, "plain": "text"},
        "metadata": {"name": "keys"},
    }
