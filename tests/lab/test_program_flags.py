"""The table of flags for `extraArgs` in patches, against the help of the programs themselves."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from lab.paths import Lab
from stacks.facts import program_flags

pytestmark = pytest.mark.row("000.11")

PROGRAMS = {
    "apiServer": "kube-apiserver",
    "controllerManager": "kube-controller-manager",
    "scheduler": "kube-scheduler",
    "proxy": "kube-proxy",
}
_FLAG = re.compile(r"^ +(?:-\w, )?--([a-z0-9][\w.-]*)(?: (\w+))?(?=  |$)", re.MULTILINE)
# A program's words for the values of a flag -> ours; all others are texts here.
_KINDS = {
    "": "switch",
    "int": "integer",
    "int32": "integer",
    "Level": "integer",
    "float": "number",
    "float32": "number",
    "duration": "duration",
    "colonSeparatedMultimapStringString": "gates",
    "mapStringBool": "gates",
}
# Flags of every program, and none for a config file.
_OF_HELP = {"help", "version"}


@pytest.fixture(scope="module")
def programs(module_lab_of_tools: Lab) -> Path:
    return module_lab_of_tools.bin


def output(program: Path, *arguments: str) -> str:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=60)
    return done.stdout + done.stderr


def unknown(program: Path, flags: Sequence[str]) -> list[str]:
    """Those that the program does not have; it reads flags in order, and stops at the first that is wrong."""
    refusals = ("unknown flag", "not defined")
    return [flag for flag in flags if any(text in output(program, f"--{flag}=", "--help") for text in refusals)]


@pytest.mark.parametrize("key", PROGRAMS)
def test_the_table_holds_the_flags_of_the_program(programs: Path, key: str) -> None:
    program = programs / PROGRAMS[key]
    ours = program_flags.load().programs[key].kinds
    theirs = {flag: _KINDS.get(kind, "text") for flag, kind in _FLAG.findall(output(program, "--help"))}
    offered = {flag: kind for flag, kind in theirs.items() if flag not in _OF_HELP}
    assert len(offered) > 50
    assert {flag: ours.get(flag) for flag in offered} == offered
    assert unknown(program, ["no-such-flag", *sorted(set(ours) - set(offered))]) == ["no-such-flag"]


def test_the_table_holds_the_flags_of_etcd(programs: Path) -> None:
    ours = set(program_flags.load().programs["etcd"].kinds)
    theirs = set(re.findall(r"^ +--([a-z0-9][\w.-]*)", output(programs / "etcd", "--help"), re.MULTILINE))
    assert len(theirs) > 100
    assert theirs - ours == set()
    # Named among its usages, not among its flags.
    assert ours - theirs == {"config-file"}
