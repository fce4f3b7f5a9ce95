"""The rules as a stack transform: all violations at once, and nothing registered when one is broken."""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Callable
from typing import Any

import pulumi
import pytest
import yaml
from pulumi.runtime.mocks import MockResourceArgs, Mocks
from pulumi.runtime.settings import set_root_resource
from pulumi.runtime.stack import run_in_stack
from pulumi_kubernetes import core

from components.network_policies import deny_ingress
from components.objects import declare
from policy.model import HIDDEN, SiteFacts
from policy.transform import RulesError, body_of, enforced
from policy.waivers import RulesSpec, Waiver
from tests.unit.pulumi_runtime import in_own_runtime
from tests.unit.rules.broken_sites import BROKEN, FACTS, SOVEREIGN, bodies

pytestmark = pytest.mark.row("opening 15")

TODAY = datetime.date(2026, 6, 15)
NO_OPTIONS = pulumi.ResourceOptions()
CANARY = "canary-7f3a"


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

    async def in_stack() -> None:
        # The mocks make a stack where there is none.
        set_root_resource(None)  # type: ignore[arg-type]
        await run_in_stack(program)

    try:
        in_own_runtime(recorder, in_stack, stack="test")
    finally:
        program.__dict__["made"] = recorder.made
    return recorder.made


def namespace(name: str, level: str | None) -> None:
    labels = {"pod-security.kubernetes.io/enforce": level} if level else {}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    declare(name, body, pulumi.ResourceOptions())
    declare(f"{name}-deny", deny_ingress(name), pulumi.ResourceOptions())


def test_a_program_that_keeps_the_rules_registers_everything() -> None:
    def program() -> None:
        with enforced(SiteFacts(name="test"), (), TODAY):
            namespace("one", "baseline")
            namespace("two", "restricted")

    assert sorted(run(program)) == ["one", "one-deny", "two", "two-deny"]


def broken() -> None:
    with enforced(SiteFacts(name="test"), (), TODAY):
        namespace("good", "baseline")
        namespace("silent", None)
        namespace("open", "privileged")


def test_a_broken_rule_says_all_and_registers_nothing() -> None:
    with pytest.raises(RulesError) as caught:
        run(broken)
    error = str(caught.value)
    assert error.startswith("test: 2 violations of the platform's rules, so nothing was touched\n")
    assert "Namespace silent: sets no level of pod security" in error
    assert "Namespace open: lets privileged pods run" in error
    assert error.count("[namespace-security]\n    fix: ") == 2
    assert broken.__dict__["made"] == []


def test_the_message_holds_a_waiver_that_would_do() -> None:
    with pytest.raises(RulesError) as caught:
        run(broken)
    lines = str(caught.value).splitlines()
    assert "waive one for a while in rules.test.yaml" in str(caught.value)
    begin = lines.index("    waivers:")
    text = "\n".join(line[4:] for line in lines[begin : begin + 5]).replace("YYYY-MM-DD", "2999-01-01")
    (waiver,) = RulesSpec.model_validate(yaml.safe_load(text)).waivers
    assert (waiver.rule, waiver.resource) == ("namespace-security", "Namespace open")


@pytest.mark.parametrize("expires", [TODAY, TODAY - datetime.timedelta(days=1)], ids=["holds", "expired"])
def test_a_waiver_lets_it_through_until_its_last_day(expires: datetime.date) -> None:
    waiver = Waiver(rule="namespace-security", resource="Namespace open", reason="moves out in summer", expires=expires)

    def program() -> None:
        with enforced(SiteFacts(name="test"), (waiver,), TODAY):
            namespace("open", "privileged")

    if expires == TODAY:
        assert sorted(run(program)) == ["open", "open-deny"]
        return
    with pytest.raises(RulesError, match="2 violations") as caught:
        run(program)
    assert "its waiver expired on 2026-06-14 (reason: moves out in summer)" in str(caught.value)
    assert program.__dict__["made"] == []


