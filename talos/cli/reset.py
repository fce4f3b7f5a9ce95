"""`reset`: take a machine out of its cluster and erase it."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from typing import Literal

from talos.api.errors import DeniedError, MachineApiError, TooSlowError, UnreachableError, UntrustedError
from talos.api.results import WipeMode
from talos.api.tls import FirstContact, Pinned
from talos.cli import inputs
from talos.cli.failures import NotInTimeError
from talos.cli.reaching import Reach, add_maintenance_arguments, reach, wait_up
from talos.cli.waiting import PendingError, Watch, seconds

HELP = "take a machine out of its cluster and erase it"
DESCRIPTION = """\
Erase a machine. Wiped data cannot be restored; drain and delete its Kubernetes node first.

--wipe says what is erased: system-disk, user-disks (those of --disk), or all. --partition narrows the system disk to
partitions, so that the installed system stays and boots into maintenance mode, ready for another config:

  python -m talos reset --address 10.0.0.11 --wipe system-disk --partition STATE --partition EPHEMERAL

A machine that keeps STATE keeps its config and boots with it; the command waits for that. Another run erases it again.

Without --partition the machine has nothing to boot from its disk afterwards: use --then shutdown, or provide PXE or an
ISO. A control plane leaves etcd first, unless --no-graceful (for one whose etcd is lost). A machine that is already
in maintenance mode is done; the command checks that without verifying the key, because it sends only a query.

`reset` in the result: done, before (was in maintenance mode), unreachable (with --if-unreachable done)."""

_WIPES = {"all": WipeMode.ALL, "system-disk": WipeMode.SYSTEM_DISK, "user-disks": WipeMode.USER_DISKS}
Outcome = Literal["done", "before"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    inputs.add_machine_arguments(parser, timeout="20m")
    add_maintenance_arguments(parser)
    parser.add_argument("--wipe", required=True, choices=list(_WIPES), help="what is erased")
    parser.add_argument(
        "--partition", action="append", default=[], metavar="LABEL", help="only these of the system disk"
    )
    parser.add_argument("--disk", action="append", default=[], metavar="DEVICE", help="user disks, like /dev/nvme1n1")
    parser.add_argument("--no-graceful", action="store_true", help="do not leave etcd, do not drain")
    parser.add_argument("--then", choices=("reboot", "shutdown"), default="reboot", help="afterwards (%(default)s)")
    parser.add_argument("--no-wait", action="store_true", help="do not wait for maintenance mode or silence")
    parser.add_argument(
        "--if-unreachable", choices=("fail", "done"), default="fail", help="`done`: a dead machine needs no reset"
    )


def run(arguments: argparse.Namespace) -> int:
    """Reset; prints one JSON object."""
    machine = reach(arguments)
    watch = machine.watch(seconds(arguments.timeout))
    resetting = Resetting(machine, watch, arguments)
    try:
        outcome: str = watch.until("to reset", resetting.attempt, passing=(LostOrderError,))
    except NotInTimeError:
        if arguments.if_unreachable != "done" or resetting.answered:
            raise
        outcome = "unreachable"
    inputs.print_result({"node": machine.name, "reset": outcome})
    return 0


class LostOrderError(Exception):
    """The machine rebooted, and is what it was before the reset."""


class Resetting:
    """A reset with repeats: each attempt looks first whether the machine is erased already."""

    def __init__(self, machine: Reach, watch: Watch, arguments: argparse.Namespace) -> None:
        self._machine, self._watch, self._arguments = machine, watch, arguments
        self._asked = False
        self._boot_before = ""
        self.answered = False
        """Whether the machine has ever answered."""

    def attempt(self) -> Outcome:
        arguments = self._arguments
        with self._machine.configured() as client:
            try:
                client.version()
            except UntrustedError:
                self.answered = True
                if not self._erased():
                    raise
                return "done" if self._asked else "before"
            except (UnreachableError, TooSlowError):
                if self._asked and arguments.then == "shutdown":
                    return "done"
                raise
            self.answered = True
            if client.machine_status().stage != "resetting":
                self._watch.say(f"erasing {arguments.wipe}")
                self._asked = True
                self._boot_before = client.boot_id()
                client.reset(
                    wipe=_WIPES[arguments.wipe],
                    graceful=not arguments.no_graceful,
                    reboot=arguments.then == "reboot",
                    partitions=tuple(arguments.partition),
                    disks=tuple(arguments.disk),
                )
        if not arguments.no_wait:
            self._watch.until("to be erased", self._over())
        return "done"

    def _over(self) -> Callable[[], None]:
        if self._arguments.then != "reboot":
            return self._silent
        return self._rebooted if self._keeps_config else self._in_maintenance

    @property
    def _keeps_config(self) -> bool:
        # The config is on STATE, which goes with the whole system disk.
        partitions = self._arguments.partition
        return self._arguments.wipe == "user-disks" or (bool(partitions) and "STATE" not in partitions)

    def _rebooted(self) -> None:
        wait_up(self._machine, self._boot_before)

    def _erased(self) -> bool:
        trust = self._machine.unconfigured
        return self._machine.in_maintenance(trust if isinstance(trust, Pinned) else FirstContact())

    def _in_maintenance(self) -> None:
        try:
            there = self._machine.in_maintenance(FirstContact())
        except UntrustedError:
            there = False
        if there:
            return
        with self._machine.configured() as client, contextlib.suppress(UntrustedError, DeniedError):
            if self._boot_before not in {"", client.boot_id()}:
                raise LostOrderError("it rebooted without having been erased")
        raise PendingError("it is not in maintenance mode yet")

    def _silent(self) -> None:
        try:
            with self._machine.configured() as client:
                client.version()
        except DeniedError:
            pass
        except MachineApiError:
            return
        raise PendingError("it still answers")
