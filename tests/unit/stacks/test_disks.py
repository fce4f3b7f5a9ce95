"""Whether the disks of a site hold all weights with their copies, and what a lost node leaves."""

from __future__ import annotations

import random
from typing import Any

import pytest

from floor.problems import SiteError
from stacks.plan.disks import Disk, StoredVolume, describe_storage, disks_of, monitoring_volumes, store
from stacks.plan.site_plan import SitePlan, plan_values
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("000.20", "000.21", "000.22", "002.12")

DISKS = "cluster.machines.hgx.storage.disks"
GB = 1e9


def disks(*sizes_gb: float, nodes: int = 2) -> list[Disk]:
    """On each of the nodes, disks of these sizes."""
    return [
        Disk(node=f"n{node}", name=f"d{number}", size_bytes=size * GB)
        for node in range(nodes)
        for number, size in enumerate(sizes_gb)
    ]


def volumes(*sizes_gb: float, copies: int = 2) -> list[StoredVolume]:
    return [
        StoredVolume(name=f"m{number}", size_bytes=size * GB, copies=copies) for number, size in enumerate(sizes_gb)
    ]


def prod_with(**changes: Any) -> SitePlan:
    return plan_values(changed(prod(), {key.replace("__", "."): value for key, value in changes.items()}), "site.yaml")


@pytest.mark.parametrize(
    ("there", "wanted", "fits"),
    [
        # 75 % of a disk: Longhorn places nothing where less than a quarter is left.
        (disks(1000), volumes(750), True),
        (disks(1000), volumes(751), False),
        # One copy is on one disk, however many there are.
        (disks(500, 500, 500), volumes(750), False),
        # The copies of a volume are on nodes of their own.
        (disks(4000, nodes=1), volumes(100), False),
        (disks(4000, nodes=2), volumes(100, copies=3), False),
        (disks(4000, nodes=3), volumes(100, copies=3), True),
        # Nominal sizes count, without over-provisioning.
        (disks(1000), volumes(400, 350), True),
        (disks(1000), volumes(400, 351), False),
        (disks(1000, 1000), volumes(700, 700), True),
        # The large one first, else the small one would take its disk.
        (disks(100, 1000), volumes(50, 750), True),
    ],
)
def test_copies_find_room_as_longhorn_gives_it(there: list[Disk], wanted: list[StoredVolume], fits: bool) -> None:
    assert (not store(there, wanted).unplaced) == fits


def test_what_is_reserved_is_not_given_away() -> None:
    """The quarter that stays free is not taken twice."""
    for reserved, usable in ((0, 750), (100, 750), (250, 750), (400, 600)):
        disk = Disk(node="n", name="d", size_bytes=1000 * GB, reserved_bytes=reserved * GB)
        assert disk.usable_bytes == usable * GB


def test_no_disk_is_ever_given_more_than_it_has() -> None:
    random_numbers = random.Random(7)  # noqa: S311 - the same each time
    for _ in range(200):
        there = disks(*(random_numbers.randint(1, 40) * 100 for _ in range(3)), nodes=random_numbers.randint(1, 5))
        sizes = [random_numbers.randint(1, 15) * 100 for _ in range(random_numbers.randint(0, 9))]
        copies = random_numbers.randint(1, 3)
        wanted = volumes(*sizes, copies=copies)
        stored = store(there, wanted)
        assert min(stored.free_bytes.values()) >= 0
        taken = sum(disk.usable_bytes for disk in there) - sum(stored.free_bytes.values())
        whole = sum(volume.size_bytes for volume in wanted if volume not in stored.unplaced) * copies
        assert taken >= whole - 1
        assert (taken <= whole + 1) or stored.unplaced
        assert store(there, list(reversed(wanted))) == stored


def test_the_reference_site_stores_all_weights_twice() -> None:
    text = prod_with().storage_text
    assert text.splitlines()[0] == (
        "storage: fits, the weights of each model outlive any one node. 2 copies of all weights take 3.48 TB of "
        "18 TB on 8 disks on 4 nodes"
    )
    assert "glm-5-1 1.66 TB, qwen3-32b 76.2 GB" in text
    assert "Longhorn makes its copies again on the others" in text


