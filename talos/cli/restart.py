"""`reboot`: restart a machine, and verify that it did."""

from __future__ import annotations

import click

from talos.api.results import RebootMode
from talos.cli import inputs
from talos.cli.options import Command, MachineOptions, machine_options
from talos.cli.reaching import PASSING_STAGES, Reach, reach, wait_up
from talos.cli.waiting import PendingError, Watch, seconds

DESCRIPTION = """\
Restart a machine, and wait until it has another boot id and boots its config. Draining the node is the caller's.

With --if-boot-id ID the machine restarts only if that is still the boot it is in: so the same command run twice
restarts it once. `status` and `upgrade --no-reboot` print the id.

  python -m talos reboot --address 10.0.0.11 --if-boot-id 0d3b8c6e-6b0f-4f3e-9d55-0a9df28c1f57"""


@click.command(cls=Command, help=DESCRIPTION)
@machine_options(timeout="20m")
@click.option(
    "--mode",
    type=click.Choice([mode.name.lower() for mode in RebootMode]),
    default="default",
    help="default: orderly; powercycle: through the firmware; force: without waiting for anything",
)
@click.option("--if-boot-id", metavar="ID", help="only if the machine is still in this boot")
def command(options: MachineOptions, *, mode: str, if_boot_id: str | None) -> int:
    """Restart; prints one JSON object."""
    machine = reach(options)
    watch = machine.watch(seconds(options.timeout))
    rebooting = _Rebooting(machine, RebootMode[mode.upper()], watch, if_boot_id or "")
    boot_id = watch.until("to reboot", rebooting.attempt)
    inputs.print_result({"node": machine.name, "rebooted": rebooting.asked, "boot_id": boot_id})
    return 0


class _Rebooting:
    """A restart with repeats: none is asked for where the boot id has changed already."""

    def __init__(self, machine: Reach, mode: RebootMode, watch: Watch, boot_before: str) -> None:
        self._machine, self._mode, self._watch = machine, mode, watch
        self._boot_before = boot_before
        self.asked = False

    def attempt(self) -> str:
        with self._machine.configured() as client:
            # Stage before boot id: a reboot in between shows in the id, and is not ordered again.
            stage, boot_id = client.machine_status().stage, client.boot_id()
            self._boot_before = self._boot_before or boot_id
            if boot_id == self._boot_before:
                if stage in PASSING_STAGES:
                    raise PendingError(f"it is {stage}")
                self._watch.say("rebooting")
                self.asked = True
                client.reboot(mode=self._mode)
        return self._watch.until("to reboot", lambda: wait_up(self._machine, self._boot_before))
