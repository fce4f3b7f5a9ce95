"""Verdicts on machines: of the program's own command lines, and what a machine answered in a preview."""

from __future__ import annotations

from dataclasses import replace

import pytest

from components.machines import machine_commands
from components.machines.machine_commands import Machine
from components.objects import KEEP
from sitectl.change.changes import Change, Op, of_preview
from sitectl.change.verdicts.classify import classify
from sitectl.change.verdicts.model import Severity

pytestmark = pytest.mark.row("opening 3")

GONE, ANEW, AGAIN, LIVE = Severity.IRREVERSIBLE, Severity.REPLACED, Severity.RESTARTS, Severity.LIVE
NODE = Machine(
    name="hgx-2",
    address="10.0.0.12",
    is_control_plane=False,
    image="factory.talos.dev/metal-installer/abc:v1.13.9",
    schematic_id="abc",
    schematic="",
    nvswitch=True,
)
BUMPED = replace(NODE, image="factory.talos.dev/metal-installer/abc:v1.13.10")


def roll(machine: Machine) -> str:
    return machine_commands.roll(machine, drain_timeout_s=600)


def change(op: Op, before: str, after: str = "", *, update: str = "", notes: tuple[str, ...] = ()) -> Change:
    def body(line: str) -> dict[str, str]:
        return {"create": line, "update": update or line}

    return Change(
        op=op,
        type="command:local:Command",
        name="machines-nodes-hgx-2",
        before={} if op == "create" else body(before),
        after={} if op == "delete" else body(after or before),
        notes=notes,
    )


INSTALL = machine_commands.install(NODE)
CASES: dict[str, tuple[Change, Severity, str]] = {
    "installed": (change("create", INSTALL), LIVE, "installs Talos on hgx-2"),
    "erased": (change("delete", INSTALL), GONE, "hgx-2 is reset"),
    "installed again": (change("replace", INSTALL), GONE, "hgx-2 is reset, and installed again"),
    "install worded differently": (change("update", INSTALL), LIVE, "worded differently"),
    "joins": (change("create", roll(NODE)), LIVE, "hgx-2 joins the cluster"),
    "leaves": (change("delete", roll(NODE)), ANEW, "hgx-2 is drained and leaves"),
    "successor": (change("replace", roll(NODE)), ANEW, "hgx-2 is taken out of the cluster and its successor"),
    "Talos bump": (change("update", roll(NODE), roll(BUMPED)), AGAIN, "hgx-2 goes from Talos v1.13.9 to v1.13.10"),
    "Talos bump of a machine that answers": (
        change("update", roll(NODE), roll(BUMPED), notes=("hgx-2: nothing changes on the machine",)),
        AGAIN,
        "hgx-2 goes from Talos v1.13.9 to v1.13.10",
    ),
    "config, nobody knows": (change("update", roll(NODE)), AGAIN, "hgx-2 takes another config"),
    "config, at once": (
        change("update", roll(NODE), notes=("hgx-2: the config changes at once, without a reboot: machine.sysctls",)),
        LIVE,
        "hgx-2 takes another config",
    ),
    "config, with a reboot": (
        change("update", roll(NODE), notes=("hgx-2: the node is drained and the machine REBOOTS for its config",)),
        AGAIN,
        "hgx-2 takes another config",
    ),
    "founded": (change("create", machine_commands.bootstrap([NODE]), update=KEEP), LIVE, "founds the cluster"),
    "founding forgotten": (change("delete", machine_commands.bootstrap([NODE]), update=KEEP), LIVE, "forgets"),
    "secrets made": (
        change("create", machine_commands.secrets(None), update=KEEP),
        LIVE,
        "makes the cluster's secrets",
    ),
    "secrets gone": (change("delete", machine_commands.secrets(None), update=KEEP), GONE, "the cluster's secrets go"),
    "secrets made again": (change("replace", machine_commands.secrets(None), update=KEEP), GONE, "secrets go"),
    "secrets stay": (change("update", machine_commands.secrets(None), update=KEEP), LIVE, "worded differently"),
    "kubeconfig renewed": (change("replace", machine_commands.kubeconfig([NODE]), update=KEEP), LIVE, "new access"),
    "talosconfig gone": (change("delete", machine_commands.talosconfig("x", [NODE])), LIVE, "forgets"),
    "image": (change("create", machine_commands.post_schematic("https://factory")), LIVE, "asks the image factory"),
    "image locked": (change("delete", machine_commands.post_schematic("https://factory")), LIVE, "forgets that"),
    "only looked at": (
        change("create", machine_commands.talos("plan", "--address", NODE.address, "--name", NODE.name)),
        LIVE,
        "calls the machine: plan",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_machine_s_change_is_judged(name: str) -> None:
    made, severity, what = CASES[name]
    (verdict,) = classify(made)
    assert verdict.severity is severity
    assert what in verdict.what


def test_the_machine_s_own_answer_is_the_reason() -> None:
    answer = "the node is drained and the machine REBOOTS for its config: machine.install"
    (verdict,) = classify(change("update", roll(NODE), notes=(f"hgx-2: {answer}",)))
    assert verdict.reason == answer


def test_what_a_preview_says_of_a_resource_goes_with_its_change() -> None:
    urn = "urn:pulumi:lab::p::command:local:Command::machines-nodes-hgx-2"
    state = {"type": "command:local:Command", "inputs": {"create": roll(NODE)}}
    preview = {
        "steps": [{"op": "update", "urn": urn, "oldState": state, "newState": state}],
        "diagnostics": [
            {"urn": urn, "severity": "warning", "message": "warning: hgx-2: the machine REBOOTS\n"},
            {"urn": "urn:another", "severity": "info", "message": "hgx-3: nothing"},
        ],
    }
    assert of_preview(preview)[0].notes == ("hgx-2: the machine REBOOTS",)