def test_volumes_of_monitoring_take_their_room() -> None:
    text = prod_with(monitoring__volume_gib=500).storage_text
    assert "2 x prometheus 537 GB, 2 x alertmanager 1.07 GB; 2 copies of each" in text
    assert "prometheus" not in prod_with(monitoring={"system": "none"}).storage_text


@pytest.mark.parametrize(
    ("monitoring", "copies"),
    [
        ({"monitoring__storage_class": "longhorn-scratch"}, 2),
        ({"storage__longhorn": {"weight_replicas": 1}}, 1),
        ({"monitoring__storage_class": "longhorn"}, 2),
        ({"monitoring__storage_class": "longhorn-databases"}, 1),
        ({"monitoring__storage_class": "ceph"}, None),
        ({"monitoring": {"system": "external", "scraper_namespace": "monitoring"}}, None),
    ],
)
def test_volumes_of_monitoring_have_the_copies_of_their_class(monitoring: dict[str, Any], copies: int | None) -> None:
    assert {volume.copies for volume in monitoring_volumes(prod_with(**monitoring).site)} == (
        {copies} if copies else set()
    )


def test_a_prometheus_that_fits_no_disk_is_refused_with_a_fix_that_works() -> None:
    large = {"monitoring.volume_gib": 4_000}
    with pytest.raises(
        SiteError, match=r"2 copies of prometheus-0, prometheus-1: the volume of prometheus-0 takes 4\.29 TB"
    ):
        plan_values(changed(prod(), large), "site.yaml")
    larger = {f"{DISKS}.longhorn-{number}.min_size": "6TB" for number in range(2)}
    assert plan_values(changed(prod(), large | larger), "site.yaml").storage_text


def test_a_prometheus_that_alone_is_too_large_is_refused_at_its_size_with_the_largest_that_fits() -> None:
    with pytest.raises(SiteError) as caught:
        plan_values(changed(prod(), {"monitoring.volume_gib": 4_000}), "site.yaml")
    (problem,) = caught.value.problems
    assert problem.key == "monitoring.volume_gib"
    # No node more has a larger disk.
    assert problem.fix == (
        "lower monitoring.volume_gib from 4000 to 2095; or take disks of 6TB or more, and write it as min_size of each"
    )
    assert prod_with(monitoring__volume_gib=2095)
    with pytest.raises(SiteError, match=r"lower monitoring\.volume_gib from 2096 to 2095"):
        prod_with(monitoring__volume_gib=2096)


def test_fewer_copies_of_weights_are_fewer_of_what_monitoring_keeps_in_their_class() -> None:
    change = {"monitoring.storage_class": "longhorn", "storage.longhorn.weight_replicas": 5}
    with pytest.raises(
        SiteError, match=r"lower storage\.longhorn\.weight_replicas from 5 to 4; or add nodes of role hgx"
    ):
        plan_values(changed(prod(), change), "site.yaml")
    change["storage.longhorn.weight_replicas"] = 4
    assert plan_values(changed(prod(), change), "site.yaml").storage_text


def test_what_monitoring_keeps_is_counted_on_a_site_without_models() -> None:
    none: dict[str, Any] = {"models": {}, "tenants": {}}
    with pytest.raises(SiteError, match=r"lower monitoring\.volume_gib from 4000 to 2095"):
        plan_values(changed(prod(), {**none, "monitoring.volume_gib": 4_000}), "site.yaml")
    assert plan_values(changed(prod(), none), "site.yaml").storage_text == ""


def test_one_copy_is_shown_as_what_it_is() -> None:
    assert "A LOST NODE TAKES WEIGHTS ALONG" in prod_with(storage__longhorn__weight_replicas=1).storage_text


def test_copies_that_are_not_made_again_are_named() -> None:
    assert "a copy less until it is back" in prod_with(storage__longhorn__weight_replicas=4).storage_text


