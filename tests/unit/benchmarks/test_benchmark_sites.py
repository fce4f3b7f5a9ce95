"""Many generated sites: valid, no two alike, the same each time; and what their walk counts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from benchmarks import gateway_latency, generated_sites, many_sites, models, routing
from benchmarks.many_sites import PHASES, Walk, findings, walk
from lab.errors import LabError
from lab.paths import Lab
from policy.model import Resource
from sitectl.offline import checkout
from stacks.plan.site_plan import plan_file


@pytest.mark.slow
def test_sites_are_valid_and_proven_and_no_two_alike(tmp_path: Path) -> None:
    words = [generated_sites.site(number) for number in range(8)]
    assert words == [generated_sites.site(number) for number in range(8)]
    blocks = [plan_file(generated_sites.write(tmp_path, site_words)).texts for site_words in words]
    assert all("holds" in block for site in blocks for block in site[:-2])
    assert all(site[-2].startswith("placement") and site[-1].startswith("gateway") for site in blocks)
    assert len({"".join(site) for site in blocks}) == len(words)
    assert {"machines" in site_words["cluster"] for site_words in words} == {True, False}


def test_tenants_are_added_to_those_that_are_there(tmp_path: Path) -> None:
    base = generated_sites.site(3)
    site = plan_file(generated_sites.write(tmp_path, generated_sites.with_tenants(base, 40))).site
    assert len(site.tenants) == len(base["tenants"]) + 40
    assert set(site.tenants["team-0007"].models) < set(site.models)


def test_the_models_of_the_benchmarks_go_with_the_lab(tmp_path: Path) -> None:
    """What a site refuses is refused of a benchmark too."""
    added = {name: models.simulator(replicas=3) for name in (*routing.PICKERS, gateway_latency.MODEL)}
    stack = models.stack_with(added, edit=gateway_latency.everything)
    (tmp_path / "Pulumi.lab.yaml").write_text(yaml.safe_dump(stack))
    plan = plan_file(tmp_path / "Pulumi.lab.yaml")
    site = plan.site
    assert added.keys() < site.models.keys()
    assert all("DOES NOT" not in block for block in plan.texts)
    assert all(added.keys() < set(tenant.models) for tenant in site.tenants.values())


def declare_one(project: Path, files: Mapping[str, Path]) -> dict[str, checkout.Declared]:
    """A stand-in for the program: one object per site, and an error for a site with that name."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}}
    kind = "kubernetes:core/v1:ConfigMap"
    return {
        name: checkout.Declared(
            resources=[Resource(type=kind, name="a", body=body)], error="no" if name == "site-001" else ""
        )
        for name in files
    }


def test_a_walk_takes_each_phase_over_every_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkout, "declare", declare_one)
    walk_of_one = walk(tmp_path, 1)
    assert (walk_of_one.sites, walk_of_one.models, walk_of_one.resources) == (
        1,
        len(generated_sites.site(0)["models"]),
        1,
    )
    assert set(walk_of_one.cpu_s) == set(PHASES)
    assert set(walk_of_one.wall_s) == {"validate and proof", "render"}
    assert walk_of_one.cpu_s["proof"] > 0
    assert (tmp_path / "rendered" / "site-000" / "b" / "configmap_a.yaml").is_file()


def test_a_refused_site_ends_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkout, "declare", declare_one)
    with pytest.raises(LabError, match="site-001: no"):
        walk(tmp_path, 2)


def walked(sites: int, seconds: float) -> Walk:
    return Walk(
        sites=sites,
        models=3 * sites,
        keys=sites,
        resources=50 * sites,
        cpu_s={"validate": 0.1 * seconds, "proof": 0.3 * seconds, "render": 0.6 * seconds},
        wall_s=dict.fromkeys(PHASES, seconds),
    )


def test_findings_say_time_a_site_shares_and_growth() -> None:
    text = " ".join(findings([walked(10, 5), walked(100, 50)]))
    assert "100 sites with 300 models and 5000 resources: 500 ms of processor time a site" in text
    assert "validate 50 ms (10%), proof 150 ms (30%), render 300 ms (60%)" in text
    assert "50 ms of proof a model and 6.0 ms of render a resource" in text
    assert "sites^1.00" in text
    assert "grows" not in " ".join(findings([walked(10, 5)])), "one size says nothing about growth"


def test_the_result_says_how_busy_the_machine_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_sites, "walk", lambda _, count: walked(count, count / 2))
    result = many_sites.run(Lab.from_environment(), sites=[20, 10])
    assert "keeps them busy, the rest is other work" in str(result.conditions["load_average_after"])
    assert [row["sites"] for row in result.tables[1].rows] == [10, 20]
    assert result.tables[1].rows[1]["proof, CPU"] == 150
