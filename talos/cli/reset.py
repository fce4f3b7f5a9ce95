"""`reset`: take a machine out of its cluster and erase it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import click

from talos.api.errors import DeniedError, MachineApiError, TooSlowError, UnreachableError, UntrustedError
from talos.api.results import WipeMode
from talos.api.tls import FirstContact, Pinned
from talos.cli import inputs
from talos.cli.failures import NotInTimeError
from talos.cli.options import Command, MachineOptions, machine_options
from talos.cli.reaching import Reach, reach, wait_up
from talos.cli.waiting import PendingError, Watch, seconds

DESCRIPTION = """\
Erase a machine. Wiped data cannot be restored; drain and delete its Kubernetes node first.

--wipe sets what is erased: system-disk, user-disks (those of --disk), or all. --partition narrows the system disk to
partitions, so that the installed system stays and boots into maintenance mode, ready for another config:

  python -m talos reset --address 10.0.0.11 --wipe system-disk --partition STATE --partition EPHEMERAL

A machine that keeps STATE keeps its config and boots with it; the command waits for that. Another run erases it again.

Without --partition the machine has nothing to boot from its disk afterwards: use --then shutdown, or provide PXE or an
ISO. A control plane leaves etcd first, unless --no-graceful (for one whose etcd is lost). A machine that is already
in maintenance mode is done; the command checks that without verifying the key, because it sends only a query.

`reset` in the result: done, before (was in maintenance mode), unreachable (with --if-unreachable done)."""

_WIPES = {"all": WipeMode.ALL, "system-disk": WipeMode.SYSTEM_DISK, "user-disks": WipeMode.USER_DISKS}
Outcome = Literal["done", "before"]


@dataclass(frozen=True, kw_only=True)
class Erasing:
    """What is erased, and what follows."""

    wipe: str
    partitions: tuple[str, ...] = ()
    disks: tuple[str, ...] = ()
    graceful: bool = True
    then: str = "reboot"
    waits: bool = True


@click.command(cls=Command, help=DESCRIPTION)
@machine_options(timeout="20m", maintenance=True)
@click.option("--wipe", required=True, type=click.Choice(list(_WIPES)), help="what is erased")
@click.option("--partition", multiple=True, metavar="LABEL", help="only these of the system disk")
@click.option("--disk", multiple=True, metavar="DEVICE", help="user disks, like /dev/nvme1n1")
@click.option("--no-graceful", is_flag=True, help="do not leave etcd, do not drain")
@click.option("--then", type=click.Choice(["reboot", "shutdown"]), default="reboot", help="afterwards (reboot)")
@click.option("--no-wait", is_flag=True, help="do not wait for maintenance mode or silence")
@click.option(
    "--if-unreachable",
    type=click.Choice(["fail", "done"]),
    default="fail",
    help="`done`: a dead machine needs no reset",
)
def command(
    options: MachineOptions,
    *,
    wipe: str,
    partition: tuple[str, ...],
    disk: tuple[str, ...],
    no_graceful: bool,
    then: str,
    no_wait: bool,
    if_unreachable: str,
) -> int:
    """Reset; prints one JSON object."""
    machine = reach(options)
    watch = machine.watch(seconds(options.timeout))
    order = Erasing(wipe=wipe, partitions=partition, disks=disk, graceful=not no_graceful, then=then, waits=not no_wait)
    resetting = Resetting(machine, watch, order)
    try:
        outcome: str = watch.until("to reset", resetting.attempt, passing=(LostOrderError,))
    except NotInTimeError:
        if if_unreachable != "done" or resetting.answered:
            raise
        outcome = "unreachable"
    inputs.print_result({"node": machine.name, "reset": outcome})
    return 0


class LostOrderError(Exception):
    """The machine rebooted, and is what it was before the reset."""


class Resetting:
    """A reset with repeats: each attempt looks first whether the machine is erased already."""

    def __init__(self, machine: Reach, watch: Watch, order: Erasing) -> None:
        self._machine, self._watch, self._order = machine, watch, order
        self._asked = False
        self._boot_before = ""
        self.answered = False
        """Whether the machine has ever answered."""

    def attempt(self) -> Outcome:
        order = self._order
        with self._machine.configured() as client:
            try:
                client.version()
            except UntrustedError:
                self.answered = True
                if not self._erased():
                    raise
                return "done" if self._asked else "before"
            except (UnreachableError, TooSlowError):
                if self._asked and order.then == "shutdown":
                    return "done"
                raise
            self.answered = True
            if client.machine_status().stage != "resetting":
                self._watch.say(f"erasing {order.wipe}")
                self._asked = True
                self._boot_before = client.boot_id()
                client.reset(
                    wipe=_WIPES[order.wipe],
                    graceful=order.graceful,
                    reboot=order.then == "reboot",
                    partitions=order.partitions,
                    disks=order.disks,
                )
        if order.waits:
            self._watch.until("to be erased", self._over())
        return "done"

    def _over(self) -> Callable[[], None]:
        if self._order.then != "reboot":
            return self._silent
        return self._rebooted if self._keeps_config else self._in_maintenance

    @property
    def _keeps_config(self) -> bool:
        # The config is on STATE, which goes with the whole system disk.
        partitions = self._order.partitions
        return self._order.wipe == "user-disks" or (bool(partitions) and "STATE" not in partitions)

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
