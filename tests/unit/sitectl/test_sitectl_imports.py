"""What a command imports: it starts as fast as that. The engine's SDK is for the program alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sitectl.offline import checkout, mocked_registration
from sitectl.shell.cli import COMMANDS

ROOT = Path(__file__).parents[3]
SDK = {"pulumi", "pulumi_kubernetes", "pulumi_command", "grpc", "google.protobuf"}
# For machines and factories, which no file of a site asks.
CLIENTS = {"httpx"}

_SCRIPT = """
import io, json, sys
from sitectl.shell.cli import COMMAND_LINE, main
imported = {}
for name in sys.argv[1:]:
    if name == "validate":
        assert main([name, "--quiet"], io.StringIO()) == 0
    else:
        COMMAND_LINE.get_command(None, name)
    imported[name] = sorted(sys.modules)
print(json.dumps(imported))
"""


def imported(*commands: str) -> dict[str, set[str]]:
    """Modules in memory after each of the commands, one after the other in one process; `validate` runs."""
    reported = subprocess.check_output([sys.executable, "-c", _SCRIPT, *commands], cwd=ROOT, text=True)
    return {name: set(modules) for name, modules in json.loads(reported).items()}


@pytest.mark.slow
def test_validate_imports_neither_the_sdk_nor_a_client() -> None:
    assert imported("validate")["validate"] & (SDK | CLIENTS) == set()


@pytest.mark.slow
def test_no_command_imports_the_sdk() -> None:
    commands = imported(*COMMANDS)
    assert {name: modules & SDK for name, modules in commands.items() if modules & SDK} == {}


def test_help_imports_no_part_of_the_program() -> None:
    script = "import sys, sitectl.shell.cli; print(*sorted(sys.modules))"
    modules = subprocess.check_output([sys.executable, "-c", script], cwd=ROOT, text=True).split()
    assert {name.partition(".")[0] for name in modules} & {
        "rich",
        "pydantic",
        "components",
        "policy",
        "talos",
        "httpx",
        *SDK,
    } == set()


def test_a_value_that_up_alone_knows_has_one_word() -> None:
    """The mocked program needs the SDK, so the commands define the text a second time."""
    assert checkout.LATER == mocked_registration.LATER
