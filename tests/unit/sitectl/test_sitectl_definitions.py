"""Commands that install definitions: what a change of one means, and how it is read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from definitions.command import ApplyCommand
from sitectl.change.changes import Change, Op
from sitectl.change.verdicts.classify import classify
from sitectl.change.verdicts.model import Severity

pytestmark = pytest.mark.row("000.30")


def command(release: str, kubeconfig: str = "") -> ApplyCommand:
    file = Path("a folder/gateway-api.json")
    return ApplyCommand(file=file, release=release, sha256="0" * 64, manager="m-lab", kubeconfig=kubeconfig)


@pytest.mark.parametrize(
    ("op", "before", "after", "what"),
    [
        ("create", "", "v1.6.1", "installs the definitions of gateway-api v1.6.1"),
        ("update", "v1.6.0", "v1.6.1", "definitions of gateway-api v1.6.0 -> v1.6.1"),
        ("update", "v1.6.1", "v1.6.1", "applies the definitions of gateway-api again"),
        ("delete", "v1.6.1", "", "leaves the definitions of gateway-api to others"),
    ],
)
def test_no_change_of_definitions_costs_an_object(op: Op, before: str, after: str, what: str) -> None:
    sides = [{"create": command(release).text} if release else {} for release in (before, after)]
    change = Change(op=op, type="command:local:Command", name="crds-gateway-api", before=sides[0], after=sides[1])
    assert [(verdict.severity, verdict.what) for verdict in classify(change)] == [(Severity.LIVE, what)]


def test_a_command_is_read_back_and_no_other_is_taken_for_one() -> None:
    for written in (command("v1.6.1"), command("v1.6.1", "~/.kube/my config")):
        assert ApplyCommand.read(written.text) == written
    for other in ("", None, ".venv/bin/python -m talos apply", f"echo '{command('v1').text}'"):
        assert ApplyCommand.read(other) is None
