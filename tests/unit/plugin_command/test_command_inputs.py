from typing import Any

import pytest

from lab.plugins import values
from lab.plugins.command import inputs


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ({"create": "a"}, {"create": "a"}, {}),
        ({"create": "a"}, {"create": "b"}, {"create": "update"}),
        ({}, {"create": "b"}, {"create": "add"}),
        ({"stdin": "a"}, {}, {"stdin": "delete"}),
        (
            {"environment": {"A": "1", "B": "2"}},
            {"environment": {"A": "1", "B": "3", "c.d": "4"}},
            {"environment.B": "update", 'environment["c.d"]': "add"},
        ),
        ({"triggers": ["a"]}, {"triggers": ["a", {"b": 1}]}, {"triggers[1]": "add"}),
        ({"triggers": [{"b": 1}]}, {"triggers": [{"b": 2}]}, {"triggers[0].b": "update"}),
        ({"stdin": "a"}, {"stdin": values.secret("a")}, {"stdin": "update"}),
        ({"stdin": values.secret("a")}, {"stdin": values.secret("a")}, {}),
        ({"stdin": "a"}, {"stdin": values.UNKNOWN}, {"stdin": "update"}),
    ],
)
def test_changes_name_the_property(old: dict[str, Any], new: dict[str, Any], changed: dict[str, str]) -> None:
    assert inputs.changes(old, new) == changed


def test_a_moved_file_with_the_same_content_is_no_change() -> None:
    old = {values.SIGNATURE: values.ASSET, "path": "/a", "hash": "1"}
    moved = {values.SIGNATURE: values.ASSET, "path": "/b", "hash": "1"}
    other = {values.SIGNATURE: values.ASSET, "path": "/b", "hash": "2"}
    assert inputs.changes({"triggers": [old]}, {"triggers": [moved]}) == {}
    assert inputs.changes({"triggers": [old]}, {"triggers": [other]}) == {"triggers[0]": "update"}


def test_failures_name_what_is_allowed_and_never_the_value() -> None:
    refused = inputs.failures(
        {
            "create": 1.0,
            "environment": {"A": values.secret(2.0)},
            "logging": "hidden-7",
            "interpreter": "sh",
            "dir": True,
        }
    )
    assert sorted(refused) == ["create", "dir", "environment", "interpreter", "logging"]
    assert refused["create"] == "got a number, allowed is a string"
    assert "stdoutAndStderr" in refused["logging"]
    assert "hidden-7" not in str(refused)


def test_unknown_and_secret_values_are_accepted() -> None:
    unknown = dict.fromkeys(inputs.COMMAND_RULES, values.UNKNOWN)
    assert inputs.failures(unknown) == {}
    assert inputs.failures({"environment": values.secret({"A": "b"}), "triggers": [1.0, None, {}]}) == {}


def test_inputs_nobody_knows_are_dropped() -> None:
    assert inputs.accepted({"create": "a", "connection": {}, "stdin": None}) == {"create": "a"}
