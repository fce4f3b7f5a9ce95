"""Sites that are right key by key, and would break a rack: each is refused once, at one key, and its fix is taken."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.plan.site_plan import plan_values
from tests.unit.stacks.site_examples import prod_with_links
from tests.unit.stacks.wrong_sites import M, N, Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("opening 13", "C.01")

D = f"{M}.hgx.storage.disks"
F = f"{M}.firewall"
R = f"{M}.registries"
W = f"{M}.roles.worker"
LINKS = f"{M}.nodes.hgx-2.links"
VLAN = f"{M}.nodes.hgx-2.vlans.bond0.30"
ZONE = {f"{M}.nodes.hgx-2.labels": {"topology.kubernetes.io/zone": "row-c"}}
NETWORK = {"destination": "10.9.0.0/24", "gateway": "10.9.7.1"}


def mirror(endpoint: str) -> dict[str, Any]:
    return {f"{R}.mirrors": {"*": {"endpoints": [endpoint]}}}


def of_key(key: str, wrong: Any, what: str, right: Any = None) -> Wrong:
    """A wrong value of one key."""
    return Wrong({key: wrong}, key, what, None if right is None else {key: right})


WRONG: dict[str, Wrong] = {
    # Ends of a rail or VLAN
    "a rail in a subnet of its own": of_key(
        f"{LINKS}.rail0.addresses",
        ["10.9.7.22/24"],
        "of hgx-2 are in 10.9.7.0/24, and those of hgx-1, hgx-3, hgx-4 in 10.9.0.0/24, to which rail0 has no route",
        ["10.9.0.22/24"],
    ),
    "a rail in another one's subnet": of_key(
        f"{LINKS}.rail0.addresses",
        ["10.9.1.92/24"],
        "of hgx-2 are in 10.9.1.0/24, the subnet of rail1",
        ["10.9.0.9/24"],
    ),
    "a rail with a wide prefix": of_key(
        f"{LINKS}.rail0.addresses", ["10.9.0.22/23"], "write an address of 10.9.0.0/24 with its prefix length"
    ),
    "a rail with small packets": of_key(
        f"{LINKS}.rail0.mtu", 1500, "write 9000, or the same number for all of them", 9000
    ),
    "a VLAN of another number": of_key(f"{VLAN}.vlan_id", 31, "another one than that of hgx-1, hgx-3, hgx-4", 30),
    # Subnets of people
    "administrators among the pods": of_key(
        f"{F}.admins", ["10.64.3.0/24"], "lies in networks.pods (10.64.0.0/16)", ["10.1.0.0/24"]
    )._replace(key=f"{F}.admins.0"),
    "administrators among the usual Services": Wrong(
        {f"{N}.services": None, f"{F}.admins": ["10.100.0.0/24"]},
        f"{F}.admins.0",
        "lies in networks.services (10.96.0.0/12)",
        {f"{N}.services": "10.80.0.0/16"},
    ),
    "clients among the pods": Wrong(
        {f"{F}.clients": ["10.64.3.0/24"]}, f"{F}.clients.0", "lies in networks.pods", {f"{F}.clients": ["10.0.0.0/8"]}
    ),
    "an image factory among the Services": of_key(
        f"{M}.image_factory", "https://10.80.0.9", "lies in 10.80.0.0/16 of networks.services", "https://10.5.0.9"
    ),
    # Addresses of load balancers
    "a pool of no node's subnet, by ARP": Wrong(
        {"addresses.pool": ["10.200.0.100-10.200.0.109"], "gateway.address": None},
        "addresses.pool.0",
        "has 10.200.0.100, which is in no subnet of the nodes",
        {f"{N}.nodes": ["10.5.0.0/24", "10.200.0.0/24"]},
    ),
    "a pool that goes past the nodes' subnet": Wrong(
        {"addresses.pool": ["10.5.0.254-10.5.1.10"], "gateway.address": None}, "addresses.pool.0", "has 10.5.1.10"
    ),
    # Disks, sizes and threads
    "an install disk of any model": of_key(
        f"{W}.install_disk", {"model": "*", "size": ">= 1GB"}, "matches every disk", {"model": "*", "type": "nvme"}
    ),
    "an install disk of too few bytes": Wrong(
        {f"{W}.install_disk": {"size": "<= 2"}},
        f"{W}.install_disk.size",
        "a number without a unit is one of bytes",
        {f"{W}.install_disk": {"size": "<= 2TB"}},
    ),
    "an install disk above any": Wrong(
        {f"{W}.install_disk": {"size": ">= 2PB"}}, f"{W}.install_disk.size", "a size that no disk has"
    ),
    "a disk of Longhorn in GB": of_key(f"{D}.longhorn-0.min_size", "3.84GB", "no disk of a server has", "3.84TB"),
    "a disk of Longhorn without a unit": of_key(f"{D}.longhorn-0.min_size", "3840", "is one of bytes", "3840GB"),
    "a disk of Longhorn of petabytes": of_key(
        f"{D}.longhorn-0.selector", "disk.size > 3u * PB && disk.rotational", "takes disks below 1e+06 GB"
    ),
    "a system volume in another unit": Wrong(
        {f"{M}.system_volumes.EPHEMERAL.provisioning": {"min_size": "2000TB"}},
        f"{M}.system_volumes.EPHEMERAL.provisioning.min_size",
        "is more than any disk has",
        {f"{M}.system_volumes.EPHEMERAL.provisioning": {"min_size": "200GB"}},
    ),
    "memory in MiB": of_key(f"{W}.memory_gib", 131_072, "out of range", 128),
    "little memory in MiB": of_key(f"{W}.memory_gib", 16_384, "write 16 if these are MiB", 64),
    "threads of a whole rack": of_key(f"{W}.cores", 9_216, "out of range", 96),
    "a bond that waits for hours": of_key(f"{M}.bonds.bond0.updelay_ms", 36_000_000, "out of range", 200),
    # Names and addresses of what is fetched
    "a misspelt extension": Wrong(
        {f"{W}.extensions": ["siderolabs/intel-ucod"]},
        f"{W}.extensions.0",
        "did you mean 'siderolabs/intel-ucode'?",
        {f"{W}.extensions": ["siderolabs/intel-ucode"]},
    ),
    "an extension of a misspelt owner": Wrong(
        {f"{W}.extensions": ["siderolab/amd-ucode"]}, f"{W}.extensions.0", "did you mean 'siderolabs/amd-ucode'?"
    ),
    "a mirror with a tag": Wrong(
        mirror("https://registry.site.example/kubelet:v1.36.3"),
        f"{R}.mirrors.*.endpoints.0",
        "names an image, or a second address",
        mirror("https://registry.site.example"),
    ),
    "a mirror with two schemes": Wrong(
        mirror("https://https://registry.site.example"), f"{R}.mirrors.*.endpoints.0", "is no address of one server"
    ),
    "a mirror of a port that cannot be": Wrong(
        {f"{R}.mirrors": {"docker.io:99999": {"endpoints": ["https://registry.site.example"]}}},
        f"{R}.mirrors.docker.io:99999",
        "names a port that there cannot be",
    ),
    "an image factory with its own path": of_key(
        f"{M}.image_factory",
        "https://factory.site.example/schematics",
        "ends in /schematics, which is put behind it",
        "https://factory.site.example",
    ),
    # Credentials
    "backups into a bucket without keys": Wrong(
        {"storage.longhorn.backup_credential_secret": None},
        "storage.longhorn.backup_target",
        "no Secret has its credentials",
        {"storage.longhorn.backup_target": "nfs://10.5.0.7:/backups"},
    ),
    "an image factory in open brackets": of_key(
        f"{M}.image_factory", "https://[fd00::1", "is no address of one server"
    ),
    # Times
    "a start of a week": Wrong(
        {"storage.read_bytes_per_s": 1.0e6, "storage.shared_read_bytes_per_s": None},
        "storage.read_bytes_per_s",
        "lets a replica of glm-5-1 start in 8.8 days",
        {"storage.read_bytes_per_s": 9.0e6},
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_what_cannot_work_is_refused_at_its_key_and_the_fix_mends_it(wrong: Wrong) -> None:
    refused_and_fixed(wrong)


RIGHT: dict[str, dict[str, Any]] = {
    "a rail with a route to its peers": {
        f"{LINKS}.rail0": {"addresses": ["10.9.7.22/24"], "mtu": 9000, "routes": [NETWORK]}
    },
    "a rail of a machine of another row": {f"{LINKS}.rail0.addresses": ["10.9.7.22/24"], **ZONE},
    "a subnet for each row": {
        f"{M}.nodes.hgx-{number}.links.rail0.addresses": [f"10.9.7.2{number}/24"] for number in (3, 4)
    },
    "a rail of links between two": {
        f"{M}.nodes.hgx-{number}.links.rail0.addresses": [f"10.9.0.{2 * number}/31"] for number in range(1, 5)
    },
    "a card that the kernel calls otherwise on one machine": {
        f"{M}.nodes.hgx-{number}.links": {
            f"ens{1 + (number == 4)}": {"addresses": [f"10.19.0.2{number}/24"]},
            f"ens{2 - (number == 4)}": {"addresses": [f"10.19.1.2{number}/24"]},
        }
        for number in range(1, 5)
    },
    "small packets on two machines of four": {f"{M}.nodes.hgx-{n}.links.rail0.mtu": 1500 for n in (1, 2)},
    "administrators and all pods": {f"{F}.admins": ["10.1.0.0/24", "10.64.0.0/16"]},
    "administrators anywhere": {f"{F}.admins": ["10.0.0.0/8"]},
    "pods as the only clients": {f"{F}.clients": ["10.64.0.0/16"]},
    "a pool in the subnet of a VLAN": {"addresses.pool": ["10.30.0.100"], "gateway.address": None},
    "an install disk of a role that adds to the cluster's": {
        f"{M}.install_disk": {"type": "nvme"},
        f"{W}.install_disk": {"size": ">= 1GB"},
    },
    "the largest machine": {f"{W}.cores": 1792, f"{W}.memory_gib": 49_152},
    "a factory's own extension": {f"{W}.extensions": ["site.example/agent".replace(".", "-"), "siderolabs/site-agent"]},
    "a mirror behind a path": mirror("https://registry.site.example:5000/v2/proxy"),
    "a factory behind a path": {f"{M}.image_factory": "https://site.example:8443/image-factory"},
    "a class of the site's own": {"monitoring.storage_class": "longhorn-fast"},
}


@pytest.mark.parametrize("change", RIGHT.values(), ids=list(RIGHT))
def test_what_is_odd_and_works_is_accepted(change: dict[str, Any]) -> None:
    assert plan_values(changed(prod_with_links(), change), "site.yaml").site


WARNED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a class that is nearly one of the program's": (
        "monitoring.storage_class",
        "is no class that this program makes",
        {"monitoring.storage_class": "longhorn-scrath"},
    ),
    "a gated model without a token": (
        "models.qwen3-32b.catalogue",
        "the hub gives to no one without a token",
        {"models.qwen3-32b": {"catalogue": "llama-3.1-8b"}, "storage.weights": {"source": "hub"}},
    ),
}


@pytest.mark.parametrize(("key", "what", "change"), WARNED.values(), ids=list(WARNED))
def test_what_may_be_there_though_the_file_does_not_say_so_is_a_warning(
    key: str, what: str, change: dict[str, Any]
) -> None:
    plan = plan_values(changed(prod_with_links(), change), "site.yaml")
    assert [problem for problem in plan.warnings if problem.key == key and what in problem.what and problem.fix]
