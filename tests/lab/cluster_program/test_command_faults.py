"""Faults of machines as each command of `up` meets them: the message names them, and the command again completes.

The commands run in this process, as the program writes them; test_cluster_faults.py has the engine run them.
"""

from __future__ import annotations

import itertools
import socket
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from lab.machines.cluster_hooks import RecordedCluster
from lab.machines.faults import Fault
from lab.machines.machine import Machine
from talos.cli.failures import Exit
from tests.lab.cluster_program.rack_commands import LIMITS, SHORT_OF_PATIENCE, Done, RackCommands, Step
from tests.lab.cluster_program.rack_site import new_rack_site
from tests.lab.held_clock import HeldClock

pytestmark = pytest.mark.row("opening 4")

NEVER_S = 3600.0
SKEW_S = 3 * 86400.0
PLANE, WORKER = "cp-1", "hgx-1"


def is_used_up(machine: Machine) -> bool:
    """Whether a fault with `times` has happened."""
    return not machine.faults.all()


def is_away(machine: Machine) -> bool:
    """Whether the fault has taken the machine away: its port refuses connections."""
    if not is_used_up(machine):
        return False
    try:
        socket.create_connection((machine.address, machine.spec.port)).close()
    except ConnectionRefusedError:
        return True
    return False


def has_booted(machine: Machine) -> bool:
    return machine.cri_up


def never(_machine: Machine) -> bool:
    """For faults that end the command, whatever the time."""
    return False


@dataclass(frozen=True, kw_only=True)
class Case:
    """A fault at a step of a node, and the first line of the error that it ends the command with."""

    step: Step
    node: str
    fault: Fault
    code: Exit
    message: str
    happened: Callable[[Machine], bool] = is_used_up


def refused(call: str, *, code: str = "INTERNAL") -> Fault:
    return Fault(kind="refuse", code=code, calls=(call,), times=1)


def slow(call: str) -> Fault:
    return Fault(kind="slow", seconds=NEVER_S, calls=(call,), times=1)


def dies(at: str) -> Fault:
    return Fault(kind="die", at=at, times=1)


def at_install(
    node: str, fault: Fault, message: str, code: Exit = Exit.AWAY, happened: Callable[[Machine], bool] = is_used_up
) -> Case:
    return Case(step="install", node=node, fault=fault, code=code, message=f"{node}: {message}", happened=happened)


def at_plane(
    step: Step, fault: Fault, message: str, code: Exit = Exit.AWAY, happened: Callable[[Machine], bool] = is_used_up
) -> Case:
    return Case(step=step, node=PLANE, fault=fault, code=code, message=f"{PLANE}: {message}", happened=happened)


def installs(node: str) -> dict[str, Case]:
    """What may go wrong with the install of a node."""
    late = Fault(kind="late", seconds=NEVER_S, times=1)
    skewed = Fault(kind="clock-skew", seconds=SKEW_S)
    # From outside, a late machine looks the same as a dead one.
    gone = "waited 5 s to install and boot; last: Get: Connection refused"
    return {
        f"{node}-apply-slow": at_install(
            node,
            slow("ApplyConfiguration"),
            "waited 5 s to apply the config; last: ApplyConfiguration: no complete answer within 3 s",
        ),
        f"{node}-apply-refused": at_install(
            node, refused("ApplyConfiguration"), "ApplyConfiguration: refused on request", Exit.FAILED
        ),
        f"{node}-late": at_install(node, late, gone, happened=is_away),
        f"{node}-dies-applying": at_install(
            node, dies("apply"), "waited 5 s for an answer; last: Version: Connection refused", happened=is_away
        ),
        f"{node}-dies-installing": at_install(node, dies("install"), gone, happened=is_away),
        f"{node}-installer-fails": at_install(
            node,
            Fault(kind="installer-fails", times=1),
            "came back in maintenance mode: the install did not succeed",
            Exit.FAILED,
            happened=never,
        ),
        f"{node}-clock-skew": at_install(
            node,
            skewed,
            "waited 5 s to install and boot; last: it is installing, or its certificate is not accepted: "
            "untrusted certificate: certificate is not yet valid",
            happened=has_booted,
        ),
    }


CASES = {
    **installs(PLANE),
    "bootstrap-slow": at_plane(
        "bootstrap", slow("Bootstrap"), "waited 5 s to bootstrap; last: Bootstrap: no complete answer within 3 s"
    ),
    "bootstrap-refused": at_plane("bootstrap", refused("Bootstrap"), "Bootstrap: refused on request", Exit.FAILED),
    "bootstrap-dies": at_plane(
        "bootstrap",
        dies("bootstrap"),
        "waited 5 s to bootstrap; last: ServiceList: Connection refused",
        happened=is_away,
    ),
    "kubeconfig-slow": at_plane(
        "kubeconfig",
        slow("Kubeconfig"),
        "waited 5 s for the kubeconfig; last: Kubeconfig: no complete answer within 3 s",
    ),
    "kubeconfig-refused": at_plane(
        "kubeconfig",
        # As a control plane does that is not ready for it yet: the one refusal that is waited for.
        refused("Kubeconfig", code="FAILED_PRECONDITION"),
        "waited 5 s for the kubeconfig; last: Kubeconfig: refused on request",
    ),
    **installs(WORKER),
}


class Outcomes:
    """What each case ended with; each happens once, and all on one rack."""

    def __init__(self, commands: RackCommands) -> None:
        self._commands = commands
        self._ended: dict[str, tuple[Done, Done]] = {}

    def of(self, name: str) -> tuple[Done, Done]:
        """The command with the fault, and the same command after it."""
        if name not in self._ended:
            case = CASES[name]
            machine = self._commands.machine(case.node)
            self._commands.needed_before(case.step, case.node)
            machine.faults.set((case.fault,))
            clock = HeldClock(lambda: case.happened(machine), at_once=bool(case.fault.calls))
            limits = SHORT_OF_PATIENCE if case.fault.kind == "slow" else LIMITS
            failed = self._commands.run(case.step, case.node, clock, limits)
            self._commands.restore(case.node)
            self._ended[name] = failed, self._commands.run(case.step, case.node)
        return self._ended[name]


@pytest.fixture(scope="module")
def outcomes(tools: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcomes]:
    site = new_rack_site(tmp_path_factory.mktemp("rack"), RecordedCluster(), "infra", "hgx-h200")
    with site.rack:
        yield Outcomes(RackCommands(site))


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_named_and_the_command_again_completes(outcomes: Outcomes, name: str) -> None:
    case = CASES[name]
    failed, again = outcomes.of(name)
    error, fix = failed.error.split("\n", 1)
    assert error == f"error: {case.message}", failed.err
    assert fix.startswith("  fix: ")
    assert failed.code is case.code
    assert (again.code, again.error) == (0, ""), again.err


def test_each_message_tells_its_fault_from_every_other_that_looks_different() -> None:
    """Swapped faults would turn the test above red: no message is expected of two faults, or a part of another."""
    by_message: dict[str, list[str]] = defaultdict(list)
    for name, case in CASES.items():
        by_message[case.message].append(name)
    assert [names for names in by_message.values() if len(names) > 1] == [
        [f"{node}-late", f"{node}-dies-installing"] for node in (PLANE, WORKER)
    ]
    assert [(message, other) for message, other in itertools.permutations(by_message, 2) if message in other] == []
