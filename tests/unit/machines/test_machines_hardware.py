"""The lab's own rack, and what its machines show by their hardware alone."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest
import yaml

from floor import gpu_nodes
from lab.errors import LabError
from lab.machines import hardware, lab_rack
from lab.machines.spec import load_rack
from lab.paths import CHECKOUT, Lab
from stacks.facts import mig
from stacks.facts.hardware import slice_name, slices_per_node


@pytest.fixture
def home(tmp_path: Path) -> Lab:
    return Lab(home=tmp_path / "home", cache=tmp_path / "cache")


def test_the_rack_is_a_control_plane_machine_and_hgx_machines(home: Lab) -> None:
    assert lab_rack.write(home, 2)
    rack = load_rack(lab_rack.file(home))
    assert [(machine.name, machine.hardware, machine.address) for machine in rack.machines] == [
        ("cp-1", "infra", "198.18.49.10"),
        ("hgx-1", "hgx-h200", "198.18.49.11"),
        ("hgx-2", "hgx-h200", "198.18.49.12"),
    ]
    assert rack.factory is not None
    assert (rack.cluster, rack.factory.host, rack.factory.port) == ("kwok", "198.18.63.9", 8080)
    assert lab_rack.names(home) == ["cp-1", "hgx-1", "hgx-2"]


def test_an_unchanged_rack_is_not_written_again(home: Lab) -> None:
    assert lab_rack.write(home, 2)
    assert not lab_rack.write(home, 2)
    assert lab_rack.write(home, 3)


@pytest.mark.parametrize("count", [-1, 31])
def test_too_many_machines_are_refused_with_the_limit(home: Lab, count: int) -> None:
    with pytest.raises(LabError, match="holds 0 to 30"):
        lab_rack.write(home, count)


@pytest.mark.parametrize("index", [0, 7])
def test_addresses_and_pod_networks_do_not_meet(home: Lab, index: int) -> None:
    lab = replace(home, index=index)
    lab_rack.write(lab, lab_rack.MOST_HGX_MACHINES)
    rack = load_rack(lab_rack.file(lab))
    plan = lab.network
    pods = [IPv4Network(machine.pod_cidr) for machine in rack.machines]
    addresses = [IPv4Address(machine.address) for machine in rack.machines]
    assert all(network.subnet_of(plan.pods) for network in pods)
    assert not any(address in network for address in addresses for network in pods)
    assert plan.image_factory in plan.whole
    assert all(address in plan.nodes for address in addresses)
    assert not any(
        plan.image_factory in network for network in (plan.pods, plan.services, plan.load_balancers, plan.nodes)
    )
    assert plan.image_factory not in plan.uplink


def test_hgx_h200_has_gpus_and_the_labels_that_selectors_use() -> None:
    size = hardware.capacity("hgx-h200", has_gpus=True)
    assert (size["nvidia.com/gpu"], size["cpu"], size["memory"]) == ("8", "192", "2Ti")
    labels = hardware.gpu_labels()
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-H200"
    assert labels["nvidia.com/gpu.memory"] == "143771"
    assert labels["nvidia.com/gpu.count"] == "8"
    assert labels["feature.node.kubernetes.io/pci-10de.present"] == "true"


def test_nothing_of_a_gpu_shows_where_none_can_be_used() -> None:
    for machine in ("infra", "hgx-h200"):
        shown = (hardware.capacity(machine, has_gpus=False), hardware.kubelet_labels("n", machine))
        assert "nvidia" not in str(shown)


@pytest.mark.parametrize("profile", mig.slices_of("h200-sxm"))
def test_gpus_that_a_label_asks_to_cut_are_offered_as_slices(profile: str) -> None:
    """As many as the plan of a site counts on, of which the emulation reads nothing."""
    layout, resource = mig.layout_of(profile), gpu_nodes.resource_of(profile)
    size = hardware.capacity("hgx-h200", has_gpus=True, layout=layout)
    count = str(slices_per_node(slice_name("h200-sxm", profile)))
    assert (size[resource], size["nvidia.com/gpu"], size["cpu"]) == (count, "0", "192")
    labels = hardware.gpu_labels(layout)
    assert labels[f"{resource}.count"] == count
    assert labels[f"{resource}.product"] == f"NVIDIA-H200-MIG-{profile}"
    assert (labels["nvidia.com/mig.strategy"], labels["nvidia.com/mig.config.state"]) == ("mixed", "success")
    assert labels["nvidia.com/gpu.family"] == "hopper", "replicas on slices select the family, too"
    assert hardware.capacity("hgx-h200", has_gpus=False, layout=layout).keys() == {
        *hardware.capacity("infra", has_gpus=False)
    }


@pytest.mark.parametrize(("layout", "state"), [("all-disabled", "success"), ("all-1g.99gb", "failed")])
def test_gpus_stay_whole_by_a_layout_that_cuts_none(layout: str, state: str) -> None:
    assert hardware.capacity("hgx-h200", has_gpus=True, layout=layout) == hardware.capacity("hgx-h200", has_gpus=True)
    assert hardware.gpu_labels(layout)["nvidia.com/mig.config.state"] == state


def test_the_checked_in_site_names_machines_of_the_rack_by_their_addresses_and_leaves_some(home: Lab) -> None:
    document = yaml.safe_load((CHECKOUT / "Pulumi.lab.yaml").read_text())
    machines = document["config"]["inference-platform:site"]["cluster"]["machines"]
    rack = lab_rack.description(home.network, lab_rack.DEFAULT_HGX_MACHINES)
    described = {machine["name"]: (machine["address"], machine["hardware"]) for machine in rack["machines"]}
    hardware_of = {"controlplane": "infra", "hgx": "hgx-h200"}
    named = {name: (node["address"], hardware_of[node["role"]]) for name, node in machines["nodes"].items()}
    assert named.items() < described.items()
    assert machines["image_factory"] == f"http://{rack['factory']['host']}:{rack['factory']['port']}"
    assert machines["endpoint"] == f"https://{described['cp-1'][0]}:6443"
    plan = home.network
    assert machines["networks"] == {"nodes": [str(plan.nodes)], "pods": str(plan.pods), "services": str(plan.services)}
