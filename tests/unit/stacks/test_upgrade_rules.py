"""The rule of each part, against what its publisher writes: read there by hand, and not from upgrades.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from stacks.facts import upgrades, versions
from stacks.facts.compatibility import Fact
from stacks.facts.upgrades import UpgradedPart
from stacks.plan import conflicts
from stacks.plan.site_plan import plan_file
from stacks.plan.upgrades import steps

pytestmark = pytest.mark.row("opening 7")

ROOT = Path(__file__).parents[3]
PROD = plan_file(ROOT / "Pulumi.prod.yaml")
NOW: dict[str, Fact] = conflicts.facts(versions.load(), PROD.site)


class Rule(NamedTuple):
    """What the publisher's page gives for one part."""

    source: str
    legal: tuple[str, str]
    """A step that it supports."""
    jump: tuple[str, str]
    """Two versions that are further apart."""
    between: str
    """The version that the jump leaves out; empty where the publisher has no rule."""
    back: str
    """Back from the end of the legal step: any, or the first words of what is refused."""


MINOR, NO_WAY, NEVER = "leaves out a minor version", "no way back to an older minor version", "there is no way back"
RULES: dict[str, Rule] = {
    # docs.siderolabs.com/talos/v1.13, upgrading-talos, "Supported upgrade paths": 1.a to 1.b over each minor version.
    "Talos": Rule("upgrading-talos", ("1.12.7", "1.13.9"), ("1.11.4", "1.13.9"), "v1.12", "any"),
    # kubernetes.io/releases/version-skew-policy: upgrades of kube-apiserver skip no minor version, and kubelets follow.
    "Kubernetes API servers": Rule("skew-policy", ("1.35.2", "1.36.3"), ("1.34.1", "1.36.3"), "v1.35", NO_WAY),
    "kubelets": Rule("skew-policy", ("1.35.2", "1.36.3"), ("1.34.1", "1.36.3"), "v1.35", "any"),
    # upgrade-warning.rst: "The only tested rollback and upgrade path is between consecutive minor releases".
    "Cilium": Rule("upgrade-warning", ("1.19.4", "1.20.2"), ("1.18.9", "1.20.2"), "v1.19", "any"),
    # life-cycle-policy.rst: YY.MM is the major version; "within a major release or to the next major release".
    "GPU operator": Rule("life-cycle-policy", ("26.3.1", "26.7.1"), ("25.10.1", "26.7.1"), "v26.3", NO_WAY),
    # README.md: "If you have a version of Kubernetes >= 1.10 you can deploy any device plugin version > v0.0.0".
    "device plugin with GPU feature discovery": Rule("README", ("0.19.3", "0.20.0"), ("0.16.2", "0.20.0"), "", "any"),
    "DCGM exporter": Rule("README", ("4.7.1", "4.8.3"), ("4.1.3", "4.8.3"), "", "any"),
    # The same words in life-cycle-management.html of 26.7.0; 26.4.x is between 26.1.x and 26.7.x in its table.
    "network operator with its device plugin": Rule(
        "life-cycle-management", ("26.1.2", "26.4.1"), ("26.1.2", "26.7.0"), "v26.4", NO_WAY
    ),
    # Table of deploy/upgrade: x.y.* to x.(y+1).*; x.(y-1).* to x.(y+1).* is not supported; no downgrade at all.
    "Longhorn": Rule("deploy/upgrade", ("1.11.2", "1.12.1"), ("1.10.3", "1.12.1"), "v1.11", NEVER),
    # maturity.md: "first there will be a release that understands the new _and_ the old configuration format ... The
    # next release after that removes support for the old".
    "MetalLB": Rule("maturity", ("0.15.3", "0.16.1"), ("0.14.9", "0.16.1"), "v0.15", NO_WAY),
    # "We recommend that you upgrade cert-manager one minor version at a time".
    "cert-manager with its CRDs": Rule("upgrade", ("1.20.3", "1.21.2"), ("1.19.0", "1.21.2"), "v1.20", NO_WAY),
    # stability-support.md: "one minor version at a time"; in its table 1.0 follows 0.20, and 2.0 follows 1.3.
    "external-secrets": Rule("stability-support", ("2.8.0", "2.9.0"), ("1.3.2", "2.1.0"), "v2.0", NO_WAY),
    "CloudNativePG": Rule("installation_upgrade", ("0.28.3", "0.29.0"), ("0.27.0", "0.29.0"), "v0.28", NEVER),
    "Barman Cloud plugin": Rule("upgrades", ("0.6.0", "0.7.0"), ("0.5.0", "0.7.0"), "v0.6", NEVER),
    "PostgreSQL of the platform": Rule("postgres_upgrades", ("18.3", "18.4"), ("16.9", "18.4"), "", NEVER),
    "KEDA": Rule("CHANGELOG", ("2.20.2", "2.21.0"), ("2.18.3", "2.21.0"), "v2.19", NO_WAY),
    # README.md, "Upgrading the chart": definitions first; from 0.7 on to later ones, a step by hand.
    "LeaderWorkerSet": Rule("README", ("0.9.0", "0.10.0"), ("0.8.0", "0.10.0"), "", "any"),
    # README.md, "Stability": monitoring.coreos.com/v1 changes in a compatible way.
    "Prometheus operator with its CRDs": Rule("README", ("0.84.1", "0.85.0"), ("0.80.0", "0.85.0"), "", "any"),
    # docs/migration.md: from 2.55 on, both major versions read each other's blocks.
    "Prometheus": Rule("migration", ("3.11.0", "3.12.0"), ("2.55.1", "3.12.0"), "", "any"),
    "Alertmanager": Rule("compatibility", ("0.30.0", "0.31.0"), ("0.27.0", "0.31.0"), "", "any"),
    "limit service": Rule("api/v1alpha1/shared_types.go", ("1.4.0", "1.4.1"), ("1.0.0", "1.4.1"), "", "any"),
    "gatekeeper": Rule("services/gatekeeper", ("0.0.1", "0.1.0"), ("0.0.1", "0.1.0"), "", "any"),
    "directory of keys": Rule("services/directory", ("0.0.1", "0.1.0"), ("0.0.1", "0.1.0"), "", "any"),
    "portal": Rule("services/portal", ("0.0.1", "0.1.0"), ("0.0.1", "0.1.0"), "", "any"),
    "watcher": Rule("services/watcher", ("0.0.1", "0.1.0"), ("0.0.1", "0.1.0"), "", "any"),
    "ledger": Rule("services/ledger", ("0.0.1", "0.1.0"), ("0.0.1", "0.1.0"), "", "any"),
    "counters of limits": Rule("00-RELEASENOTES", ("8.1.7", "8.1.8"), ("7.2.0", "8.1.8"), "", "any"),
    "node-exporter": Rule("CHANGELOG", ("1.0.0", "4.56.1"), ("1.0.0", "4.56.1"), "", "any"),
    # README.md, "Upgrading": a major version needs actions by hand where it says so, and none that reads settings here.
    "Grafana": Rule("README", ("12.11.0", "12.11.1"), ("11.0.0", "12.11.1"), "", "any"),
    "external-dns": Rule("version-update-playbook", ("1.20.0", "1.21.1"), ("1.15.0", "1.21.1"), "", "any"),
    # CHANGELOG.md: update notes; two of earlier releases are "impossible to downgrade to the previous releases".
    "log store": Rule("CHANGELOG", ("0.12.5", "0.13.9"), ("0.11.0", "0.13.9"), "", NO_WAY),
    "log collectors": Rule("vlagent", ("0.3.6", "0.3.7"), ("0.2.0", "0.3.7"), "", "any"),
    "kube-state-metrics": Rule("README", ("2.17.0", "2.18.0"), ("2.13.0", "2.18.0"), "", "any"),
    "inference extension's CRDs": Rule("config/crd", ("1.4.0", "1.5.0"), ("1.1.0", "1.5.0"), "", "any"),
    # "Upgrading from the previous version" is the only path that install-yaml.md has.
    "Envoy Gateway with its CRDs and Gateway API": Rule(
        "install-yaml", ("1.8.3", "1.9.1"), ("1.7.2", "1.9.1"), "v1.8", "any"
    ),
    # RELEASES.md: from N to N+2, "you should first upgrade to the version N+1"; 1.0 follows 0.7.
    "AI gateway with its CRDs": Rule("RELEASES", ("0.7.0", "1.0.0"), ("0.6.0", "1.0.0"), "v0.7", "any"),
    "endpoint picker": Rule("config/charts", ("1.4.0", "1.5.0"), ("1.1.0", "1.5.0"), "", "any"),
    "vLLM": Rule("vllm", ("0.31.0", "0.32.0"), ("0.25.0", "0.32.0"), "", "any"),
    "simulator": Rule("inference-sim", ("0.9.0", "0.10.2"), ("0.7.0", "0.10.2"), "", "any"),
}
PARTS = {part.part: part for part in upgrades.load().parts}
TABLE = pytest.mark.parametrize("name", RULES)


