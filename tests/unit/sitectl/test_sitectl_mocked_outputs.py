"""Programs under mocks: an output that is read has what the SDK makes of it, and one that is not costs nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.row("C.06")]

ROOT = Path(__file__).parents[3]

# Runs the program of the current folder, and prints how often the SDK made an answer into Python's values.
_SCRIPT = """
import contextlib, json, sys
from pathlib import Path
from sitectl import mocked_program
sdk, asked = mocked_program._sdk_resolve_outputs, []
def counting(res, *more):
    asked.append(res._name)
    return sdk(res, *more)
mocked_program._sdk_resolve_outputs = counting
if "whole" in sys.argv:
    mocked_program._only_what_is_read = contextlib.nullcontext
status = mocked_program.main(["out.json", "site=stack.json"])
out = json.loads(Path("out.json").read_text())["site"]
out.pop("seconds", None)
print(json.dumps({"status": status, "asked": sorted(asked), "out": out}))
"""

_START = """
import pulumi
from pulumi_kubernetes.core.v1 import ConfigMap
one = ConfigMap("one", metadata={"name": "one"}, data={"key": "value"})
"""


def run(folder: Path, program: str, *how: str) -> dict[str, Any]:
    """What the script prints of a program that begins with `_START`; how: `whole` for all that the SDK does."""
    (folder / "__main__.py").write_text(_START + program)
    (folder / "stack.json").write_text(json.dumps({"config": {}}))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _SCRIPT, *how]
    told: dict[str, Any] = json.loads(subprocess.check_output(command, cwd=folder, env=environment, text=True))
    return told


def data_of(told: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {resource["name"]: resource["inputs"]["data"] for resource in told["out"]["resources"]}


def test_outputs_that_are_read_have_their_values(tmp_path: Path) -> None:
    program = """
two = ConfigMap("two", data={"read": one.data["key"], "kept": pulumi.Output.secret("word")})
kept = two.data.apply(lambda data: data["kept"])
ConfigMap("three", data={"id": one.id, "kept": kept, "name": one.metadata.name})
"""
    told = run(tmp_path, program)
    assert data_of(told) == {
        "one": {"key": "value"},
        "two": {"read": "value", "kept": "[secret]"},
        "three": {"id": "[known after up]", "kept": "[secret]", "name": "one"},
    }
    assert told["asked"] == ["one", "two"]
    assert told["out"] == run(tmp_path, program, "whole")["out"]


def test_outputs_that_nobody_reads_are_not_made(tmp_path: Path) -> None:
    told = run(tmp_path, 'ConfigMap("two", data={}, opts=pulumi.ResourceOptions(depends_on=[one]))\n')
    assert told["asked"] == []
    assert [resource["name"] for resource in told["out"]["resources"]] == ["one", "two"]


def test_aliases_keep_their_urns(tmp_path: Path) -> None:
    """The SDK computes those from names by the function that a registration has no use for."""
    program = """
class Part(pulumi.ComponentResource):
    def __init__(self, name, opts=None):
        super().__init__("test:Part", name, None, opts)
        ConfigMap(f"{name}-inner", data={}, opts=pulumi.ResourceOptions(parent=self))
Part("new", pulumi.ResourceOptions(aliases=[pulumi.Alias(name="old")]))
"""
    told = run(tmp_path, program)
    assert told["status"] == 0
    assert sorted(data_of(told)) == ["new-inner", "one"]


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ('pulumi.export("kept", one.data.apply(lambda data: data["missing"]))\n', "KeyError('missing')"),
        ('ConfigMap("two", data={"read": one.data.apply(lambda data: 1 / 0)})\n', "division by zero"),
        (
            'two = ConfigMap("two", data={"no": 1j})\npulumi.export("kept", two.data)\n',
            "unexpected input of type",
        ),
    ],
    ids=["exported", "of another", "no input"],
)
def test_what_fails_is_the_error_of_the_site(tmp_path: Path, program: str, error: str) -> None:
    told = run(tmp_path, program)
    assert error in told["out"]["error"]
    whole = run(tmp_path, program, "whole")
    # Of objects that the SDK names, the place in memory.
    mine, theirs = (re.sub("0x[0-9a-f]+", "", ran["out"]["error"]) for ran in (told, whole))
    assert mine == theirs