@pytest.mark.parametrize(
    ("change", "what", "fix", "fixed"),
    [
        (
            {f"{DISKS}.longhorn-0.min_size": "1TB", f"{DISKS}.longhorn-1.min_size": "1TB"},
            "the volume of glm-5-1 takes 1.66 TB of one disk, on 2 nodes",
            "take disks of 3TB or more, and write it as min_size of each",
            {f"{DISKS}.longhorn-0.min_size": "3TB", f"{DISKS}.longhorn-1.min_size": "3TB"},
        ),
        (
            {"storage.longhorn.weight_replicas": 5},
            "cannot hold 5 copies of glm-5-1, qwen3-32b",
            "lower storage.longhorn.weight_replicas from 5 to 4; or add nodes of role hgx",
            {"storage.longhorn.weight_replicas": 4},
        ),
        (
            {f"{DISKS}.longhorn-0.reserved_bytes": 2_400_000_000_000, f"{DISKS}.longhorn-1.min_size": "1TB"},
            "got 8 disks on 4 nodes, 750 GB usable on the largest",
            "take disks of 3TB or more",
            {f"{DISKS}.longhorn-1.min_size": "3TB"},
        ),
    ],
)
def test_disks_that_are_too_small_are_refused_with_a_fix_that_works(
    change: dict[str, Any], what: str, fix: str, fixed: dict[str, Any]
) -> None:
    with pytest.raises(SiteError) as caught:
        plan_values(changed(prod(), change), "site.yaml")
    [problem] = caught.value.problems
    assert problem.key == DISKS
    assert what in str(caught.value)
    assert fix in problem.fix
    assert plan_values(changed(changed(prod(), change), fixed), "site.yaml").storage_text


def test_revisions_that_have_room_in_a_volume_count() -> None:
    """The proof and the claim are of one size: three revisions of 756 GB fit no disk of 3 TB."""
    assert prod_with(storage__weights__revisions=1).weight_bytes["glm-5-1"] * 2 == prod_with().weight_bytes["glm-5-1"]
    with pytest.raises(SiteError, match="cannot hold 2 copies of glm-5-1"):
        prod_with(storage__weights__revisions=3)


def test_a_volume_of_one_copy_that_a_lost_node_takes_along_is_not_made_again() -> None:
    """Of four large disks, three hold copies of weights and one all of Prometheus."""
    change = {
        "storage.longhorn.weight_replicas": 3,
        "monitoring.storage_class": "longhorn-databases",
        "monitoring.volume_gib": 2_000,
        "monitoring.copies": 1,
        f"{DISKS}.longhorn-1.min_size": "1TB",
    }
    text = plan_values(changed(prod(), change), "site.yaml").storage_text
    assert "lost node   Longhorn makes its copies again on the others" in text


def test_dead_nodes_store_nothing() -> None:
    site = prod_with(**{"cluster__machines__nodes__hgx-4__dead": True}).site
    assert {disk.node for disk in disks_of(site) or ()} == {"hgx-1", "hgx-2", "hgx-3"}


def test_a_site_that_takes_a_dead_node_out_is_not_refused_before_it_has() -> None:
    dead = {"cluster.machines.nodes.hgx-4.dead": True, "storage.longhorn.weight_replicas": 4}
    assert "DOES NOT FIT" in plan_values(changed(prod(), dead), "site.yaml").storage_text


def test_settings_of_a_longhorn_that_is_not_installed_are_refused() -> None:
    with pytest.raises(SiteError, match=r"storage: longhorn is set, and system external reads nothing of it"):
        prod_with(storage__system="external")


def test_longhorn_without_a_disk_is_refused() -> None:
    values = prod()
    del values["cluster"]["machines"]["hgx"]["storage"]
    with pytest.raises(SiteError) as caught:
        plan_values(values, "site.yaml")
    assert [problem.key for problem in caught.value.problems] == ["storage.system"]
    assert plan_values(changed(values, {"storage.system": "external", "storage.longhorn": None}), "site.yaml")


def test_storage_of_others_is_not_judged() -> None:
    """Nobody knows where it stores what."""
    small = {f"{DISKS}.longhorn-0.min_size": "10GB", "storage.system": "external", "storage.longhorn": None}
    plan = plan_values(changed(prod(), small), "site.yaml")
    assert plan.storage_text == ""
    assert [text.partition(":")[0] for text in plan.texts[len(plan.site.models) :]] == ["placement", "gateway"]


def test_an_existing_cluster_shows_what_its_disks_must_hold() -> None:
    values = changed(prod(), {"cluster": {"kubeconfig": "kubeconfig"}, "addresses": {}})
    plan = plan_values(values, "site.yaml")
    assert describe_storage(plan.site, plan.weight_bytes) == (
        "storage: unknown, as cluster.kubeconfig does not list the nodes. 2 copies of all weights take 3.48 TB"
    )