def wrong(part: UpgradedPart, now: str, then: str) -> list[str]:
    """What is refused when this part alone goes from one version to another, and the fix."""
    known: dict[str, Fact] = {"kubernetes": "1.36.3", "kubelet": "1.35.2"} if part.facts == ("kubelet",) else {}
    _, problems = steps(NOW | known | {part.facts[0]: now}, NOW | known | {part.facts[0]: then})
    return [f"{problem.what}; {problem.fix}" for problem in problems]


def test_every_part_has_its_publishers_rule_here() -> None:
    assert set(RULES) == set(PARTS)
    assert all(RULES[name].source.lower() in part.source.lower() for name, part in PARTS.items())


@TABLE
def test_a_step_that_the_publisher_supports_is_one_step(name: str) -> None:
    assert wrong(PARTS[name], *RULES[name].legal) == []


@TABLE
def test_a_jump_is_refused_with_the_step_in_between_where_the_publisher_refuses_it(name: str) -> None:
    problems = wrong(PARTS[name], *RULES[name].jump)
    if RULES[name].between:
        (problem,) = problems
        assert MINOR in problem
        assert f"go to the newest {RULES[name].between} first" in problem
    else:
        assert problems == []


@TABLE
def test_the_way_back_is_as_far_as_the_publisher_supports(name: str) -> None:
    older, newer = RULES[name].legal
    problems = wrong(PARTS[name], newer, older)
    if RULES[name].back == "any":
        assert problems == []
    else:
        (problem,) = problems
        assert RULES[name].back in problem


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.back == NO_WAY])
def test_within_a_minor_version_there_is_a_way_back(name: str) -> None:
    newer = RULES[name].legal[1]
    minor = newer.rpartition(".")[0]
    assert wrong(PARTS[name], f"{minor}.9", f"{minor}.1") == []


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.back == NO_WAY])
def test_no_addon_is_taken_back_by_the_snapshot_of_the_whole_cluster(name: str) -> None:
    """It would take every other object back too, while volumes and machines stay as they are."""
    older, newer = RULES[name].legal
    (problem,) = wrong(PARTS[name], newer, older)
    assert ("recover-etcd" in problem) == (name == "Kubernetes API servers")


