"""`lab up`: start the emulated site, or what is missing of it: its network, its machines, their image factory.

The machines wait in maintenance mode for their configs; who configures and bootstraps them makes a cluster of them. A
second run changes nothing and is quick. A cluster that was there before comes up again with its machines.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from kubernetes import client

from lab.cluster import api, controlplane, dns, gateway_ca, network, processes
from lab.cluster.parts import status_of
from lab.errors import LabError
from lab.machines import lab_rack
from lab.machines.admin import ask
from lab.paths import Lab
from lab.progress import Progress
from lab.registry import serving
from lab.site import guard, supervisor
from lab.vllm_cpu import site as vllm_site

_MACHINES_WITHIN_S = 60
_READY_WITHIN_S = 120
_POLL_S = 0.2
_MAINTENANCE = "maintenance"
# What `sitectl bundle pack` writes last.
BUNDLE_FILE = "bundle.json"

Shown = Sequence[dict[str, Any]]


@click.command()
@click.option(
    "--hgx",
    type=int,
    default=lab_rack.DEFAULT_HGX_MACHINES,
    metavar="N",
    help=f"number of HGX H200 machines in the rack, each with 8 GPUs (default {lab_rack.DEFAULT_HGX_MACHINES}); "
    "the site's file names which of them are nodes",
)
@click.option(
    "--from-bundle",
    "bundle",
    type=click.Path(path_type=Path, resolve_path=True),
    metavar="FOLDER",
    help="what `sitectl bundle pack` wrote: weights come from it, and images from a registry of the lab alone, which "
    "`sitectl bundle push` fills. For a lab that is down",
)
@click.option(
    "--engine",
    type=click.Choice(["simulator", "vllm"]),
    help="what serves the models: simulators, as the checked-in site has them, or for one tiny model a real vLLM on "
    "this machine's CPU (6.2 GB, installed once); default: as the lab was brought up before, at first simulator",
)
@click.pass_obj
def command(lab: Lab, *, hgx: int, bundle: Path | None, engine: str | None) -> int:
    chosen = {"vllm": vllm_site.choose, "simulator": vllm_site.drop}
    bring_up(chosen[engine](lab) if engine else lab, hgx=hgx, bundle=bundle)
    return 0


def bring_up(
    lab: Lab,
    *,
    hgx: int = lab_rack.DEFAULT_HGX_MACHINES,
    bundle: Path | None = None,
    rack: Mapping[str, Any] | None = None,
) -> None:
    """Raises `LabError` when root, a tool, or the lab's index on this machine is not to be had.

    `bundle`: where images and weights come from; None leaves it as it is. `rack`: a description in place of the lab's
    own rack with `hgx` machines.
    """
    rack = rack or lab_rack.description(lab.network, hgx)
    network.require_root()
    with network.machine_lock(lab):
        network.require_own(lab)
        controlplane.require_tools(lab)
        lab.make_folders()
        gateway_ca.ensure(lab)
        if bundle is not None:
            take_from(lab, bundle)
        progress = Progress("up", total=3)
        with progress.step("network"):
            network.ensure(lab)
            for machine in rack["machines"]:
                network.own_address(lab, machine["address"])
            plan = lab.network
            for address in (plan.image_factory, plan.hub, plan.registry, plan.database):
                network.own_address(lab, address)
        with progress.step(f"{len(rack['machines'])} machines and their image factory"):
            if lab_rack.put(lab, rack):
                _restart_machines(lab)
            guard.ensure(lab)
            shown = wait_for_machines(lab, _MACHINES_WITHIN_S)
        if not controlplane.is_created(lab):
            progress.skip("cluster", f"none yet: {summary(shown)}, and `pulumi up` makes one of them")
        elif not controlplane.switch(lab).exists():
            progress.skip("cluster", f"off, as its control plane's machine is: {summary(shown)}")
        else:
            with progress.step("cluster"):
                controlplane.ensure_kubeconfig(lab)
                controlplane.wait_ready(lab, _READY_WITHIN_S)
                _wait_for_dns(lab)


def take_from(lab: Lab, bundle: Path) -> None:
    """Have the lab take images and weights out of a bundle. Raises LabError for one that is not whole, or too late."""
    if not (bundle / BUNDLE_FILE).is_file():
        raise LabError(
            f"{bundle} is no bundle: it has no {BUNDLE_FILE}, which is written last",
            fix=f"python -m sitectl bundle pack SITE --out {bundle}",
        )
    if lab.packed.exists() and lab.packed.samefile(bundle):
        return
    if guard.pid(lab) is not None:
        came = "another bundle" if lab.packed.exists() else "no bundle"
        raise LabError(f"the lab is up already, and came from {came}", fix="python -m lab down, then up again")
    serving.write_config(lab.registry, serving.address(lab))
    lab.packed.unlink(missing_ok=True)
    lab.packed.symlink_to(bundle)


def summary(machines: Shown) -> str:
    """How many machines are at what, such as `7 in maintenance mode`."""
    stages = Counter("off" if machine["power"] == "off" else machine["stage"] for machine in machines)
    words = {_MAINTENANCE: "in maintenance mode"}
    return ", ".join(f"{count} {words.get(stage, stage)}" for stage, count in stages.most_common())


def wait_for_machines(lab: Lab, timeout_s: float) -> Shown:
    """The machines as they show themselves, once each that is on has come as far as it gets by itself."""
    wanted = lab_rack.names(lab)
    deadline = time.monotonic() + timeout_s
    problem = "the emulator does not answer"
    while time.monotonic() < deadline:
        try:
            machines = ask(lab_rack.folder(lab), {"machine": "all", "action": "show"})
        except LabError as error:
            problem = error.what
        else:
            late = [machine["name"] for machine in machines if _is_late(machine)]
            if [machine["name"] for machine in machines] == wanted and not late:
                return machines
            problem = f"{', '.join(late) or 'another rack'} is not up"
        time.sleep(_POLL_S)
    raise LabError(
        f"the emulated machines are not there after {timeout_s:.0f} s: {problem}",
        fix="`python -m lab logs machines` shows why; `python -m lab.machines show` what they are at",
    )


def _is_late(machine: dict[str, Any]) -> bool:
    # With a config, a machine may wait for another one, and that one for its bootstrap.
    early = {"unknown"} if machine["configured"] else {"unknown", "booting"}
    return machine["power"] == "on" and machine["stage"] in early


def _restart_machines(lab: Lab) -> None:
    """Have the supervisor start the emulator again, with the rack as it is described now."""
    running = next((part.pid() for part in supervisor.components(lab) if part.name == supervisor.MACHINES), None)
    if running is not None:
        processes.send([running], signal.SIGTERM)
        processes.wait_gone([running], timeout_s=20)


def _wait_for_dns(lab: Lab) -> None:
    """What comes next looks names up from its first moment on."""
    deadline = time.monotonic() + _READY_WITHIN_S
    with api.connect(lab) as connection:
        apps = client.AppsV1Api(connection)
        while not status_of(apps.read_namespaced_deployment("coredns", dns.NAMESPACE)).ready_replicas:
            if time.monotonic() > deadline:
                raise LabError(
                    f"cluster DNS is not ready after {_READY_WITHIN_S} s",
                    fix="`python -m lab logs pod-runner` and `python -m lab logs kube-system/coredns` show why",
                )
            time.sleep(_POLL_S)
