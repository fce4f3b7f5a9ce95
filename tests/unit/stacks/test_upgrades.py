"""Steps between two sets of versions: after each the parts go together, and unsupported ones are refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from floor.problems import Problem, SiteError
from floor.releases import between
from stacks.facts import upgrades, versions
from stacks.facts.compatibility import Fact, Row, speaking
from stacks.plan import conflicts
from stacks.plan.site_plan import plan_file
from stacks.plan.upgrades import Step, steps, steps_of

pytestmark = pytest.mark.row("opening 7")

ROOT = Path(__file__).parents[3]
PROD = plan_file(ROOT / "Pulumi.prod.yaml")
NOW: dict[str, Fact] = conflicts.facts(versions.load(), PROD.site)
OLD_DRIVERS: dict[str, Fact] = {
    "nvidia_production_driver": "595.71.05",
    "nvidia_production_fabric_manager": "595.71.05",
    "nvidia_lts_driver": "580.173.02",
    "nvidia_lts_fabric_manager": "580.173.02",
}
# A site a release behind: each part by itself would end in a set that a row forbids.
OLD: dict[str, Fact] = {
    "talos": "1.13.7",
    **OLD_DRIVERS,
    "kubernetes": "1.35.2",
    "kubelet": "1.35.2",
    "cilium": "1.19.4",
    "envoy_gateway": "1.8.3",
    "envoy_gateway_crds": "1.8.3",
    "gateway_api_crds": "1.5.1",
    "envoy": "1.38.3",
    "vllm": "0.31.0",
}


def path(runs: dict[str, Fact], wanted: dict[str, Fact] | None = None) -> list[Step]:
    path_found, problems = steps(NOW | runs, NOW | (wanted or {}))
    assert problems == []
    return path_found


def refused(runs: dict[str, Fact], wanted: dict[str, Fact] | None = None) -> list[Problem]:
    path_found, problems = steps(NOW | runs, NOW | (wanted or {}))
    assert path_found == []
    return problems


def named(path_found: list[Step]) -> list[str]:
    return [" + ".join(part.part for part in step.parts) for step in path_found]


def test_nothing_to_do_has_no_steps() -> None:
    assert path({}) == []


def test_parts_go_from_the_bottom_up_but_where_a_row_forces_another_order() -> None:
    """Envoy Gateway 1.8 runs on Kubernetes up to 1.35, so the gateway goes before it."""
    assert named(path(OLD)) == [
        "Talos",
        "Cilium",
        "Envoy Gateway with its CRDs and Gateway API",
        "Kubernetes API servers",
        "kubelets",
        "vLLM",
    ]


def test_after_each_step_the_parts_go_together() -> None:
    state = NOW | OLD
    tolerated = {row.id for row, _ in speaking(state)}
    for step in path(OLD):
        state |= {fact: then for fact, (_, then) in step.changes.items()}
        assert {row.id for row, _ in speaking(state)} <= tolerated
    assert state == NOW


def test_driver_and_fabric_manager_move_with_talos_in_one_step() -> None:
    """siderolabs/pkgs#720: a fabric manager refuses a driver of another version."""
    (step,) = path({"talos": "1.13.7", **OLD_DRIVERS})
    assert set(step.changes) == {"talos", *OLD_DRIVERS}
    assert step.pins[0] == "talos"


def test_the_way_leads_past_the_talos_that_attaches_no_volume() -> None:
    """siderolabs/talos#14000: 1.13.8 rejects the iSCSI records of earlier versions; 1.13.9 reads them."""
    old: dict[str, Fact] = {"talos": "1.13.7", **OLD_DRIVERS}
    (step,) = path(old)
    assert step.changes["talos"] == ("1.13.7", "1.13.9")
    assert "talos-iscsi-records" in {row.id for row, _ in speaking(NOW | old | {"talos": "1.13.8"})}
    assert "talos-iscsi-records" not in {row.id for row, _ in speaking(NOW | old)}


def test_a_patch_of_kubernetes_is_one_step_and_a_minor_version_two() -> None:
    assert named(path({"kubernetes": "1.36.1", "kubelet": "1.36.1"})) == ["Kubernetes"]
    assert named(path({"kubernetes": "1.35.2", "kubelet": "1.35.2"})) == ["Kubernetes API servers", "kubelets"]
    assert named(path({"kubelet": "1.35.2"})) == ["kubelets"], "between the two halves"