def test_longhorn_goes_back_to_no_older_release() -> None:
    """deploy/upgrade: "Longhorn does not support downgrades to earlier versions"."""
    (problem,) = wrong(PARTS["Longhorn"], "1.12.1", "1.12.0")
    assert problem.startswith("Longhorn: there is no way back; stay at 1.12.1")


@pytest.mark.parametrize("name", [name for name, part in PARTS.items() if part.back == "one_minor"])
def test_a_jump_back_is_refused_too(name: str) -> None:
    older, newer = RULES[name].jump
    (problem,) = wrong(PARTS[name], newer, older)
    assert f"go to the newest {RULES[name].between} first" in problem


def test_definitions_that_lack_a_stored_version_are_refused() -> None:
    """Gateway API 1.6 stores TCP and UDP routes as v1, which 1.5 has not; external-secrets from 0.16 on likewise."""
    _, (routes,) = steps(NOW, NOW | {"gateway_api_crds": "1.5.1"})
    assert "stored as v1" in routes.what
    known: dict[str, Fact] = NOW | {"external_secrets": "0.16.0"}
    _, problems = steps(known, known | {"external_secrets": "0.15.0"})
    assert "stored as v1" in problems[-1].what


@pytest.mark.parametrize("name", [name for name, part in PARTS.items() if part.releases])
def test_the_release_that_is_pinned_is_one_of_the_publishers(name: str) -> None:
    """A pin that is raised to a release that the list lacks would hide the one before it."""
    part = PARTS[name]
    key = conflicts.deciding_keys()[part.facts[0]].removeprefix("versions.charts.").removesuffix(".version")
    pinned = versions.load().charts[key].version.removeprefix("v")
    assert pinned.rpartition(".")[0] in part.releases


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"releases": ["26.3", "25.10"]}, "GPU operator: releases that do not rise"),
        ({"back": "any"}, "GPU operator: steps and back differ"),
        ({"steps": "any", "back": "one_minor"}, "GPU operator: steps and back differ"),
    ],
)
def test_a_rule_that_contradicts_itself_is_refused(change: dict[str, object], why: str) -> None:
    given = PARTS["GPU operator"].model_dump()
    with pytest.raises(ValueError, match=why):
        UpgradedPart.model_validate({**given, **change})


def test_the_page_states_of_each_part_whether_its_upgrade_was_walked() -> None:
    page = (ROOT / "docs" / "testing.md").read_text().partition("## Upgrades\n")[2].partition("\n## ")[0]
    missing = [name for name in PARTS if name.partition(" with ")[0] not in " ".join(page.split())]
    assert missing == []
    walked = [line for line in page.splitlines() if line.startswith("| ") and "test_" in line]
    for module in ("talos_roll", "cluster_versions"):
        assert any(f"test_{module}`" in line for line in walked)
        assert list((ROOT / "tests" / "lab").rglob(f"test_{module}.py"))
