"""From a cluster's description to its machines' configs: what goes where, equal bytes, every problem at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import yaml

from talos.documents import network
from talos.documents.document import Document
from talos.documents.patches import parse_patch
from talos.documents.problems import ConfigError
from talos.documents.v1alpha1 import Install
from talos.machines import ClusterDescription, NodeDescription, machine_configs
from tests.unit.talos import talos_examples as examples
from tests.unit.talos import talos_sites as sites


def documents(config: bytes) -> dict[tuple[str, str], Any]:
    return {
        (document.get("kind", "v1alpha1"), str(document.get("name", ""))): document
        for document in yaml.load_all(config, Loader=yaml.CSafeLoader)
    }


@cache
def site() -> dict[str, dict[tuple[str, str], Any]]:
    return {name: documents(config) for name, config in machine_configs(sites.reference_site()).items()}


def test_control_planes_come_first_then_workers_by_name() -> None:
    assert list(site()) == ["cp-1", "cp-2", "cp-3", "hgx-1", "hgx-2", "hgx-3", "hgx-4"]


def test_each_machine_has_its_role_name_and_addresses() -> None:
    for name, config in site().items():
        assert config["HostnameConfig", ""]["hostname"] == name
        role = "controlplane" if name.startswith("cp") else "worker"
        assert config["v1alpha1", ""]["machine"]["type"] == role
        assert (("Layer2VIPConfig", sites.VIP) in config) == (role == "controlplane")
        assert (("UserVolumeConfig", "longhorn-0") in config) == (role == "worker")
    assert site()["hgx-3"]["BondConfig", "bond0"]["addresses"] == [{"address": "10.5.0.23/24"}]


def test_settings_and_patches_reach_those_they_are_for() -> None:
    control_plane, worker = (site()[name]["v1alpha1", ""] for name in ("cp-1", "hgx-1"))
    for config in (control_plane, worker):
        assert config["machine"]["sysctls"]["vm.swappiness"] == "1"
        assert config["machine"]["sysctls"]["net.core.somaxconn"] == "4096"
        assert config["machine"]["kubelet"]["nodeIP"]["validSubnets"] == ["10.5.0.0/24", "!10.5.0.10/32"]
    assert control_plane["machine"]["certSANs"] == [sites.VIP]
    assert control_plane["cluster"]["etcd"]["extraArgs"] == {"metrics": "extensive"}
    assert "certSANs" not in worker["machine"]
    assert worker["machine"]["nodeTaints"] == {"nvidia.com/gpu": "present:NoSchedule"}
    assert worker["machine"]["nodeLabels"]["topology.kubernetes.io/zone"] == "row-1"
    assert worker["machine"]["nodeLabels"]["site.example/row"] == "a"
    assert worker["machine"]["nodeAnnotations"]["site.example/asset"] == "A-1"


def test_the_firewall_is_of_the_role() -> None:
    assert ("NetworkRuleConfig", "etcd") in site()["cp-1"]
    assert ("NetworkRuleConfig", "etcd") not in site()["hgx-1"]
    assert ("NetworkRuleConfig", "load-balancers") in site()["hgx-1"]
    assert ("NetworkRuleConfig", "load-balancers") not in site()["cp-1"]


def test_the_gateway_is_open_on_control_planes_that_take_pods() -> None:
    description = sites.reference_site()
    nodes = tuple(replace(node, takes_pods=node.name == "cp-2") for node in description.nodes)
    configs = machine_configs(replace(description, nodes=nodes))
    served = {name for name, config in configs.items() if ("NetworkRuleConfig", "load-balancers") in documents(config)}
    assert served == {"cp-2", "hgx-1", "hgx-2", "hgx-3", "hgx-4"}


def test_order_says_nothing_and_equal_descriptions_give_equal_bytes() -> None:
    description = sites.reference_site()
    sysctls = {"b": "1", "a": "2"}
    with_sysctls = replace(description, settings=replace(description.settings, sysctls=sysctls))
    turned = replace(
        with_sysctls,
        nodes=tuple(reversed(description.nodes)),
        documents=tuple(reversed(description.documents)),
        settings=replace(description.settings, sysctls=dict(reversed(sysctls.items()))),
    )
    assert list(machine_configs(turned).items()) == list(machine_configs(with_sysctls).items())
    assert machine_configs(sites.reference_site()) == machine_configs(sites.reference_site())


def test_adding_a_node_leaves_the_others_as_they_are() -> None:
    description = sites.reference_site()
    before = machine_configs(description)
    after = machine_configs(replace(description, nodes=(*description.nodes, sites.hgx(5))))
    assert after.keys() - before.keys() == {"hgx-5"}
    assert {name: after[name] for name in before} == before


def test_no_secret_shows() -> None:
    shown = repr(sites.reference_site())
    assert examples.CANARY not in shown
    assert examples.bundle().cluster_secret not in shown
    assert examples.bundle().trustd_token not in shown


def node(
    name: str, change: Callable[[NodeDescription], NodeDescription]
) -> Callable[[ClusterDescription], ClusterDescription]:
    return lambda description: replace(
        description, nodes=tuple(change(machine) if machine.name == name else machine for machine in description.nodes)
    )


def with_network(*more: Document) -> Callable[[NodeDescription], NodeDescription]:
    return lambda machine: replace(machine, network=(*machine.network, *more))


def link(address: str, name: str = "eth9") -> network.LinkConfig:
    return network.LinkConfig(name=name, addresses=(network.LinkAddress(address=address),))


MISTAKES: dict[str, tuple[Callable[[ClusterDescription], ClusterDescription], str]] = {
    "no control plane": (
        lambda description: replace(
            description, nodes=tuple(machine for machine in description.nodes if machine.profile)
        ),
        "nodes: has no control plane; allowed: one or more, best three",
    ),
    "a node twice": (
        lambda description: replace(description, nodes=(*description.nodes, sites.hgx(1))),
        "nodes: has hgx-1 2 times",
    ),
    "an address twice": (
        node("hgx-2", with_network(link("10.5.0.21/24"))),
        "nodes.hgx-2: is an address of hgx-1 too; got 10.5.0.21",
    ),
    "an unknown Talos": (
        lambda description: replace(description, talos_version="v1.14.1"),
        "Talos v1.14.1 has no supported machine-config contract",
    ),
    "a Kubernetes that this Talos does not run": (
        lambda description: replace(description, cluster=replace(description.cluster, kubernetes_version="v1.37.0")),
        "got 'v1.37.0'; allowed: v1.31.x to v1.36.x",
    ),
    "a Kubernetes that is none": (
        lambda description: replace(description, cluster=replace(description.cluster, kubernetes_version="1.36")),
        "got '1.36'; allowed: v1.31.x",
    ),
    "an installer of another version": (
        node(
            "hgx-1",
            lambda machine: replace(machine, install=Install(disk="/dev/sda", image="f/metal-installer/a:v1.13.8")),
        ),
        "hgx-1, install.image: is not of Talos v1.13.9; got f/metal-installer/a:v1.13.8; allowed: FACTORY",
    ),
    "no installer": (
        node("cp-1", lambda machine: replace(machine, install=Install(disk="/dev/sda"))),
        "cp-1, install.image: is not of Talos v1.13.9; got no image",
    ),
    "a domain in the name": (node("cp-2", lambda machine: replace(machine, name="cp-2.example")), "has dots"),
    "a name in capitals": (
        node("cp-2", lambda machine: replace(machine, name="CP2")),
        "allowed: a DNS name in small letters",
    ),
    "GPUs on a control plane": (
        node("cp-1", lambda machine: replace(machine, profile=examples.hgx_profile())),
        "cp-1, profile: is on a control plane",
    ),
    "a VIP on a worker": (
        node("hgx-1", with_network(network.Layer2VIPConfig(address="10.5.0.99", link="bond0"))),
        "hgx-1, Layer2VIPConfig 10.5.0.99: is on a worker",
    ),
    "an address beneath a bond": (
        node("hgx-1", with_network(link("10.5.0.77/24", "enp1s0f0"))),
        "hgx-1, LinkConfig enp1s0f0: has addresses, and belongs to a bond",
    ),
    "an address among the pods": (
        node("hgx-1", with_network(link("10.64.0.5/24"))),
        "hgx-1, network: has 10.64.0.5, which lies in 10.64.0.0/12 of pods or services",
    ),
    "a node's patch for the cluster": (
        lambda description: replace(description, patches=(parse_patch("p", "node", "debug: true"),)),
        "patches: has patch p of another level; got node; allowed: cluster",
    ),
    "a cluster's patch for a node": (
        node("cp-1", lambda machine: replace(machine, patches=(parse_patch("p", "cluster", "debug: true"),))),
        "cp-1, patches: has patch p of another level; got cluster; allowed: node",
    ),
    "a document twice": (
        node("cp-1", lambda machine: replace(machine, documents=(network.HostnameConfig(hostname="x"),))),
        "cp-1, HostnameConfig: is there twice",
    ),
    "a document of another kind of node": (
        node("cp-1", with_network(link("10.5.0.0.1/24"))),
        "cp-1, LinkConfig eth9, addresses[0].address: does not fit",
    ),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_names_node_and_place(what: str) -> None:
    change, refusal = MISTAKES[what]
    with pytest.raises(ConfigError) as failure:
        machine_configs(change(sites.reference_site()))
    assert refusal in str(failure.value)
    assert len(failure.value.problems) == 1
    assert examples.CANARY not in str(failure.value)


def test_mistakes_of_all_nodes_are_named_at_once() -> None:
    description = sites.reference_site()
    for name in ("an address twice", "no installer", "a VIP on a worker", "a node's patch for the cluster"):
        description = MISTAKES[name][0](description)
    with pytest.raises(ConfigError) as failure:
        machine_configs(description)
    assert len(failure.value.problems) == 4