@pytest.mark.parametrize(
    ("fact", "now", "then", "between_them"),
    [
        ("talos", "1.11.4", "1.13.9", "v1.12"),
        ("kubernetes", "1.33.1", "1.36.3", "v1.34"),
        ("cilium", "1.17.9", "1.20.2", "v1.18"),
        ("cilium", "1.20.2", "1.18.1", "v1.19"),
    ],
)
def test_a_step_over_a_minor_version_is_refused_with_the_one_in_between(
    fact: str, now: str, then: str, between_them: str
) -> None:
    problem = next(problem for problem in refused({fact: now}, {fact: then}) if problem.got == f"{now} to {then}")
    assert problem.allowed == "one minor version at a time"
    assert f"the newest {between_them} first" in problem.fix


def test_kubernetes_goes_back_within_its_minor_version_alone() -> None:
    (problem,) = refused({}, {"kubernetes": "1.35.2"})
    assert "no way back" in problem.what
    assert "snapshot" in problem.fix
    assert named(path({}, {"kubernetes": "1.36.1", "kubelet": "1.36.1"})) == ["Kubernetes"]


def test_definitions_without_the_stored_version_are_refused() -> None:
    """envoyproxy/ai-gateway#1903, #2091: from 0.6 on, routes are stored as v1beta1, which older definitions lack."""
    older: dict[str, Fact] = {"ai_gateway": "0.5.0", "ai_gateway_crds": "0.5.0"}
    newer: dict[str, Fact] = {"ai_gateway": "0.6.0", "ai_gateway_crds": "0.6.0"}
    (problem,) = refused(newer, older)
    assert problem.path == ("crd_versions", "ai-gateway", "json")
    assert "v1beta1" in problem.what
    (step,) = path(older, newer)
    assert step.way_back == [f"AI gateway with its CRDs: none: {problem.what}"]


def test_what_prometheus_3_has_written_is_not_given_to_an_older_one() -> None:
    """prometheus/prometheus v3.12.0 docs/migration.md: 2.55 is the oldest that can read it."""
    (problem,) = refused({}, {"prometheus": "2.54.1"})
    assert problem.path == ("images", "prometheus")
    assert named(path({}, {"prometheus": "2.55.1"})) == ["Prometheus"]


def test_pools_of_the_alpha_are_deleted_by_hand_first() -> None:
    """kubernetes-sigs/gateway-api-inference-extension#1541."""
    (step,) = path({"inference_extension_crds": "0.5.1"})
    assert [row.id for row in step.by_hand] == ["inference-pool-from-alpha"]
    assert path({"inference_extension_crds": "1.4.0"})[0].by_hand == ()


def test_parts_that_fit_in_no_order_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row(
        id="picker-and-engine",
        verdict="illegal",
        when={"vllm": "==0.31.0"},
        text="an old engine with a new picker, or the other way round",
        fix="move both",
        source="a case of this test",
    )

    def apart(known: Mapping[str, Fact]) -> list[tuple[Row, list[str]]]:
        return [(row, [])] if (known["vllm"] == "0.31.0") != (known["picker"] == "1.4.0") else []

    monkeypatch.setattr("stacks.plan.upgrades.speaking", apart)
    path_found = path({"vllm": "0.31.0", "picker": "1.4.0", "cilium": "1.19.4"})
    assert named(path_found) == ["Cilium", "endpoint picker + vLLM"]
    assert set(path_found[1].changes) == {"vllm", "picker"}
    assert len(path_found[1].way_back) == 2


def test_a_cluster_that_exists_has_its_own_machines() -> None:
    old = versions.load().model_copy(update={"talos": "v1.11.2", "kubernetes": "v1.33.0"})
    lab = plan_file(ROOT / "Pulumi.lab.yaml").site
    existing = PROD.site.model_copy(update={"cluster": lab.cluster.model_copy(update={"machines": None})})
    assert steps_of(existing, old, versions.load()) == ([], [])
    assert len(steps_of(PROD.site, old, versions.load())[1]) == 3


