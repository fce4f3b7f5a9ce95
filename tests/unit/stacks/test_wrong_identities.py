"""What there is once, written for several machines or links: each is refused at the key that says it."""

from __future__ import annotations

import pytest

from tests.unit.stacks.wrong_sites import M, Wrong, refused_and_fixed

pytestmark = pytest.mark.row("C.01", "000.40")

PRINT = "c29tZSBzaGEtMjU2IG9mIGEga2V5IHdpdGggMzIgYiE="
BUS = "/pci0000:3a/0000:3a:00.0/nvme"
DISK = f"{M}.hgx.storage.disks.longhorn-0.selector"
WRONG: dict[str, Wrong] = {
    "one machine's key at two": Wrong(
        {f"{M}.nodes.hgx-1.fingerprint": PRINT, f"{M}.nodes.hgx-2.fingerprint": PRINT},
        f"{M}.nodes.hgx-2.fingerprint",
        "is hgx-1's too, and a fingerprint is of one machine alone",
        {f"{M}.nodes.hgx-2.fingerprint": None},
    ),
    "one disk's serial for a role": Wrong(
        {f"{M}.roles.hgx.install_disk": {"serial": "S64HNE0R501234"}},
        f"{M}.roles.hgx.install_disk.serial",
        "is hgx-1's too, and a disk's serial is of one machine alone",
        {f"{M}.roles.hgx.install_disk": {"model": "SAMSUNG MZ1L2960*"}},
    ),
    "one hardware address for all": Wrong(
        {f"{M}.bonds.bond0.hardware_addr": "02:00:00:00:00:01"},
        f"{M}.bonds.bond0.hardware_addr",
        "is cp-1's too, and a hardware address is of one machine alone",
        {f"{M}.bonds.bond0.hardware_addr": None},
    ),
    "one disk of Longhorn for all nodes": Wrong(
        {DISK: 'disk.serial == "S64HNE0R501234"'},
        DISK,
        "names one disk in the world, and 4 nodes look for it (hgx-1, hgx-2, hgx-3, hgx-4)",
        {DISK: f'disk.bus_path == "{BUS}"'},
    ),
    "two aliases of one link": Wrong(
        {f"{M}.roles.hgx.link_aliases.rail1": 'link.bus_path == "0000:18:00.0" && link.driver == "mlx5_core"'},
        f"{M}.roles.hgx.link_aliases.rail1",
        "has the condition of rail0",
        {f"{M}.roles.hgx.link_aliases.rail1": 'link.bus_path == "0000:2a:00.0"'},
    ),
    "an alias with the name of a bond's link": Wrong(
        {f"{M}.roles.hgx.link_aliases.eno1": 'link.bus_path == "0000:5e:00.0"'},
        f"{M}.roles.hgx.link_aliases.eno1",
        "is the name of a link of bond0",
        {f"{M}.roles.hgx.link_aliases.eno1": None},
    ),
    "names that the kernel would not give": Wrong(
        {f"{M}.kernel_args": ["console=ttyS1", "net.ifnames=0"]},
        f"{M}.kernel_args.1",
        "leaves no link called eno1, eno2",
        {f"{M}.kernel_args": ["console=ttyS1"]},
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_what_belongs_to_one_is_not_for_several(wrong: Wrong) -> None:
    refused_and_fixed(wrong)
