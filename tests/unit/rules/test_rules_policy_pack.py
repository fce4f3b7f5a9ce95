"""The rules as a CrossGuard pack: what the SDK shows becomes resources, findings become reports.

The SDK asks for another protobuf than the platform, so it is not installed here; what it hands over is stood in for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from policy.adapter import plain, resource, validation
from policy.listing import RULES
from policy.model import HIDDEN
from tests.unit.rules.broken_sites import BROKEN, FACTS, bodies

pytestmark = pytest.mark.row("opening 15")

POLICY = Path(__file__).parents[3] / "policy"
UNKNOWN_STRING, UNKNOWN_OBJECT = "04da6b54-80e4-46f7-96ec-b56ff0331ba9", "dd056dcd-154b-4c76-9bd3-c8f88648b5ff"


class UnknownValueStandIn(Exception):  # noqa: N818 - named like the SDK's
    def __init__(self, sentinel: str) -> None:
        super().__init__(sentinel)
        self.unknown_type_sentinel = sentinel


class DictStandIn(Mapping[str, Any]):
    """The SDK's view of an object: no dict, and it raises for unknown values."""

    def __init__(self, inner: dict[str, Any]) -> None:
        self._inner = inner

    def __getitem__(self, key: str) -> Any:
        value = self._inner[key]
        if value in (UNKNOWN_STRING, UNKNOWN_OBJECT):
            raise UnknownValueStandIn(value)
        return view(value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._inner)

    def __len__(self) -> int:
        return len(self._inner)


class ListStandIn(Sequence[Any]):
    """The SDK's view of a list: no list."""

    def __init__(self, inner: list[Any]) -> None:
        self._inner = inner

    def __getitem__(self, place: Any) -> Any:
        return view(self._inner[place])

    def __len__(self) -> int:
        return len(self._inner)


def view(value: Any) -> Any:
    if isinstance(value, dict):
        return DictStandIn(value)
    return ListStandIn(value) if isinstance(value, list) else value


@dataclass
class Shown:
    resource_type: str
    name: str
    props: Mapping[str, Any]
    opts: Any = field(default_factory=lambda: SimpleNamespace(protect=True))

    @property
    def urn(self) -> str:
        return f"urn:pulumi:lab::p::{self.resource_type}::{self.name}"


def shown(objects: dict[str, dict[str, Any]]) -> list[Shown]:
    return [
        Shown(f"kubernetes:{body['apiVersion']}:{body['kind']}", name, view(body)) for name, body in objects.items()
    ]


def reports(objects: dict[str, dict[str, Any]]) -> list[tuple[str, str | None]]:
    reported: list[tuple[str, str | None]] = []
    stack = SimpleNamespace(resources=shown(objects))
    for rule in RULES:
        validation(rule, FACTS)(stack, lambda message, urn: reported.append((message, urn)))
    return reported


def test_a_stack_that_keeps_the_rules_has_no_report() -> None:
    assert reports(bodies()) == []


@pytest.mark.parametrize("case", ["latest", "no tag"])
def test_a_broken_rule_is_reported_with_its_fix_and_urn(case: str) -> None:
    objects = bodies()
    BROKEN["image-pinned", case].change(objects)
    ((message, urn),) = reports(objects)
    assert message.startswith("Deployment models/chat: container engine runs")
    assert "\nfix: " in message
    assert urn == "urn:pulumi:lab::p::kubernetes:apps/v1:Deployment::deployment"


def test_what_is_not_known_yet_is_hidden_and_unknown_sections_are_left_out() -> None:
    assert plain(DictStandIn({"a": UNKNOWN_STRING, "b": UNKNOWN_OBJECT, "c": [{"d": 1}]})) == {
        "a": HIDDEN,
        "c": [{"d": 1}],
    }


def test_the_kubernetes_providers_own_note_of_the_inputs_is_read() -> None:
    """A stack validation is shown outputs, to which the API server has added much."""
    body = bodies()["deployment"]
    resource_seen = resource(
        Shown("kubernetes:apps/v1:Deployment", "d", view({**body, "status": {}, "__inputs": body}))
    )
    assert resource_seen.body == body
    assert resource_seen.protected


def test_values_of_secrets_reach_no_message() -> None:
    """CrossGuard hands them over in plain text."""
    objects = bodies()
    objects["secret"]["stringData"] = {"key": "sk-plain"}
    objects["secret"]["data"] = {"key": "c2stcGxhaW4="}
    assert resource(shown(objects)[list(objects).index("secret")]).body["data"] == HIDDEN
    assert reports(objects) == []


def test_the_pack_hosts_the_one_list_and_adds_nothing() -> None:
    assert yaml.safe_load((POLICY / "PulumiPolicy.yaml").read_text())["runtime"] == "python"
    tree = ast.parse((POLICY / "__main__.py").read_text())
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert "RULES" in names
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)], "the pack holds no logic"
