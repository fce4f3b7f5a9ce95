"""`init --machines`: a site of machines that is valid as written, with marks only at what it cannot know."""

from __future__ import annotations

import ipaddress
from collections import Counter
from pathlib import Path

import pytest

from sitectl.shell.errors import Exit
from stacks.plan.site_plan import plan_file
from stacks.site.machines import MachinesSpec
from tests.unit.sitectl.sites_to_work_on import CommandResult, make_checkout, run

pytestmark = pytest.mark.row("C.05")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return make_checkout(tmp_path / "own", sites=())


def init(own: Path, *words: str) -> tuple[CommandResult, MachinesSpec, str]:
    result = run(own, "init", "berlin", *words)
    assert result.status == Exit.OK, result.err
    file = own / "Pulumi.berlin.yaml"
    machines = plan_file(file).site.cluster.machines
    assert machines is not None
    return result, machines, file.read_text()


@pytest.mark.parametrize(
    ("count", "gateway_nodes", "network"),
    [("3+6", 2, "10.1.0.0/24"), ("1+1", 0, "192.168.7.0/26"), ("5+40", 4, "10.96.0.0/16"), ("3+2", 2, "10.244.0.0/24")],
)
def test_the_machines_are_those_that_were_asked_for(own: Path, count: str, gateway_nodes: int, network: str) -> None:
    result, machines, text = init(own, "--machines", count, "--gateway-nodes", str(gateway_nodes), "--network", network)
    control_planes, hgx = map(int, count.split("+"))
    roles = Counter(node.role for node in machines.nodes.values())
    assert (roles["controlplane"], roles["worker"], roles["hgx"]) == (control_planes, gateway_nodes, hgx)
    addresses = [ipaddress.ip_address(node.address) for node in machines.nodes.values()]
    assert len(set(addresses)) == len(addresses)
    assert all(address in ipaddress.ip_network(network) for address in addresses)
    assert machines.networks.vip not in [str(address) for address in addresses]
    assert "valid as it is" in result.out
    assert max(map(len, text.splitlines())) <= 120
    assert run(own, "validate", "berlin").status == Exit.OK
    assert run(own, "proof", "berlin").status == Exit.OK


def test_without_a_gateway_node_control_planes_take_the_gateway(own: Path) -> None:
    _, machines, _ = init(own, "--machines", "3+1", "--gateway-nodes", "0", "--network", "10.1.0.0/24")
    assert all(node.schedulable for node in machines.nodes.values() if node.role == "controlplane")


def test_a_rack_gets_what_offers_its_gpus(own: Path) -> None:
    init(own, "--machines", "3+1", "--network", "10.1.0.0/24")
    assert plan_file(own / "Pulumi.berlin.yaml").site.cluster.gpu_stack == "operator"
    assert run(own, "init", "oslo").status == Exit.OK
    assert plan_file(own / "Pulumi.oslo.yaml").site.cluster.gpu_stack == "external", "a cluster that exists has its own"


def test_what_an_option_names_is_not_marked(own: Path) -> None:
    _, machines, text = init(own, "--machines", "3+2", "--network", "10.1.0.0/24")
    assert text.count("FILL IN") == 5
    (own / "Pulumi.berlin.yaml").unlink()
    facts = [
        "--router",
        "10.1.0.254",
        "--vip",
        "10.1.0.99",
        "--link",
        "eno1",
        "--link",
        "eno2",
        "--resolver",
        "10.1.0.2",
    ]
    result, machines, text = init(own, "--machines", "3+2", "--network", "10.1.0.0/24", *facts)
    assert text.count("FILL IN") == 2, "addresses of machines and their disks have no option"
    assert "2 facts to fill in" in result.out
    assert machines.endpoint == "https://10.1.0.99:6443"
    assert machines.bonds["bond0"].links == ("eno1", "eno2")
    assert machines.bonds["bond0"].routes[0].gateway == "10.1.0.254"
    assert machines.resolvers == ("10.1.0.2",)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--machines", "3"], "allowed: such as 3+6"),
        (["--machines", "0+6", "--network", "10.1.0.0/24"], "from 1+1 to"),
        (["--machines", "3+6"], "fix: --network 10.1.0.0/24"),
        (["--machines", "3+6", "--network", "10.1.0.1/24"], "--network: 10.1.0.1/24 has host bits set"),
        (["--machines", "3+6", "--network", "fd00::/64"], "for IPv6, edit the file that this writes"),
        (["--machines", "3+60", "--network", "10.1.0.0/26"], "fix: --network with a prefix length of at most 25"),
        (["--network", "10.1.0.0/24"], "fix: add --machines 3+6"),
        (["--machines", "3+6", "--network", "10.1.0.0/24", "--kubeconfig", "k"], "leave one of the two out"),
    ],
)
def test_a_mistake_writes_nothing_and_names_the_way_out(own: Path, words: list[str], says: str) -> None:
    result = run(own, "init", "berlin", *words)
    assert result.status == Exit.USAGE
    assert says in result.err
    assert not (own / "Pulumi.berlin.yaml").exists()
