"""`leave`: take a node out of its cluster: drain it, erase its machine, delete its Node object."""

from __future__ import annotations

import contextlib

import click

from talos.api.client import MachineClient
from talos.api.errors import AbsentError, TooSlowError, UnreachableError, UntrustedError
from talos.cli import inputs, node_name
from talos.cli.bootstrap import etcd_state
from talos.cli.failures import InputError
from talos.cli.inputs import Address
from talos.cli.kubernetes import Kubernetes
from talos.cli.options import Command, MachineOptions, machine_options
from talos.cli.reaching import Reach, reach
from talos.cli.reset import Erasing, LostOrderError, Resetting
from talos.cli.rolling import require_others_well
from talos.cli.waiting import PendingError, Watch, seconds
from talos.secrets import variables

DESCRIPTION = f"""\
Take a machine out of its cluster. It ends in maintenance mode, with the installed system but without config and data;
disks other than the system's keep their data.

  1. the node is drained once no volume of Longhorn's in use lacks a copy, with respect for PodDisruptionBudgets
     (with ${variables.KUBECONFIG} only)
  2. a control plane leaves etcd, once the other members are healthy; the last control plane is just erased. If it
     can no longer leave by itself, the others remove its member
  3. STATE and EPHEMERAL are erased, and the machine boots into maintenance mode
  4. the Node object is deleted

A machine that runs as another node than --name is not touched: only the Node object of that name is deleted.

With --dead the command does not call the machine, and only removes its etcd member and its Node object; for hardware
that will not answer again. It finds the other control planes by their Node objects, which requires
${variables.KUBECONFIG}.

  python -m talos leave --address 10.0.0.11 --name hgx-1"""


@click.command(cls=Command, help=DESCRIPTION)
@machine_options(timeout="60m", maintenance=True)
@click.option("--dead", is_flag=True, help="the machine will not answer again")
@click.option("--drain-timeout", default="30m", metavar="DURATION", help="for pods to leave (30m)")
def command(options: MachineOptions, *, dead: bool, drain_timeout: str) -> int:
    """Leave; prints one JSON object."""
    machine, cluster = reach(options), Kubernetes.from_environment()
    if dead and cluster is None:
        raise InputError(
            f"{machine.name}: --dead, and no cluster is given that could forget it",
            fix=f"put the text of the cluster's kubeconfig into ${variables.KUBECONFIG}",
        )
    watch = machine.watch(seconds(options.timeout))
    outcome = "dead"
    last = False
    if not dead:
        leaving = _Leaving(machine, cluster, watch, node=options.name, drain_timeout_s=seconds(drain_timeout))
        outcome = watch.until("to leave the cluster", leaving.attempt, passing=(LostOrderError,))
        last = leaving.last
    removed = False
    # With its last control plane the cluster is gone, and no member is left to ask.
    if cluster is not None and not last:
        # Of a machine that has another name now, the member is its own.
        if outcome not in {"done", "other"}:
            removed = watch.until("to be forgotten by etcd", lambda: forget_member(machine, cluster, watch))
        watch.until("to delete its node", lambda: cluster.delete_node(machine.name))
    inputs.print_result({"node": machine.name, "left": outcome, "etcd_member_removed": removed})
    return 0


def forget_member(machine: Reach, cluster: Kubernetes, watch: Watch) -> bool:
    """Have another control plane take the machine's member out of etcd; whether there was one.

    A machine that died, or was erased by other hands, is counted by etcd until then: of three members only one may be
    so. PendingError while no other control plane can list the members.
    """
    unknown = []
    for name, host in sorted(cluster.control_planes().items()):
        if name == machine.name:
            continue
        peer = machine.peer(name, Address(host, machine.address.port))
        try:
            with peer.configured() as client:
                if etcd_state(client) == "Running":
                    return _removed(machine, client, watch)
                unknown.append(f"etcd does not run on {name}")
        except UntrustedError:
            unknown.append(f"{name} is not a machine of this cluster now")
        except (UnreachableError, TooSlowError) as error:
            unknown.append(f"{name}: {error.cause}")
    if unknown:
        raise PendingError(f"no control plane could list the members of etcd: {'; '.join(unknown)}")
    return False


def _removed(machine: Reach, client: MachineClient, watch: Watch) -> bool:
    left = [member for member in client.etcd_members() if member.hostname == machine.name]
    for member in left:
        watch.say(f"{client.node} takes its member {member.id:x} out of etcd")
        with contextlib.suppress(AbsentError):
            client.etcd_remove_member(member.id)
    return bool(left)


class _Leaving:
    """Leaving with repeats: each attempt looks first how far the machine is."""

    def __init__(
        self, machine: Reach, cluster: Kubernetes | None, watch: Watch, *, node: str | None, drain_timeout_s: int
    ) -> None:
        self._machine, self._cluster, self._watch, self._node = machine, cluster, watch, node
        self._drain_timeout_s = drain_timeout_s
        self._drained = False
        self._resetting: Resetting | None = None
        self.last = False

    def attempt(self) -> str:
        if self._resetting is None:
            if other := self._other():
                self._watch.say(f"its address is that of the node {other} now, so the machine is not erased")
                return "other"
            self._resetting = self._prepared()
        return self._resetting.attempt()

    def _other(self) -> str:
        """The node that the machine is, where that is another one than the one which leaves."""
        with self._machine.configured() as client, contextlib.suppress(UntrustedError):
            name = node_name.name_of(client)
            return name if self._node and name != self._node else ""
        return ""

    def _prepared(self) -> Resetting:
        graceful = False
        with self._machine.configured() as client:
            try:
                is_member = etcd_state(client) == "Running"
            except UntrustedError:
                # In maintenance mode already; the reset below looks at that.
                return self._reset(graceful=False)
            if is_member:
                graceful = require_others_well(self._machine, client) > 0
                self.last = not graceful
        if self._cluster is not None and not self.last and not self._drained:
            self._cluster.require_whole_volumes(self._machine.name)
            self._cluster.drain(self._machine.name, self._watch, self._drain_timeout_s)
            self._drained = True
        return self._reset(graceful=graceful)

    def _reset(self, *, graceful: bool) -> Resetting:
        order = Erasing(wipe="system-disk", partitions=("STATE", "EPHEMERAL"), graceful=graceful)
        return Resetting(self._machine, self._watch, order)
