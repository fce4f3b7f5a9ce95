"""Machines, by their own API and as nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pytest

from floor import gpu_nodes
from stacks.facts.hardware import slice_name, slices_per_node
from stacks.facts.mig import profile_of
from stacks.plan.cluster import PlannedNode
from talos.api.client import MachineClient
from talos.api.errors import MachineApiError
from talos.cli.health import what_is_missing
from tests.live.conftest import Seen
from tests.live.running import RunningSite

_NVIDIA = "nvidia"


def _wrong_of(
    site: RunningSite,
    nodes: Sequence[PlannedNode],
    look: Callable[[PlannedNode, MachineClient], Iterator[str]],
    seen: Seen,
) -> list[str]:
    """What is wrong with each machine, by its own answer or because it gives none."""
    wrong = []
    for node in nodes:
        try:
            with site.machine(node) as machine:
                problems = list(look(node, machine))
        except MachineApiError as error:
            problems = [f"does not answer: {error.cause}"]
        seen(f"{node.name}: {'; '.join(problems) or 'as planned'}")
        wrong += [f"{node.name}: {problem}" for problem in problems]
    return wrong


@pytest.mark.row("000.11")
def test_machines_run_the_pinned_talos_and_image(
    site: RunningSite, machines: tuple[PlannedNode, ...], seen: Seen
) -> None:
    def look(node: PlannedNode, machine: MachineClient) -> Iterator[str]:
        version = machine.version().tag
        if version != site.plan.versions.talos:
            yield f"runs Talos {version}, not {site.plan.versions.talos}"
        schematic = next(
            (extension.version for extension in machine.extensions() if extension.name == "schematic"), "none"
        )
        if schematic != node.schematic.id:
            yield f"runs schematic {schematic[:12]}, not {node.schematic.id[:12]}"

    wrong = _wrong_of(site, machines, look, seen)
    assert not wrong, "; ".join(wrong)


@pytest.mark.row("000.11")
def test_services_of_machines_are_well(site: RunningSite, machines: tuple[PlannedNode, ...], seen: Seen) -> None:
    wrong = _wrong_of(site, machines, lambda _, machine: iter(what_is_missing(machine)), seen)
    assert not wrong, "; ".join(wrong)


@pytest.mark.row("002.12")
def test_every_control_plane_is_a_voting_member_of_etcd(
    site: RunningSite, machines: tuple[PlannedNode, ...], seen: Seen
) -> None:
    planes = {node.name for node in machines if node.is_control_plane}
    with site.machine(next(node for node in machines if node.is_control_plane)) as machine:
        members = {member.hostname: member.is_learner for member in machine.etcd_members()}
    seen(f"members {', '.join(sorted(members))}")
    learners = [name for name, learns in members.items() if learns]
    assert not learners, f"without a vote: {', '.join(learners)}"
    assert set(members) == planes, f"etcd has {sorted(members)}, the site's control planes are {sorted(planes)}"


@pytest.mark.row("000.12")
def test_hgx_machines_carry_driver_and_fabric_manager_of_one_version(
    site: RunningSite, machines: tuple[PlannedNode, ...], seen: Seen
) -> None:
    hgx = [node for node in machines if node.spec.role == "hgx"]
    if not hgx:
        pytest.skip("the site has no HGX machine")

    def look(node: PlannedNode, machine: MachineClient) -> Iterator[str]:
        fork = "lts" if any("lts" in name for name in node.schematic.extensions) else "production"
        pins = getattr(site.plan.versions.nvidia, fork)
        running = {extension.name: extension.version for extension in machine.extensions() if _NVIDIA in extension.name}
        for part, wanted in (("modules", pins.driver), ("fabric", pins.fabric_manager)):
            if not any(part in name and wanted in version for name, version in running.items()):
                yield f"has no NVIDIA extension for {part} {wanted}: {running or 'none at all'}"

    wrong = _wrong_of(site, hgx, look, seen)
    assert not wrong, "; ".join(wrong)


@pytest.mark.row("000.10")
def test_nodes_are_ready_with_the_pinned_kubelet(site: RunningSite, seen: Seen) -> None:
    wrong = []
    wanted = site.plan.versions.kubelet or site.plan.versions.kubernetes
    for node in site.items("/api/v1/nodes"):
        name, status = node["metadata"]["name"], node["status"]
        ready = {condition["type"]: condition["status"] for condition in status["conditions"]}.get("Ready")
        kubelet = status["nodeInfo"]["kubeletVersion"]
        seen(f"{name}: Ready {ready}, kubelet {kubelet}")
        if ready != "True":
            wrong.append(f"{name} is not Ready")
        if node["spec"].get("unschedulable"):
            wrong.append(f"{name} is cordoned")
        if site.plan.machines is not None and kubelet != wanted:
            wrong.append(f"{name} runs kubelet {kubelet}, not {wanted}")
    assert not wrong, "; ".join(wrong)


@pytest.mark.row("000.09", "000.12")
def test_gpu_nodes_offer_all_their_gpus(site: RunningSite, seen: Seen) -> None:
    """Eight per HGX machine of the site, or as many slices as its layout gives; on a cluster that exists, as many as
    its models ask for."""
    offered, wrong = dict[str, dict[str, int]](), []
    for node in site.items("/api/v1/nodes", labelSelector=gpu_nodes.FAMILY_LABEL):
        name, quantities = node["metadata"]["name"], node["status"]["allocatable"]
        offered[name] = {key: int(count) for key, count in quantities.items() if gpu_nodes.is_resource(key)}
        counts = ", ".join(f"{count} {key}" for key, count in sorted(offered[name].items()))
        seen(f"{name}: {counts or 'no GPU'}, family {node['metadata']['labels'][gpu_nodes.FAMILY_LABEL]}")
    for planned in site.plan.machines.nodes if site.plan.machines is not None else ():
        if planned.spec.role != "hgx" or planned.spec.dead:
            continue
        profile = profile_of(planned.keys.mig)
        count = slices_per_node(slice_name(site.plan.site.cluster.gpu, profile))
        has = offered.get(planned.name, {}).get(gpu_nodes.resource_of(profile), 0)
        if has != count:
            wrong.append(f"{planned.name} offers {has} of {count} {f'slices {profile}' if profile else 'GPUs'}")
    needed = Counter[str]()
    for revision in site.plan.revisions:
        server = revision.spec.server
        needed[gpu_nodes.resource_of(server.gpu_slice or "")] += server.replicas * revision.server.gpus
    for resource, count in needed.items():
        there = sum(own.get(resource, 0) for own in offered.values())
        if there < count:
            wrong.append(f"the nodes offer {there} {resource}, and the models ask for {count}")
    assert not wrong, "; ".join(wrong)
