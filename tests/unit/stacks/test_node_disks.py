"""Whether each node's own disk holds the weights of all models, and what the source serves to fill them."""

from __future__ import annotations

from typing import Any

import pytest

from floor.problems import SiteError
from stacks.plan.site_plan import SitePlan, plan_values
from tests.unit.stacks.site_examples import ON_NODES, prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("000.21", "000.22", "001.30", "003.09")

VOLUMES = "cluster.machines.roles.hgx.volumes"
VOLUME = f"{VOLUMES}.weights"
SIZE = f"{VOLUME}.provisioning.min_size"
OTHER_DISK = 'disk.serial == "S7XY"'
WHOLE = {"volume_type": "disk", "provisioning": {"disk_selector": OTHER_DISK}}


def site(change: dict[str, Any] | None = None) -> SitePlan:
    return plan_values(changed(changed(prod(), ON_NODES), change or {}), "site.yaml")


def test_the_plan_states_what_each_node_holds_and_what_the_source_serves() -> None:
    assert "\n".join(site().storage_text.splitlines()[:2]) == (
        "weights: fit on each node's own disk: 1.74 TB of 3 TB in /var/mnt/weights, on 4 nodes\n"
        "  source      serves 790 GB to each, 3.16 TB in all: to one node first, then all others at once, each at up "
        "to 1.25 GB/s per model"
    )
    assert site().storage_text in site().texts


def test_longhorn_counts_no_weights_that_nodes_have() -> None:
    """Disks that could not hold the weights are enough for what else is stored."""
    small = {f"cluster.machines.hgx.storage.disks.longhorn-{number}.min_size": "300GB" for number in (0, 1)}
    assert site(small)
    with pytest.raises(SiteError, match="cannot hold 2 copies of glm-5-1"):
        plan_values(changed(prod(), small), "site.yaml")
    assert site().weight_bytes == {}


@pytest.mark.parametrize(
    ("change", "what", "fix", "fixed"),
    [
        (
            {VOLUMES: {}},
            "is no volume of hgx-1, hgx-2, hgx-3, hgx-4",
            f"add {VOLUME}: {{provisioning: ",
            {VOLUMES: {"weights": ON_NODES[VOLUMES]["weights"]}},
        ),
        (
            {SIZE: "100GB"},
            "has no room on hgx-1, hgx-2, hgx-3, hgx-4 for glm-5-1, qwen3-32b",
            "write min_size: 1739GB or more for the volume weights",
            {SIZE: "1739GB"},
        ),
        (
            {SIZE: None, SIZE.replace("min", "max"): "4TB"},
            "min_size of the volume weights: none",
            "write min_size: 1739GB or more",
            {SIZE: "1739GB", SIZE.replace("min", "max"): "4TB"},
        ),
        (
            {VOLUME: WHOLE},
            "disk.size in disk_selector of the volume weights: none",
            "add `&& disk.size >= 1739u * GB` to disk_selector for the volume weights",
            {VOLUME: {**WHOLE, "provisioning": {"disk_selector": OTHER_DISK + " && disk.size >= 1739u * GB"}}},
        ),
        (
            {"storage.weights.revisions": 4},
            "each with 4 revisions",
            "or lower storage.weights.revisions from 4",
            {"storage.weights.revisions": 3},
        ),
        (
            {VOLUME: {"volume_type": "directory"}},
            "is a folder on the disk of pods and images of hgx-1",
            "write it like weights: {provisioning: {disk_selector",
            {VOLUME: ON_NODES[VOLUMES]["weights"]},
        ),
        (
            {"storage.weights.node_path": "/srv/weights"},
            "is not where Talos mounts a volume",
            f"write /var/mnt/weights, and add {VOLUME}",
            {"storage.weights.node_path": "/var/mnt/weights"},
        ),
        (
            {"cluster.machines.nodes.hgx-3.volumes": {"weights": {"provisioning": {"min_size": "1TB"}}}},
            "has no room on hgx-3 for",
            "write min_size: 1739GB or more",
            {"cluster.machines.nodes.hgx-3.volumes": {}},
        ),
    ],
)
def test_a_disk_that_is_missing_or_too_small_is_refused_with_a_fix_that_works(
    change: dict[str, Any], what: str, fix: str, fixed: dict[str, Any]
) -> None:
    with pytest.raises(SiteError) as refused:
        site(change)
    (problem,) = refused.value.problems
    assert problem.key == "storage.weights.node_path"
    assert what in str(refused.value)
    assert fix in problem.fix
    assert site({**change, **fixed}).storage_text