def test_how_far_a_step_goes_back() -> None:
    old: dict[str, Fact] = OLD | {"longhorn": "1.11.2", "ledger": "0.0.1"}
    back = {part: text for step in path(old) for part, _, text in (row.partition(": ") for row in step.way_back)}
    assert back["Talos"] == "set 1.13.7 again and run `pulumi up`"
    assert back["Kubernetes API servers"].startswith("none below v1.36; only the cluster's snapshot leads back to")
    assert not [part for part, text in back.items() if "snapshot" in text and part != "Kubernetes API servers"]
    assert back["Longhorn"] == "none, not even to 1.11.2"
    assert back["ledger"].endswith("(docs/how-to/usage-and-bills.md); then set 0.0.1 again and run `pulumi up`")
    assert back["vLLM"] == "set 0.31.0 again and run `pulumi up`"


def pinned_versions() -> list[str]:
    """Keys of versions.yaml that name a version, and not where something is published or what it is by content."""

    def below(section: dict[str, Any], path: tuple[str, ...]) -> list[str]:
        leaves = []
        for key, value in section.items():
            where = (*path, key)
            if where[0] in ("crds", "crd_sources") or key in ("chart", "repository") or key.startswith("manifest"):
                continue
            leaves += below(value, where) if isinstance(value, dict) else [".".join(("versions", *where))]
        return leaves

    return below(yaml.safe_load(versions.FILE.read_text()), ())


# What `sitectl split` prints alone, and what own images are built by and on.
NOT_RUN = {"versions.images.split_picker", "versions.images.split_sidecar", "versions.images.python", "versions.go"}


def test_every_pin_is_a_fact_and_has_a_part() -> None:
    """From the file of pins, not from the facts: a pin that no fact knows would move without a step."""
    ruled = {fact for part in upgrades.load().parts for fact in part.facts}
    assert ruled <= set(conflicts.deciding_keys())
    keys = {conflicts.deciding_keys()[fact] for fact in ruled}
    # A run of talos-backup lasts a minute and keeps nothing, so its version waits for no other part.
    assert set(pinned_versions()) - keys == {"versions.images.talos_backup", *NOT_RUN}
    assert keys - set(pinned_versions()) == {"versions.kubelet"}, "which the file has between two halves alone"
    assert {f"versions.charts.{chart}.version" for chart in versions.load().charts} <= keys
    assert {row.fact for row in upgrades.load().crossings} <= ruled


def test_minor_versions_in_between() -> None:
    assert between("v1.11.3", "v1.13.9") == "v1.12"
    assert between("v1.13.9", "v1.10.0") == "v1.12"
    yearly = ("25.3", "25.10", "26.3", "26.7")
    assert between("25.3.4", "26.7.1", yearly) == "v25.10"
    assert between("v26.7.1", "v25.3.4", yearly) == "v26.3"
    assert [between("25.10.1", "26.3.1", yearly), between("26.3.1", "25.10.1", yearly)] == ["", ""]
    assert [between("v1.12.9", "v1.13.0"), between("v1.13.9", "v1.13.0"), between("v1.36.0", "v2.0.0")] == ["", "", ""]


def document(**changes: Any) -> str:
    return yaml.safe_dump(yaml.safe_load(versions.FILE.read_text()) | changes)


def test_pins_of_another_revision_are_read_with_what_it_did_not_know() -> None:
    pins = versions.load()
    old = yaml.safe_load(document(talos="v1.13.7", gone={"a": 1}))
    del old["cilium"], old["images"]["vllm"]
    read = versions.of_text(yaml.safe_dump(old), "old", pins)
    assert (read.talos, read.cilium, read.images.vllm) == ("v1.13.7", pins.cilium, pins.images.vllm)
    assert versions.of_text(document(kubelet="v1.35.2"), "old", pins).kubelet == "v1.35.2"
    halfway = pins.model_copy(update={"kubelet": "v1.35.2"})
    assert versions.of_text(document(), "old", halfway).kubelet is None


@pytest.mark.parametrize("text", ["talos: [", "talos: latest", "nvidia: 3"])
def test_pins_that_cannot_be_read_are_an_error_with_the_files_name(text: str) -> None:
    with pytest.raises(SiteError, match="versions at v1"):
        versions.of_text(text, "versions at v1", versions.load())
