"""`roll`: bring a machine of a cluster to its config and its Talos version, and leave it healthy."""

from __future__ import annotations

import time
from functools import partial
from urllib.parse import urlsplit

import click

from floor.storage_nodes import REBUILD_S
from talos.api.client import MachineClient
from talos.api.results import ApplyMode
from talos.cli import inputs
from talos.cli.apply import Applying, classify
from talos.cli.bootstrap import etcd_state
from talos.cli.failures import NotAllowedError, NotInTimeError
from talos.cli.health import what_is_missing
from talos.cli.inputs import Address
from talos.cli.kubernetes import Kubernetes
from talos.cli.options import Command, MachineOptions, machine_options
from talos.cli.reaching import Reach, reach, wait_up
from talos.cli.skew import require_api_server, require_next_api_server, require_no_newer_kubelet
from talos.cli.upgrade import Target, difference, fell_back, require_no_minor_left_out, running
from talos.cli.waiting import PendingError, Watch, seconds
from talos.secrets import variables

DESCRIPTION = f"""\
Bring a machine to a config (stdin) and an installer image, and wait until it is healthy and its node is Ready.

  1. the image is installed into the slot that boots next, if the machine runs another    (disturbs nothing)
  2. a config that takes effect at once is applied
  3. only if it must reboot: the other members of etcd are healthy; where the node stores for Longhorn, each volume in
     use has all its copies; the node is drained, with respect for PodDisruptionBudgets; the machine reboots, and must
     come back with that version and schematic
  4. Talos's services are healthy, and the node is Ready and has the config's labels, annotations and taints. A taint
     that a worker's node has not, or no longer should have, is changed through the Kubernetes API: Talos may not do it
  5. the node accepts pods again; after a single control plane, `roll` waits longer, because clients retry its API after
     pauses of up to 30 s, and a client that has not reconnected yet, such as an endpoint picker, does not learn of the
     next node's drain

A kubelet of a newer minor version than an API server is refused: a worker waits until all of them serve that
version, and a control plane refuses before anything is changed. A step over a minor version, of Talos or of the API
server, is refused as well.

The command skips steps that are already done, so after a failure or an interruption the same command continues. Run it
for one machine at a time. ${variables.KUBECONFIG} is the cluster; without it nothing is drained, and the taints of a
worker that runs stay as they are.

  python -m talos roll --address 10.0.0.11 --name hgx-1 --image REF < hgx-1.yaml"""

_NOT_READY = "see why they do not start (kubectl describe), then run it again"
_DEGRADED = (
    "see why Longhorn rebuilds no copy (kubectl -n longhorn-system get volumes.longhorn.io; "
    "docs/runbooks/storage-unwell.md), then run it again"
)


@click.command(cls=Command, help=DESCRIPTION)
@machine_options(timeout="90m", maintenance=True)
@click.option("--image", required=True, metavar="REF", help="installer image, with the version as its tag")
@click.option("--config", metavar="FILE", help="the machine config (stdin)")
@click.option("--rebuild-timeout", default=f"{REBUILD_S}s", metavar="DURATION", help="for copies and replicas (4h)")
@click.option("--drain-timeout", default="30m", metavar="DURATION", help="for pods to leave (30m)")
@click.option("--health-timeout", default="30m", metavar="DURATION", help="to be well again (30m)")
@click.option("--settle", default="30s", metavar="DURATION", help="after the only control plane's reboot (30s)")
def command(
    options: MachineOptions,
    *,
    image: str,
    config: str | None,
    rebuild_timeout: str,
    drain_timeout: str,
    health_timeout: str,
    settle: str,
) -> int:
    """Roll; prints one JSON object."""
    target, text = Target.parse(image), inputs.machine_config(config)
    machine, cluster = reach(options), Kubernetes.from_environment()
    watch = machine.watch(seconds(options.timeout))
    waits = {"rebuild_timeout_s": seconds(rebuild_timeout), "drain_timeout_s": seconds(drain_timeout)}
    rolling = Rolling(machine, cluster, text, target, watch, **waits)
    watch.until("to take its config and image", rolling.attempt)
    health = machine.watch(seconds(health_timeout))
    health.until("to be well", rolling.require_well)
    if cluster is not None:
        health.until("to take pods again", lambda: cluster.release(machine.name))
    if rolling.took_the_only_api_away:
        watch.say("the only API server was away; letting everything find it again before the next node")
        # Nothing shows when the last of its clients is back: their pauses grow to 30 s, and none of them reports.
        time.sleep(seconds(settle))
    inputs.print_result({"node": machine.name, "talos": target.version, "done": rolling.done or ["nothing"]})
    return 0


