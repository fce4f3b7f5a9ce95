"""Disks, selectors and sizes with which two things take one disk, or nothing finds one: each is refused."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.plan.site_plan import plan_values
from stacks.site.checks.selectors import canonical, evaluate
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import M, Wrong, changed, refused_and_fixed

D = f"{M}.hgx.storage.disks"
BUS = "/pci0000:5d/0000:5d:00.0/nvme"
OTHER = 'disk.bus_path == "/pci0000:7e/0000:7e:00.0/nvme"'
W = f"{M}.roles.worker"
EPHEMERAL = f"{M}.system_volumes.EPHEMERAL.provisioning"


def longhorn(selector: str, what: str) -> Wrong:
    key = f"{D}.longhorn-0.selector"
    return Wrong({key: selector}, key, what, {key: OTHER})


def device(path: str, what: str, right: str = "/dev/sda") -> Wrong:
    key = f"{W}.install_disk"
    return Wrong({key: {"device": path}}, f"{key}.device", what, {key: {"device": right}})


def cache(**provisioning: Any) -> dict[str, Any]:
    return {f"{M}.roles.hgx.raw_volumes": {"cache": {"provisioning": {"min_size": "1TB", **provisioning}}}}


CACHE = f"{M}.roles.hgx.raw_volumes.cache.provisioning"
WRONG: dict[str, Wrong] = {
    "Longhorn on every disk": longhorn("true", "matches every disk"),
    "Longhorn on no disk": longhorn("false", "matches no disk"),
    "Longhorn on every disk by an alternative": longhorn("disk.readonly || true", "matches every disk"),
    "Longhorn on the install disk": longhorn("system_disk", "all of which EPHEMERAL takes"),
    "Longhorn on another one's disk": longhorn("!system_disk", "also matches the disk of longhorn-1"),
    "Longhorn on another one's kind of disk": longhorn(
        '!system_disk && disk.transport == "nvme"', "also matches the disk of longhorn-1"
    ),
    "the same selector in other quotes": Wrong(
        {f"{D}.longhorn-1.selector": "disk.bus_path == '/pci0000:3a/0000:3a:00.0/nvme'"},
        f"{D}.longhorn-1.selector",
        "also the selector of longhorn-0",
        {f"{D}.longhorn-1.selector": OTHER},
    ),
    "the same selector turned round": Wrong(
        {f"{D}.longhorn-1.selector": '("/pci0000:3a/0000:3a:00.0/nvme" == disk.bus_path)'},
        f"{D}.longhorn-1.selector",
        "also the selector of longhorn-0",
    ),
    "a volume that takes Longhorn's disk": Wrong(
        cache(disk_selector="!system_disk", grow=True),
        f"{CACHE}.disk_selector",
        "the disk of Longhorn's longhorn-0",
        {f"{CACHE}.disk_selector": OTHER},
    ),
    "a volume that takes Longhorn's disk before it, for it has no largest size": Wrong(
        cache(disk_selector="!system_disk"),
        f"{CACHE}.disk_selector",
        "the disk of Longhorn's longhorn-0",
        {f"{CACHE}.max_size": "1TB"},
    ),
    "a label that hides Longhorn's disks": Wrong(
        {f"{M}.roles.hgx.labels": {"node.longhorn.io/create-default-disk": "false"}},
        f"{M}.roles.hgx.labels.node.longhorn.io/create-default-disk",
        "with another value it takes none of them",
        {f"{M}.roles.hgx.labels": {}},
    ),
    "a tag that Longhorn refuses": Wrong(
        {f"{D}.longhorn-1.tags": ["nvme", "row a"]},
        f"{D}.longhorn-1.tags.1",
        "no disk of the node would be Longhorn's",
        {f"{D}.longhorn-1.tags": ["nvme", "row-a"]},
    ),
    "a disk that is reserved as a whole": Wrong(
        {f"{D}.longhorn-1.reserved_bytes": 3_000_000_000_000, f"{D}.longhorn-0.min_size": "9TB"},
        f"{D}.longhorn-1.reserved_bytes",
        "leaves Longhorn nothing",
        {f"{D}.longhorn-1.reserved_bytes": 300_000_000_000},
    ),
    "a volume on the system disk, of which EPHEMERAL takes all": Wrong(
        {**cache(disk_selector="system_disk && disk.size > 1u * TB", min_size="100GB"), EPHEMERAL: {"min_size": "9GB"}},
        f"{CACHE}.disk_selector",
        "all of which EPHEMERAL takes",
        {EPHEMERAL: {"max_size": "300GB"}},
    ),
    "two volumes on a disk, of which none has a largest size": Wrong(
        {
            **cache(disk_selector=OTHER),
            f"{M}.roles.hgx.volumes": {"data": {"provisioning": {"disk_selector": f"{OTHER} && !system_disk"}}},
            f"{M}.roles.hgx.volumes.data.provisioning.min_size": "1TB",
        },
        f"{M}.roles.hgx.volumes.data.provisioning.disk_selector",
        "fix: name another disk, or give cache and data a max_size",
        {f"{CACHE}.max_size": "2TB", f"{M}.roles.hgx.volumes.data.provisioning.max_size": "2TB"},
    ),
    "a volume that grows, after one without a largest size": Wrong(
        {
            **cache(disk_selector=OTHER, grow=True, max_size="2TB"),
            f"{M}.roles.hgx.volumes": {"data": {"provisioning": {"disk_selector": OTHER, "min_size": "1TB"}}},
        },
        f"{CACHE}.disk_selector",
        "is on the disk of data, which has no max_size and takes all of it",
        {f"{M}.roles.hgx.volumes.data.provisioning.grow": True},
    ),
    "a volume on the disk of an EPHEMERAL of its own": Wrong(
        {**cache(disk_selector=OTHER), EPHEMERAL: {"disk_selector": OTHER}},
        f"{CACHE}.disk_selector",
        "is on the disk of EPHEMERAL, which has no max_size",
        {f"{EPHEMERAL}.max_size": "1TB"},
    ),
    "a volume on no disk": Wrong(
        cache(disk_selector="false"), f"{CACHE}.disk_selector", "matches no disk", {f"{CACHE}.disk_selector": OTHER}
    ),
    "installed on a partition": device("/dev/sda1", "is a partition"),
    "installed on a partition of an NVMe disk": device("/dev/nvme0n1p2", "write /dev/nvme0n1", "/dev/nvme0n1"),
    "installed on a partition by its link": device(
        "/dev/disk/by-id/ata-X-part1", "write /dev/disk/by-id/ata-X", "/dev/disk/by-id/ata-X"
    ),
    "installed on a file": device("/dev/loop0", "no disk that a machine starts from"),
    "installed on a DVD": device("/dev/sr0", "no disk that a machine starts from"),
    "install disk without room": Wrong(
        {f"{W}.install_disk": {"size": "== 0TB"}},
        f"{W}.install_disk.size",
        "a size that no disk has",
        {f"{W}.install_disk": {"size": "<= 2TB"}},
    ),
    "none of a disk": Wrong(
        {EPHEMERAL: {"max_size": "0%"}}, f"{EPHEMERAL}.max_size", "no share of a disk", {EPHEMERAL: {"max_size": "80%"}}
    ),
    "more than a disk": Wrong({EPHEMERAL: {"max_size": "120%"}}, f"{EPHEMERAL}.max_size", "no share of a disk"),
    "least above most": Wrong(
        {EPHEMERAL: {"min_size": "200GiB", "max_size": "100GB"}},
        f"{EPHEMERAL}.max_size",
        "is less than min_size, which is 200GiB",
        {EPHEMERAL: {"min_size": "200GiB", "max_size": "200GiB"}},
    ),
    "no room for images": Wrong(
        {f"{M}.system_volumes.EPHEMERAL.provisioning": {"min_size": "50MiB", "max_size": "100MiB"}},
        f"{M}.system_volumes.EPHEMERAL.provisioning.max_size",
        "leaves no room for images of",
        {f"{M}.system_volumes.EPHEMERAL.provisioning": {"max_size": "200GiB"}},
    ),
    "no room for two engines": Wrong(
        {f"{M}.roles.hgx.system_volumes": {"EPHEMERAL": {"provisioning": {"max_size": "50GB"}}}},
        f"{M}.roles.hgx.system_volumes.EPHEMERAL.provisioning.max_size",
        "leaves no room for images of two releases of an engine",
        {
            f"{W}.system_volumes": {"EPHEMERAL": {"provisioning": {"max_size": "50GB"}}},
            f"{M}.roles.hgx.system_volumes": {},
        },
    ),
    "a disk smaller than its volume": Wrong(
        {f"{D}.longhorn-0.selector": OTHER + " && disk.size < 1u * TB"},
        f"{D}.longhorn-0.selector",
        "takes disks below 1000 GB, and the volume needs 3000 GB",
        {f"{D}.longhorn-0.selector": OTHER + " && disk.size <= 4u * TB"},
    ),
    "sizes that no disk has": Wrong(
        {f"{D}.longhorn-0.selector": OTHER + " && disk.size < 8u * TB && disk.size > 9u * TB"},
        f"{D}.longhorn-0.selector",
        "takes disks below 8000 GB, and the volume needs 9000 GB",
        {f"{D}.longhorn-0.selector": OTHER + " && disk.size < 9u * TB && disk.size > 8u * TB"},
    ),
    "pods on Longhorn's disk": Wrong(
        {EPHEMERAL: {"disk_selector": 'disk.transport == "nvme" && !system_disk'}},
        f"{EPHEMERAL}.disk_selector",
        "selects the disk of Longhorn's longhorn-0",
        {EPHEMERAL: {"disk_selector": "system_disk"}},
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_a_wrong_disk_is_refused_at_its_key_and_the_fix_mends_it(wrong: Wrong) -> None:
    refused_and_fixed(wrong)


RIGHT: dict[str, dict[str, Any]] = {
    "one disk beside the install disk": {D: {"longhorn-0": {"selector": "!system_disk", "min_size": "3TB"}}},
    "Longhorn beside a small EPHEMERAL": {
        D: {"longhorn-0": {"selector": "system_disk", "min_size": "3TB"}},
        EPHEMERAL: {"max_size": "200GiB"},
    },
    "a partition up to a size, and one that takes the rest": {
        **cache(disk_selector=OTHER, max_size="2TB"),
        f"{M}.roles.hgx.volumes": {"data": {"provisioning": {"disk_selector": OTHER, "min_size": "1TB"}}},
    },
    "disks reported apart by their size": {
        f"{D}.longhorn-0.selector": "!system_disk && disk.size > 10u * TB",
        f"{D}.longhorn-1.selector": "!system_disk && disk.size < 10u * TB",
    },
    "a partition beside Longhorn's": cache(disk_selector="!system_disk && disk.rotational", grow=True),
    "what is left of the system disk": {EPHEMERAL: {"min_size": "100GiB", "max_size": "-50GiB"}},
    "two kinds of volume of one name": {
        f"{W}.install_disk": {"model": "BOOT*"},
        f"{W}.volumes": {"data": {"provisioning": {"disk_selector": OTHER, "min_size": "1TB"}}},
        f"{W}.raw_volumes": {"data": {"provisioning": {"disk_selector": OTHER, "min_size": "1TB"}}},
    },
    "a device by its link": {f"{W}.install_disk": {"device": "/dev/disk/by-id/nvme-SAMSUNG_1"}},
}


@pytest.mark.parametrize("change", RIGHT.values(), ids=list(RIGHT))
def test_what_can_work_is_valid(change: dict[str, Any]) -> None:
    assert plan_values(changed(prod(), change), "site.yaml").site


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("true", True),
        ("!(true && false)", True),
        ("system_disk", False),
        ("!system_disk || disk.size > 1u", True),
        ("!system_disk && disk.size > 1u", None),
        (f"disk.bus_path == '{BUS}'", True),
        (f'"{BUS}" != disk.bus_path', False),
        ("!disk.rotational", True),
        ("disk.serial == 'true || false'", None),
        ("disk.rotational ? true : true", None),
        ("glob('/dev/nvme*', disk.dev_path)", None),
    ],
)
def test_a_condition_says_only_what_is_known(selector: str, matches: bool | None) -> None:
    assert evaluate(selector, {"bus_path": BUS, "rotational": "false"}, system_disk=False) is matches


def test_one_condition_has_one_form() -> None:
    assert canonical("disk.a == 'x y' && (disk.b || disk.c)") == canonical('((disk.c||disk.b)&&"x y"==disk.a)')
    assert canonical("disk.a == 'x y'") != canonical("disk.a == 'xy'")
