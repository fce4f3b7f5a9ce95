"""Programs under mocks: what is registered without the SDK is what the SDK would have registered."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.exhaustive, pytest.mark.row("C.06")]

ROOT = Path(__file__).parents[3]

# Runs the program of the current folder, and prints which resources the SDK registered.
_SCRIPT = """
import json, sys
from pathlib import Path
from sitectl.offline import mocked_program
sdk, registered = mocked_program._sdk_register, []
def counting(resource, type_, name, *more):
    registered.append(name)
    return sdk(resource, type_, name, *more)
mocked_program._sdk_register = counting
if "whole" in sys.argv:
    mocked_program.registered_at_once = lambda *_: counting
status = mocked_program.main(["out.json", "site=stack.json"])
out = json.loads(Path("out.json").read_text())["site"]
out.pop("seconds", None)
print(json.dumps({"status": status, "registered": sorted(registered), "out": out}))
"""

_START = """
import pulumi
from pulumi_kubernetes.core.v1 import ConfigMap
class Plain(pulumi.CustomResource):
    def __init__(self, name, inputs, opts=None):
        super().__init__("kubernetes:core/v1:ConfigMap", name, inputs, opts)
one = Plain("one", {"data": {"key": "value"}, "metadata": {"name": "one"}, "status": None})
"""


def run(folder: Path, program: str, *how: str) -> dict[str, Any]:
    """What the script prints of a program that begins with `_START`; how: `whole` for all that the SDK does."""
    (folder / "__main__.py").write_text(_START + program)
    (folder / "stack.json").write_text(json.dumps({"config": {}}))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _SCRIPT, *how]
    reported: dict[str, Any] = json.loads(subprocess.check_output(command, cwd=folder, env=environment, text=True))
    return reported


def data_of(reported: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {resource["name"]: resource["inputs"]["data"] for resource in reported["out"]["resources"]}


def test_outputs_that_are_read_have_their_values(tmp_path: Path) -> None:
    program = """
two = ConfigMap("two", data={"read": one.data["key"], "kept": pulumi.Output.secret("word")})
kept = two.data.apply(lambda data: data["kept"])
ConfigMap("three", data={"id": one.id, "kept": kept, "name": one.metadata["name"], "none": one.status})
"""
    ran = run(tmp_path, program)
    assert data_of(ran) == {
        "one": {"key": "value"},
        "two": {"read": "value", "kept": "[secret]"},
        "three": {"id": "[known after up]", "kept": "[secret]", "name": "one", "none": "[known after up]"},
    }
    assert ran["registered"] == []
    assert ran["out"] == run(tmp_path, program, "whole")["out"]


@pytest.mark.parametrize(
    "inputs",
    [
        {"number": 1.0, "half": 0.5, "flag": True, "list": (1, 2), "none": None, "deep": {"none": None, "x": [{}]}},
        {"late": "one.id"},
        {"deep": [{"secret": "pulumi.Output.secret({})"}]},
    ],
    ids=["data", "an output", "a secret"],
)
def test_inputs_are_recorded_as_the_sdk_sends_them(tmp_path: Path, inputs: Any) -> None:
    written = re.sub(r"'((?:one|pulumi)\..*?)'", r"\1", repr(inputs))
    program = f"""
class Part(pulumi.ComponentResource):
    def __init__(self):
        super().__init__("test:Part", "part", None, pulumi.ResourceOptions(protect=True))
        self.register_outputs({{}})
kept = pulumi.ResourceOptions(parent=Part(), retain_on_delete=True, depends_on=[one])
two = Plain("two", {written}, kept)
Plain("three", {{"below": two.urn}}, pulumi.ResourceOptions(parent=two))
"""
    mine, theirs = run(tmp_path, program), run(tmp_path, program, "whole")
    assert mine["out"] == theirs["out"]
    assert len(mine["out"]["resources"]) == 3
    assert mine["status"] == 0
    assert len(mine["registered"]) < len(theirs["registered"])


def test_typed_resources_are_recorded_by_the_engines_names(tmp_path: Path) -> None:
    program = """
from pulumi_command.local import Command
from pulumi_kubernetes.helm.v3 import Release, RepositoryOptsArgs
ran = Command("ran", create="echo", environment={"KEY": one.data["key"], "KEPT": pulumi.Output.secret("word")},
    triggers=[one.id, 1.0], add_previous_output_in_env=False)
plain_run = Command("plain-run", create="echo", archive_paths=["a"])
ConfigMap("two", data={"printed": ran.stdout, "create": plain_run.create, "deep": ran.environment["KEY"]})
Release("chart", chart="c", values={"key": one.data}, repository_opts=RepositoryOptsArgs(repo="https://charts.example"))
Release("unpacked", chart="c", skip_crds=True, values={"key": ran.stdout})
"""
    mine, theirs = run(tmp_path, program), run(tmp_path, program, "whole")
    assert mine["out"] == theirs["out"]
    assert mine["registered"] == ["chart"], "a type with types of its own inside is the SDK's"
    inputs = {resource["name"]: resource["inputs"] for resource in mine["out"]["resources"]}
    assert inputs["ran"]["environment"] == {"KEY": "value", "KEPT": "[secret]"}
    assert inputs["ran"]["addPreviousOutputInEnv"] is False
    assert inputs["two"]["data"]["printed"] == "[known after up]"


def test_aliases_keep_their_urns(tmp_path: Path) -> None:
    """The SDK computes those from names by the function that a registration has no use for."""
    program = """
class Part(pulumi.ComponentResource):
    def __init__(self, name, opts=None):
        super().__init__("test:Part", name, None, opts)
        ConfigMap(f"{name}-inner", data={}, opts=pulumi.ResourceOptions(parent=self))
Part("new", pulumi.ResourceOptions(aliases=[pulumi.Alias(name="old")]))
"""
    reported = run(tmp_path, program)
    assert reported["status"] == 0
    assert sorted(data_of(reported)) == ["new-inner", "one"]
    assert reported["registered"] == []


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ('pulumi.export("kept", one.data.apply(lambda data: data["missing"]))\n', "KeyError('missing')"),
        ('ConfigMap("two", data={"read": one.data.apply(lambda data: 1 / 0)})\n', "division by zero"),
        (
            'two = Plain("two", {"no": 1j, "data": {}})\npulumi.export("kept", two.data)\n',
            "unexpected input of type",
        ),
    ],
    ids=["exported", "of another", "no input"],
)
def test_what_fails_is_the_error_of_the_site(tmp_path: Path, program: str, error: str) -> None:
    reported = run(tmp_path, program)
    assert error in reported["out"]["error"]
    whole = run(tmp_path, program, "whole")
    # Of objects that the SDK names, the place in memory.
    mine, theirs = (re.sub("0x[0-9a-f]+", "", ran["out"]["error"]) for ran in (reported, whole))
    assert mine == theirs
