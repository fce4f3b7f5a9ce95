"""The commands that the program would run on a rack's machines, run in this process, in a time of their own."""

from __future__ import annotations

import contextlib
import io
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal
from unittest import mock

from components.machines import machine_commands
from components.machines.machine_commands import Limits
from lab.machines.machine import Machine
from stacks.facts import versions
from stacks.plan.cluster import ClusterPlan, plan_cluster
from stacks.program.cluster_access import machines_of
from stacks.site.machines import MachinesSpec
from talos.cli import waiting
from talos.cli.main import main
from talos.secrets import bundle as secrets
from talos.secrets import variables
from tests.lab.cluster_program.rack_site import CANARY, RackSite
from tests.lab.held_clock import HeldClock
from tests.unit.machines.emulated_rack import eventually
from tests.unit.talos.talos_examples import entropy

LIMITS = Limits(install_s=5, bootstrap_s=5, kubeconfig_s=5)
# A call has to end by the real clock, so only what is about slow calls is so short of patience.
SHORT_OF_PATIENCE = replace(LIMITS, call_s=3)
_POLL_S = "0.02"

Step = Literal["install", "bootstrap", "kubeconfig"]


@dataclass
class Done:
    """What a command ended with."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The message that it ended with, without its progress."""
        _, mark, text = f"\n{self.err}".rpartition("\nerror: ")
        return f"error: {text.strip()}" if mark else ""


class RackCommands:
    """Each command as `components/machines/machine_commands.py` writes it for the site, with short limits."""

    def __init__(self, site: RackSite) -> None:
        self._site = site
        machines = MachinesSpec.model_validate(site.site["cluster"]["machines"])
        plan: ClusterPlan = plan_cluster("rig", machines, versions.load())
        bundle = secrets.generate(entropy(11), secrets.utc_now)
        self._secrets = bundle.export()
        self._token = bundle.trustd_token
        self._configs = plan.configs(bundle, {"registry-password": CANARY}, None)
        self._machines = {machine.name: machine for machine in machines_of(plan)}
        factory = site.rack.factory
        assert factory is not None
        for machine in self._machines.values():
            factory.content.add(machine.schematic.encode())

    def machine(self, node: str) -> Machine:
        return self._site.machine(node)

    def line(self, step: Step, node: str, limits: Limits) -> str:
        """The command line of the program."""
        machine = self._machines[node]
        match step:
            case "install":
                return machine_commands.install(machine, limits)
            case "bootstrap":
                return machine_commands.bootstrap([machine], limits)
            case "kubeconfig":
                return machine_commands.kubeconfig([machine], limits)

    def run(self, step: Step, node: str, clock: HeldClock | None = None, limits: Limits = LIMITS) -> Done:
        """Run it with its own entry; without a clock no time passes."""
        program, module, name, *argv = shlex.split(self.line(step, node, limits))
        assert (program, module, name) == (".venv/bin/python", "-m", "talos")
        out, err = io.StringIO(), io.StringIO()
        clock = clock or HeldClock(lambda: False, at_once=False)
        with self._surroundings(node, clock), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([*argv, "--poll", _POLL_S])
        done = Done(code, out.getvalue(), err.getvalue())
        assert CANARY not in done.out + done.err
        assert self._token not in done.out + done.err
        return done

    @contextmanager
    def _surroundings(self, node: str, clock: HeldClock) -> Iterator[None]:
        with (
            mock.patch.dict("os.environ", {variables.SECRETS: self._secrets}),
            mock.patch("sys.stdin", io.StringIO(self._configs[node])),
            mock.patch.object(waiting, "time", clock),
        ):
            yield

    def needed_before(self, step: Step, node: str) -> None:
        """Bring the rack to where the program runs this step: each machine before it done, this one not."""
        plane = "cp-1"
        if step == "install":
            self._erase(node)
        if step == "bootstrap":
            self._erase(plane)
        if (step, node) == ("install", plane):
            return
        if self.machine(plane).config is None:
            self._must("install", plane)
        if step == "bootstrap":
            return
        if not self.machine(plane).etcd_up:
            self._must("bootstrap", plane)

    def _must(self, step: Step, node: str) -> None:
        done = self.run(step, node)
        assert done.code == 0, done.err

    def restore(self, node: str) -> None:
        """No fault any more, and a boot that ends what is still held up."""
        machine = self.machine(node)
        machine.power_off()
        machine.faults.set(())
        machine.power_on()

    def _erase(self, node: str) -> None:
        machine = self.machine(node)
        machine.wipe(state=True, ephemeral=True, system=True)
        self.restore(node)
        eventually(lambda: machine.stage == "maintenance", what=f"{node} in maintenance mode")