def test_of_many_nodes_the_first_three_are_named() -> None:
    more = {
        f"cluster.machines.nodes.hgx-{number}": {**prod()["cluster"]["machines"]["nodes"]["hgx-4"], **own}
        for number, own in ((5, {"address": "10.5.0.125"}), (6, {"address": "10.5.0.126"}))
    }
    with pytest.raises(SiteError) as refused:
        site({**more, SIZE: "100GB"})
    assert "has no room on hgx-1, hgx-2, hgx-3 and 3 more for" in str(refused.value)


def test_all_that_is_wrong_with_disks_comes_at_once() -> None:
    change = {
        "cluster.machines.nodes.hgx-3.volumes": {"weights": {"provisioning": {"min_size": "1TB"}}},
        "cluster.machines.nodes.hgx-2.volumes": {"weights": {"volume_type": "directory", "provisioning": None}},
    }
    with pytest.raises(SiteError) as refused:
        site(change)
    assert [problem.what.partition(" of hgx")[0].partition(" for ")[0] for problem in refused.value.problems] == [
        "is a folder on the disk of pods and images",
        "has no room on hgx-3",
    ]


@pytest.mark.parametrize(
    ("change", "says", "fixed"),
    [
        ({"storage.weights.revisions": 1}, "revisions is too small for place nodes", {"storage.weights.revisions": 2}),
        (
            {"storage.weights.place": "shared", "storage.weights.node_path": "/var/mnt/weights"},
            "node_path is set, and place shared reads nothing of it",
            {"storage.weights.place": "nodes"},
        ),
        (
            {"storage.weights.node_path": "/a/b/c/d/e/f/g/h/i"},
            "node_path is no folder of a node",
            {"storage.weights.node_path": "/var/mnt/weights"},
        ),
        (
            {"storage.weights.node_path": "/var/lib/kubelet/weights"},
            "node_path is a folder of the system",
            {"storage.weights.node_path": "/var/mnt/weights"},
        ),
        (
            {"storage.weights.node_path": "/etc"},
            "node_path is a folder of the system",
            {"storage.weights.node_path": "/var/mnt/weights"},
        ),
        (
            {"storage.weights.node_path": "/var/mnt/../etc"},
            "node_path is no folder of a node",
            {"storage.weights.node_path": "/var/mnt/weights"},
        ),
        (
            {"storage.weights.node_path": f"/var/mnt/{'w' * 56}"},
            "allowed: up to 64 characters",
            {"storage.weights.node_path": "/var/mnt/weights"},
        ),
    ],
)
def test_keys_that_do_not_go_together_are_refused(change: dict[str, Any], says: str, fixed: dict[str, Any]) -> None:
    with pytest.raises(SiteError, match=says) as refused:
        site(change)
    assert [problem.key for problem in refused.value.problems] == ["storage.weights"]
    assert site({**change, **fixed})


def test_a_cluster_that_exists_shows_what_each_node_must_hold() -> None:
    text = site({"cluster": {"kubeconfig": "kubeconfig"}, "addresses": {}}).storage_text
    assert text.startswith("weights: on each node's own disk. Each GPU node needs 1.74 TB free in /var/mnt/weights")
    assert "the source serves 790 GB to each, to one node first" in text


def test_many_nodes_that_download_from_the_hub_are_a_warning() -> None:
    hub = {"storage.weights.source": "hub", "storage.weights.mirror": None, "storage.weights.ca_config_map": None}
    (warning,) = [entry for entry in site(hub).warnings if entry.key == "storage.weights.source"]
    assert "each of 4 nodes downloads 790 GB from it: 3.16 TB in all" in warning.what
    assert not [entry for entry in site().warnings if entry.key == "storage.weights.source"]
    shared = plan_values(changed(prod(), hub), "site.yaml")
    assert not [entry for entry in shared.warnings if entry.key == "storage.weights.source"]


