"""Links, bonds, VLANs and cards that read well and would lose the machine, or carry nothing: each is refused."""

from __future__ import annotations

import pytest

from tests.unit.stacks.wrong_sites import M, Wrong, refused_and_fixed

WRONG: dict[str, Wrong] = {
    # The machine's own address
    "the only link switched off": Wrong(
        {f"{M}.bonds.bond0.up": False},
        f"{M}.bonds.bond0.up",
        "switches off the link of the machine's own address",
        {f"{M}.bonds.bond0.up": None},
    ),
    "the only link switched off at one node": Wrong(
        {f"{M}.nodes.cp-1.bonds": {"bond0": {"up": False}}}, f"{M}.nodes.cp-1.bonds.bond0.up", "switches off"
    ),
    "a plain link switched off": Wrong(
        {
            f"{M}.nodes.cp-1.links": {"eno3": {"node_address": True, "up": False}},
            f"{M}.nodes.cp-1.bonds": {"bond0": {"node_address": False, "routes": []}},
        },
        f"{M}.nodes.cp-1.links.eno3.up",
        "switches off",
    ),
    "a VLAN on a bond that is switched off": Wrong(
        {
            f"{M}.roles.worker.vlans": {"bond0.7": {"parent": "bond0", "vlan_id": 7, "node_address": True}},
            f"{M}.roles.worker.bonds": {"bond0": {"node_address": False, "routes": [], "up": False}},
        },
        f"{M}.roles.worker.bonds.bond0.up",
        "switches off",
    ),
    "packets too small for IPv6": Wrong(
        {f"{M}.roles.worker.bonds": {"bond0": {"mtu": 68}}},
        f"{M}.roles.worker.bonds.bond0.mtu",
        "less than 1280, IPv6's least",
        {f"{M}.roles.worker.bonds": {}},
    ),
    "packets too small for IPv6 below a VLAN": Wrong(
        {f"{M}.bonds.bond0.mtu": 68},
        f"{M}.bonds.bond0.mtu",
        "write 9000, or what the switches pass on",
        {f"{M}.bonds.bond0.mtu": 9000},
    ),
    # Links beside each other
    "a link and a bond of one name": Wrong(
        {f"{M}.links": {"bond0": {"mtu": 9000}}},
        f"{M}.links.bond0",
        "take it out, and write its keys at bonds.bond0",
        {f"{M}.links": {}},
    ),
    "DHCP on a bond's member": Wrong(
        {f"{M}.links": {"eno1": {"dhcp": True}}},
        f"{M}.links.eno1.dhcp",
        "move it to bonds.bond0",
        {f"{M}.links": {}, f"{M}.bonds.bond0.dhcp": True},
    ),
    "an address on a bond's member": Wrong(
        {f"{M}.nodes.cp-1.links": {"eno2": {"addresses": ["10.40.0.1/24"]}}},
        f"{M}.nodes.cp-1.links.eno2.addresses",
        "a link in a bond has no address of its own",
        {f"{M}.nodes.cp-1.links": {}, f"{M}.nodes.cp-1.bonds": {"bond0": {"addresses": ["10.40.0.1/24"]}}},
    ),
    "the machine's address on a bond's member": Wrong(
        {
            f"{M}.bonds.bond0.node_address": False,
            f"{M}.bonds.bond0.routes": [],
            f"{M}.links": {"eno1": {"node_address": True}},
        },
        f"{M}.links.eno1.node_address",
        "move it to bonds.bond0",
        {
            f"{M}.bonds.bond0.node_address": True,
            f"{M}.bonds.bond0.routes": [{"gateway": "10.5.0.1"}],
            f"{M}.links": {},
        },
    ),
    "a machine without its own address": Wrong(
        {f"{M}.bonds.bond0.node_address": False, f"{M}.bonds.bond0.routes": []},
        f"{M}.bonds.bond0",
        "no other link carries the machine's own address",
        {f"{M}.bonds.bond0.node_address": True, f"{M}.bonds.bond0.routes": [{"gateway": "10.5.0.1"}]},
    ),
    "an address on two links": Wrong(
        {f"{M}.roles.hgx.links.rail0.node_address": True}, f"{M}.bonds.bond0.node_address", "on a second link"
    ),
    "a link in two bonds": Wrong(
        {f"{M}.bonds.bond1": {"links": ["eno2"], "bond_mode": "active-backup"}},
        f"{M}.bonds.bond1.links",
        "eno2, which is in bond0",
    ),
    "a VLAN on a bond's member": Wrong(
        {f"{M}.roles.hgx.vlans.bond0.30.parent": "eno1"}, f"{M}.roles.hgx.vlans.bond0.30.parent", "a member of a bond"
    ),
    "a VLAN on a misspelt bond": Wrong(
        {f"{M}.roles.hgx.vlans.bond0.30.parent": "bnd0"},
        f"{M}.roles.hgx.vlans.bond0.30.parent",
        "did you mean 'bond0'",
        {f"{M}.roles.hgx.vlans.bond0.30.parent": "bond0"},
    ),
    "one VLAN twice": Wrong(
        {f"{M}.roles.hgx.vlans.storage": {"parent": "bond0", "vlan_id": 30}},
        f"{M}.roles.hgx.vlans.storage.vlan_id",
        "30 on bond0 is",
    ),
    "a VLAN larger than its bond": Wrong(
        {f"{M}.bonds.bond0.mtu": 1500}, f"{M}.roles.hgx.vlans.bond0.30.mtu", "more than bond0 carries, 1500"
    ),
    "a bond that watches no link": Wrong(
        {f"{M}.bonds.bond0.miimon_ms": 0},
        f"{M}.bonds.bond0.miimon_ms",
        "so a dead one stays in use, and the kernel refuses updelay_ms and downdelay_ms",
        {f"{M}.bonds.bond0.miimon_ms": 100},
    ),
    "a bond's delay between two looks": Wrong(
        {f"{M}.bonds.bond0.updelay_ms": 150},
        f"{M}.bonds.bond0.updelay_ms",
        "the kernel would take 100",
        {f"{M}.bonds.bond0.updelay_ms": 200},
    ),
    "rings that no card has": Wrong(
        {f"{M}.ethernet": {"eno1": {"rings": {"foo": 3, "rx": 4096}}}},
        f"{M}.ethernet.eno1.rings",
        "rx, rx-mini",
        {f"{M}.ethernet": {"eno1": {"rings": {"rx": 4096}}}},
    ),
    "a feature by ethtool's short name": Wrong(
        {f"{M}.ethernet": {"eno1": {"features": {"gro": False, "rx-gro-hw": False}}}},
        f"{M}.ethernet.eno1.features",
        "rx-gro in the place of gro",
        {f"{M}.ethernet": {"eno1": {"features": {"rx-gro": False, "rx-gro-hw": False}}}},
    ),
    "channels below zero": Wrong(
        {f"{M}.ethernet": {"eno1": {"channels": {"rx": -1, "combined": 8}}}},
        f"{M}.ethernet.eno1.channels",
        "numbers from 0 on for rx, tx, other, combined",
        {f"{M}.ethernet": {"eno1": {"channels": {"combined": 8}}}},
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_a_wrong_site_is_refused_at_its_key_and_the_fix_mends_it(wrong: Wrong) -> None:
    refused_and_fixed(wrong)