def test_a_program_that_fails_half_way_ends_and_registers_nothing() -> None:
    """Without an end to their wait, the registrations before it would block the engine forever."""

    def program() -> None:
        with enforced(SiteFacts(name="test"), (), TODAY):
            namespace("one", "baseline")
            raise pulumi.RunError("a file is missing")

    with pytest.raises(pulumi.RunError, match="a file is missing"):
        run(program)
    assert program.__dict__["made"] == []


def test_what_is_declared_too_late_to_be_looked_at_is_refused() -> None:
    def program() -> None:
        with enforced(SiteFacts(name="test"), (), TODAY):
            namespace("one", "baseline")
        pulumi.Output.from_input("two").apply(lambda name: namespace(name, "privileged"))

    with pytest.raises(RulesError, match="Namespace two is declared after the rules have looked"):
        run(program)
    assert sorted(program.__dict__["made"]) == ["one", "one-deny"]


def test_what_is_only_read_is_not_judged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    def program() -> None:
        with enforced(SiteFacts(name="test"), (), TODAY):
            core.v1.Namespace.get("theirs", "kube-system")
            namespace("one", "baseline")

    assert "one" in run(program)
    assert "advised" not in caplog.text


def test_no_secret_value_reaches_a_message(caplog: pytest.LogCaptureFixture) -> None:
    """A site that breaks every rule it can, with every value in it secret: the message has none of them."""
    objects = bodies()
    for case in BROKEN.values():
        case.change(objects) if case.facts is FACTS else None
    objects["namespace"]["metadata"].pop("labels", None)
    kept = ("apiVersion", "kind", "metadata")

    def program() -> None:
        with enforced(SOVEREIGN, (), TODAY):
            for name, body in objects.items():
                declare(name, {key: inner if key in kept else secret(inner) for key, inner in body.items()}, NO_OPTIONS)

    caplog.set_level(logging.DEBUG)
    with pytest.raises(RulesError) as caught:
        run(program)
    assert "Namespace models: sets no level of pod security" in str(caught.value), "the rules did look"
    assert f"runs '{HIDDEN}'" in str(caught.value)
    assert CANARY not in str(caught.value) + caplog.text


def secret(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: secret(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [secret(inner) for inner in value]
    return pulumi.Output.secret(f"{CANARY}-{value}")


def test_advice_is_said_once_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    unused = Waiver(rule="spread", resource="Deployment models/gone", reason="there was one node", expires=TODAY)

    def program() -> None:
        with enforced(SiteFacts(name="test"), (unused,), TODAY):
            declare("one", bodies()["service"], NO_OPTIONS)

    assert run(program) == ["one"]
    messages = [record.getMessage() for record in caplog.records if "advised" in record.getMessage()]
    assert [message.partition(": ")[2].splitlines()[:1] for message in messages] == [
        ["advised by the platform's rules"]
    ]
    assert "waives nothing" in messages[0]


def test_bodies_are_seen_in_wire_format_with_outputs_hidden() -> None:
    async def body() -> dict[str, Any]:
        promise: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        props = {
            "api_version": "v1",
            "kind": "Secret",
            "string_data": {"key": pulumi.Output.secret("sk-1"), "later": promise, "plain": "text"},
            "metadata": {"name": "keys"},
            "immutable": None,
        }
        return body_of("kubernetes:core/v1:Secret", props)

    assert in_own_runtime(Recorder(), body) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "stringData": {"key": HIDDEN, "later": HIDDEN, "plain": "text"},
        "metadata": {"name": "keys"},
    }


def test_bodies_out_of_the_sdks_own_classes_look_the_same() -> None:
    spec = core.v1.PodSpecArgs(
        host_network=True,
        containers=[core.v1.ContainerArgs(name="a", image="b:latest", image_pull_policy="Always")],
    )
    assert body_of("kubernetes:core/v1:Pod", {"spec": spec}) == {
        "kind": "Pod",
        "spec": {
            "hostNetwork": True,
            "containers": [{"name": "a", "image": "b:latest", "imagePullPolicy": "Always"}],
        },
    }
