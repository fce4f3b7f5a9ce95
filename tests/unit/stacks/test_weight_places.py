"""Shared volume or nodes' own disks: the starts from either, what a lost node costs, and which is better."""

from __future__ import annotations

import pytest

from stacks.plan.site_plan import plan_values
from stacks.plan.weight_places import WeightPlaces
from tests.unit.stacks.site_examples import ON_NODES, prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("opening 1", "001.30")


def places(gigabytes: float = 600, replicas: int = 4, **other: float | None) -> WeightPlaces:
    """600 GB: 1,000 s from a volume that gives 0.6 GB/s to all together, 200 s from a disk, 120 s of compilation."""
    rates = {
        "copy_s": 10.0,
        "reads_bytes_per_s": 0.6e9,
        "together_bytes_per_s": 0.6e9,
        "node_bytes_per_s": 3.0e9,
        "download_bytes_per_s": 1.0e9,
    }
    return WeightPlaces(file_bytes=gigabytes * 1e9, replicas=replicas, **(rates | other))  # type: ignore[arg-type]


def test_replicas_share_a_volumes_server_and_no_nodes_disk() -> None:
    of = places()
    assert [of.shared_s(readers) for readers in (1, 2, 4)] == [1120, 2120, 4120]
    assert of.node_s == 320
    # A server faster than its readers gives each of them what one reads.
    assert places(together_bytes_per_s=2.4e9).shared_s(4) == 1120


def test_the_copy_to_the_gpus_counts_where_it_is_longer_than_the_read() -> None:
    assert places(gigabytes=6, copy_s=50.0).node_s == 170


def test_an_empty_machine_downloads_before_it_reads() -> None:
    assert places().empty_node_s == 600 + 320
    assert places(download_bytes_per_s=None).empty_node_s == 320


@pytest.mark.parametrize(
    ("change", "better"),
    [
        ({}, "nodes"),
        # 220 s and 136 s, 1,120 s and 620 s: below twice; 345 s and 165 s: below 300 s.
        ({"gigabytes": 60, "replicas": 1}, "either"),
        ({"replicas": 1, "node_bytes_per_s": 1.2e9}, "either"),
        ({"gigabytes": 135, "replicas": 1}, "either"),
        # 620 s and 1,320 s.
        (
            {"replicas": 1, "reads_bytes_per_s": 1.2e9, "together_bytes_per_s": 1.2e9, "node_bytes_per_s": 0.5e9},
            "shared",
        ),
    ],
    ids=["fast disks", "small model", "slow disks", "little sooner", "slower disks than the volume"],
)
def test_a_place_is_better_by_the_margin_alone(change: dict[str, float], better: str) -> None:
    assert places(**change).better == better  # type: ignore[arg-type]


def test_the_reference_site_shows_what_its_shared_volume_costs() -> None:
    """756 GB for two at 0.6 GB/s, and at 3 GB/s."""
    text = plan_values(prod(), "site.yaml").storage_text
    both = "glm-5-1 756 GB: all 2 start in 2,640 s from the shared volume, at 0.6 GB/s in all, and in 372 s from nodes'"
    assert both in text
    assert "7.1 TIMES AS FAST FROM NODES' OWN DISKS: consider storage.weights.place: nodes" in text
    assert "qwen3-32b 34.3 GB" in text
    assert "neither is better by 2 times and 300 s" in text
    assert "nodes' own disks take 1.74 TB of each of 4 GPU nodes" in text
    assert "one of glm-5-1 starts in 1,380 s; on nodes' own disks in 372 s, on an empty machine in 977 s" in text
    there = plan_values(changed(prod(), ON_NODES), "site.yaml").storage_text
    assert "7.1 times as fast from nodes' own disks, where they are" in there
