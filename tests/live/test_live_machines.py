"""Machines, by their own API and as nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pytest

from floor import gpu_nodes
from sitectl.live.gpu_evidence import ClusterSeen, Evidence, MachinesSeen, ask, evidence, machines_to_ask
from sitectl.live.gpu_states import classify
from stacks.plan.cluster import PlannedNode
from talos.api.client import MachineClient
from talos.api.errors import MachineApiError
from talos.cli.health import what_is_missing
from tests.live.conftest import Seen
from tests.live.running import Object, RunningSite

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
        # The proprietary modules' extension is called nonfree-kmod-nvidia.
        parts = {"modules": (("modules", "kmod"), pins.driver), "fabric": (("fabric",), pins.fabric_manager)}
        for part, (words, wanted) in parts.items():
            matching = [version for name, version in running.items() if any(word in name for word in words)]
            if not any(wanted in version for version in matching):
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


def _evidence(site: RunningSite, nodes: list[Object]) -> Iterator[Evidence]:
    objects = ClusterSeen(
        nodes=nodes,
        pods=site.items("/api/v1/pods"),
        runtime_classes=site.items("/apis/node.k8s.io/v1/runtimeclasses"),
    )
    answered = ask(machines_to_ask(site.plan), site.machine) if site.talosconfig else MachinesSeen()
    return evidence(site.plan, objects, answered)


@pytest.mark.row("000.09", "000.12")
def test_gpu_nodes_offer_all_their_gpus(site: RunningSite, seen: Seen) -> None:
    """Eight per HGX machine of the site, or as many slices as its layout gives; on a cluster that exists, as many as
    its models ask for. A node that does not is in one of the known states, as `sitectl gpu-nodes` shows them."""
    nodes, offered, wrong = site.items("/api/v1/nodes"), dict[str, dict[str, int]](), list[str]()
    for node in nodes:
        name, quantities = node["metadata"]["name"], node["status"]["allocatable"]
        if family := node["metadata"]["labels"].get(gpu_nodes.FAMILY_LABEL):
            offered[name] = {key: int(count) for key, count in quantities.items() if gpu_nodes.is_resource(key)}
            counts = ", ".join(f"{count} {key}" for key, count in sorted(offered[name].items()))
            seen(f"{name}: {counts or 'no GPU'}, family {family}")
    for entry in _evidence(site, nodes):
        state, resource, count = classify(entry), entry.wanted.resource, entry.wanted.count
        has, profile = offered.get(entry.node, {}).get(resource, 0), gpu_nodes.profile_of(resource)
        if has != count:
            what = f"slices {profile}" if profile else "GPUs"
            wrong.append(f"{entry.node} offers {has} of {count} {what}, {state.text}")
        elif not state.is_well:
            wrong.append(f"{entry.node} is {state.text}")
    needed = Counter[str]()
    for revision in site.plan.revisions:
        server = revision.spec.server
        needed[gpu_nodes.resource_of(server.gpu_slice or "")] += server.least * revision.server.gpus
    for resource, count in needed.items():
        there = sum(own.get(resource, 0) for own in offered.values())
        if there < count:
            wrong.append(f"the nodes offer {there} {resource}, and the models ask for {count}")
    assert not wrong, "; ".join(wrong)