class Rolling:
    """Rolling with repeats: each attempt looks at the machine first, and does what is still missing."""

    def __init__(
        self,
        machine: Reach,
        cluster: Kubernetes | None,
        config: bytes,
        target: Target,
        watch: Watch,
        *,
        rebuild_timeout_s: int,
        drain_timeout_s: int,
    ) -> None:
        self._machine, self._cluster, self._config, self._target = machine, cluster, config, target
        self._watch, self._rebuild_timeout_s, self._drain_timeout_s = watch, rebuild_timeout_s, drain_timeout_s
        self._rebooted_from = ""
        self.done: list[str] = []
        self.took_the_only_api_away = False

    def attempt(self) -> None:
        """Do what is missing; PendingError while the machine is busy."""
        with self._machine.contact(self._watch) as contact:
            verdict = classify(contact, self._config)
            if verdict.change == "refused":
                raise NotAllowedError(
                    f"{self._machine.name}: the machine refuses the config: {verdict.reason}", fix=verdict.fix
                )
            if self._cluster is not None and verdict.change in {"live", "reboot"}:
                require_next_api_server(self._machine.name, self._config, self._cluster)
                require_no_newer_kubelet(self._machine.name, self._config, self._cluster)
            client = contact.client
            if contact.state == "maintenance":
                boot_id, needs_reboot = "", False
            else:
                boot_id = client.boot_id()
                needs_reboot = self._install(client, boot_id)
                if verdict.change == "live":
                    self._watch.say("applying the config, live")
                    client.apply_configuration(self._config, mode=ApplyMode.NO_REBOOT)
                    self.done.append("config")
                needs_reboot |= verdict.change == "reboot"
        if contact.state == "maintenance":
            Applying(self._machine, self._config, "auto", self._watch, waits=True).attempt()
            self.done.append("install")
        elif needs_reboot:
            self._reboot(boot_id, stage=verdict.change == "reboot")

    def require_well(self) -> None:
        """PendingError until Talos's services are healthy, etcd counts this member, and the node is Ready."""
        with self._machine.configured() as client:
            if missing := what_is_missing(client, config=self._config):
                raise PendingError("; ".join(missing))
            if etcd_state(client) == "Running":
                members = {member.hostname: member for member in client.etcd_members()}
                if self._machine.name not in members or members[self._machine.name].is_learner:
                    raise PendingError("etcd does not count it as a member yet")
        if self._cluster is not None:
            self._cluster.require_ready(self._machine.name)
            self._cluster.require_stated(self._machine.name, self._config, self._watch)
            require_api_server(self._machine.name, self._config, self._cluster)

    def _install(self, client: MachineClient, boot_id: str) -> bool:
        """Whether the machine must reboot into another system, which is then in the other slot."""
        now = running(client)
        if now.is_target(self._target):
            return False
        if self._rebooted_from and boot_id != self._rebooted_from:
            raise fell_back(self._machine.name, now, self._target)
        require_no_minor_left_out(self._machine.name, now, self._target)
        self._watch.say(f"pulling {self._target.image}")
        client.pull_image(self._target.image, on_progress=self._watch.say)
        self._watch.say("installing next to the running system")
        client.install_upgrade(self._target.image, on_message=self._watch.say)
        self.done.append(difference(now, self._target))
        return True

    def _reboot(self, boot_id: str, *, stage: bool) -> None:
        with self._machine.configured() as client:
            is_alone = require_others_well(self._machine, client) == 0 and etcd_state(client) == "Running"
        if self._cluster is not None:
            self._await_others(self._cluster)
            self._cluster.drain(self._machine.name, self._watch, self._drain_timeout_s)
        with self._machine.configured() as client:
            if client.boot_id() == boot_id:
                if stage:
                    client.apply_configuration(self._config, mode=ApplyMode.STAGED)
                    self.done.append("config")
                self._watch.say("rebooting")
                self._rebooted_from = boot_id
                self.took_the_only_api_away = is_alone
                client.reboot()
                self.done.append("reboot")
        self._watch.until("to reboot", lambda: wait_up(self._machine, boot_id))
        with self._machine.configured() as client:
            now = running(client)
        if not now.is_target(self._target):
            raise fell_back(self._machine.name, now, self._target)

    def _await_others(self, cluster: Kubernetes) -> None:
        """What the node that was rolled before took away is back: replicas load, and copies take as long as data."""
        waiting = self._machine.watch(self._rebuild_timeout_s)
        with self._watch.paused():
            for required, fix in ((cluster.require_evictable, _NOT_READY), (cluster.require_whole_volumes, _DEGRADED)):
                look = partial(required, self._machine.name)
                try:
                    waiting.until("to drain it", look)
                except NotInTimeError as error:
                    raise NotInTimeError(error.problem.what, fix=fix) from None


def require_others_well(machine: Reach, client: MachineClient) -> int:
    """Number of etcd's other members, 0 on workers; PendingError while one of them is not well.

    Taking a second member of three away takes the cluster away, whatever a first one is ailing from.
    """
    if etcd_state(client) != "Running":
        return 0
    others = [member for member in client.etcd_members() if member.hostname != machine.name]
    for other in others:
        host = urlsplit(other.peer_urls[0]).hostname if other.peer_urls else None
        if other.is_learner or host is None:
            raise PendingError(f"etcd's member {other.hostname or 'without a name'} has no vote yet")
        peer = machine.peer(other.hostname, Address(host, machine.address.port))
        with peer.configured() as its:
            if etcd_state(its) != "Running":
                raise PendingError(f"etcd on {other.hostname} is {etcd_state(its) or 'not there'}")
    return len(others)