def test_the_first_start_on_several_nodes_comes_after_two_downloads() -> None:
    def first(plan: SitePlan) -> float:
        cold = plan.models["glm-5-1"].stable.proof.cold_start
        return (cold["first_start"].value - cold["cold_start_together"].value) / cold["download_weights"].value

    others: dict[str, Any] = {f"cluster.machines.nodes.hgx-{number}": None for number in (2, 3, 4)}
    single = {**others, "models.qwen3-32b": None, "models.glm-5-1.server.replicas": 1}
    single |= {"storage.longhorn.weight_replicas": 1, "monitoring.copies": 1}
    single["tenants"] = {"a": {"models": ["glm-5-1"], "keys": {"laptop": {}}}}
    assert first(site()) == pytest.approx(2)
    assert first(site(single)) == pytest.approx(1)
    assert first(plan_values(prod(), "site.yaml")) == pytest.approx(1)
    assert "of it 605 s downloading to one node, and then as long to the others" in "\n".join(site().texts)


def test_a_filled_disk_asks_no_source() -> None:
    filled = {"storage.weights": {"place": "nodes", "source": "volume", "revisions": 2}}
    assert "source" not in site(filled).storage_text
    assert not [entry for entry in site(filled).warnings if entry.key == "storage.weights.source"]
    text = site({**filled, "cluster": {"kubeconfig": "kubeconfig"}, "addresses": {}}).storage_text
    assert text.splitlines()[0].endswith("in /var/mnt/weights, a folder that you make")


def test_a_whole_disk_is_as_large_as_its_selector_requires() -> None:
    def selects(size: str) -> SitePlan:
        return site({VOLUME: {**WHOLE, "provisioning": {"disk_selector": f"{OTHER_DISK} {size}"}}})

    assert "1.74 TB of 2 TB" in selects("&& disk.size >= 2u * TB").storage_text
    with pytest.raises(SiteError, match="so that any size will do"):
        selects("|| disk.size >= 2u * TB")


def test_a_dead_node_needs_no_room_and_is_served_nothing() -> None:
    change = {
        "cluster.machines.nodes.hgx-4.dead": True,
        "cluster.machines.nodes.hgx-4.volumes": {"weights": {"provisioning": {"min_size": "1GB"}}},
    }
    assert "on 3 nodes" in site(change).storage_text


def test_a_node_that_replicas_do_not_tolerate_needs_no_room() -> None:
    change = {
        "cluster.machines.nodes.hgx-4.taints": {"own": "yes:NoSchedule"},
        "cluster.machines.nodes.hgx-4.volumes": {"weights": {"provisioning": {"min_size": "1GB"}}},
        "models.qwen3-32b.server.replicas": 2,
    }
    assert "on 3 nodes" in site(change).storage_text


@pytest.mark.parametrize("path", ["/var/lib/weights", "/srv/weights", "/data", "/mnt/nvme/weights", "/etcd-free"])
def test_a_cluster_of_others_may_have_its_folder_beside_those_of_the_system(path: str) -> None:
    cluster = {"cluster": {"kubeconfig": "kubeconfig"}, "addresses": {}}
    assert path in site({**cluster, "storage.weights.node_path": path}).storage_text


@pytest.mark.parametrize("rate", [2.0e9, 1.0e9], ids=["more than one reads", "less"])
def test_the_rate_of_a_shared_volume_is_refused_where_there_is_none(rate: float) -> None:
    """Whatever it is: to raise it would not help."""
    with pytest.raises(SiteError) as refused:
        site({"storage.shared_read_bytes_per_s": rate})
    (problem,) = refused.value.problems
    assert ".".join(map(str, problem.path)) == "storage"
    assert problem.what == "shared_read_bytes_per_s is set, and with weights.place nodes no volume is shared"
