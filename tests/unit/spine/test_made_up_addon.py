"""An addon that does not exist: with these six files the platform plans, declares, measures and upgrades it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pulumi.runtime.rpc import deserialize_properties

from components.addons import registry
from components.addons.addon import (
    Addon,
    AddonChart,
    AddonComponent,
    AddonContent,
    AddonObject,
    AddonRelease,
    AddonSite,
)
from components.monitoring import rules
from components.monitoring.rules import Measured
from components.network_policies import allow_ingress, read_by
from components.scrape_target import ScrapeTarget
from sitectl.change.changes import Change
from sitectl.change.verdicts.ground import release as verdicts_of_release
from sitectl.live.helm_releases import releases
from sitectl.live.running_versions import ClusterObjects, running
from stacks.facts import chart_images, chart_values, compatibility, upgrades, versions
from stacks.plan import conflicts
from stacks.plan.charts import installed_charts
from stacks.plan.promises import site_promise
from stacks.plan.site_plan import SitePlan, plan_file
from stacks.plan.upgrades import steps_of
from stacks.program.addons import ChartValuesError, charts_of, check_values
from stacks.program.monitoring import jobs_of, targets_of
from tests.unit.helm_secrets import helm_secret
from tests.unit.spine.test_platform import Recorder, requested

pytestmark = pytest.mark.row("C.03")

ROOT = Path(__file__).parents[3]
NAMESPACE, PORT = "made-up-system", 9100
VALUES: dict[str, Any] = {"replicas": 2}


# 1. components/addons/made_up.py, whole.
def content(site: AddonSite) -> AddonContent:
    mark = {"apiVersion": "made.up/v1", "kind": "MadeUp", "metadata": {"name": "mark", "namespace": NAMESPACE}}
    return AddonContent(
        releases=[AddonRelease(name="made-up", chart=site.charts["made_up"], values=VALUES)],
        network_policies=[allow_ingress("made-up", NAMESPACE, {}, read_by(site.scrapers, PORT))],
        objects=[AddonObject(suffix="mark", body=mark)],
    )


MADE_UP = Addon(
    key="made_up",
    switch="purpose",
    on="trial",
    namespace=NAMESPACE,
    charts=(
        AddonChart(name="made_up", release="made-up", uninstalled="nothing is made up any more", upgraded="it pauses"),
    ),
    targets=(ScrapeTarget(name="made-up", job="made-up", namespace=NAMESPACE, pods={"app": "made-up"}, port=PORT),),
    component=AddonComponent(
        name="made-up",
        resource_type="made_up:MadeUp",
        pod_security="restricted",
        content=content,
        needs=("crds", "metallb"),
        gives="hardware",
    ),
)
# 2. components/addons/registry.py: the name in ADDONS. 3. to 6. below stacks/facts: what is added to each file.
FACTS = {
    "versions.yaml": (
        "charts:\n",
        "charts:\n  made_up: {chart: made-up, repository: https://made-up.example, version: 1.2.3}\n",
    ),
    "chart_values/made_up.yaml": (
        "",
        "chart: made-up\nversion: 1.2.3\nread: made-up/made-up@v1.2.3 values.yaml\ntypes:\n  integer: [replicas]\n",
    ),
    "chart_images.yaml": (
        "metallb:\n",
        "made_up:\n  version: 1.2.3\n  known: exact\n  read: made-up/made-up@v1.2.3\n  images:\n    chart:\n"
        "      registry.made-up.example/made-up:v1.2.3: controller\nmetallb:\n",
    ),
    "upgrades.yaml": (
        "crossings:\n",
        "- part: made-up\n  facts: [made_up]\n  steps: one_minor\n  back: none\n  before: it runs\n  after: it runs\n"
        "  source: made-up/made-up@v1.2.3 README.md\ncrossings:\n",
    ),
}
LOADED: tuple[Any, ...] = (versions.load, chart_values.load, chart_images.load, upgrades.load, compatibility.table)


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SitePlan]:
    """The lab's site in a checkout that has the addon."""
    facts = tmp_path / "facts"
    (facts / "chart_values").mkdir(parents=True)
    for path in chart_values.FOLDER.iterdir():
        (facts / "chart_values" / path.name).write_text(path.read_text())
    for name, (before, after) in FACTS.items():
        text = (versions.FILE.parent / name).read_text() if before else ""
        assert not before or text.count(f"\n{before}") == 1, name
        (facts / name).write_text(text.replace(f"\n{before}", f"\n{after}") if before else after)
    monkeypatch.setattr(registry, "ADDONS", (*registry.ADDONS, MADE_UP))
    monkeypatch.setattr(chart_values, "FOLDER", facts / "chart_values")
    for module in (versions, chart_images, upgrades):
        monkeypatch.setattr(module, "FILE", facts / Path(module.FILE).name)
    for cached in LOADED:
        cached.cache_clear()
    yield plan_file(ROOT / "Pulumi.lab.yaml")
    monkeypatch.undo()
    for cached in LOADED:
        cached.cache_clear()


def test_an_addon_is_six_files() -> None:
    """The program, the tables and the command line name none; its key is one that the site has, or has its own list."""
    assert len({"components/addons/made_up.py", "components/addons/registry.py", *FACTS}) == 6


def test_charts_images_and_values_know_it(plan: SitePlan) -> None:
    assert installed_charts(plan.site)[-1] == "made_up"
    assert plan.images["registry.made-up.example/made-up:v1.2.3"] == ["chart made_up"]
    charts = charts_of(plan)
    assert charts["made_up"].chart.endswith("/made-up-1.2.3.tgz"), "from the lab's mirror"
    check_values(plan, charts)


def test_a_value_that_its_chart_does_not_document_is_refused(plan: SitePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VALUES, "replica", 3)
    with pytest.raises(ChartValuesError, match=r"replica: made-up 1\.2\.3 documents no such value"):
        check_values(plan, charts_of(plan))


def test_it_is_declared_after_what_it_needs_and_before_what_waits_for_it(plan: SitePlan, tmp_path: Path) -> None:
    _, made = requested(plan.site, tmp_path, Recorder())
    assert made["made-up"].type == "inference-platform:made_up:MadeUp"
    release = made["made-up-made-up"]
    assert deserialize_properties(release.object)["values"] == {"replicas": 2}
    after = {name: {urn.rpartition("::")[2] for urn in made[name].dependencies} for name in made}
    assert {"crds-things", "made-up-network-policy-made-up"} <= after["made-up-made-up"]
    assert after["made-up-mark"] == {"made-up-made-up"}
    waiting = [made[name].type for name in made if "made-up-mark" in after[name] and "monitoring" not in name]
    assert waiting, "what needs the hardware waits for it"


def test_compatibility_and_upgrades_know_its_version(plan: SitePlan) -> None:
    after = versions.load()
    assert conflicts.facts(after, plan.site)["made_up"] == "1.2.3"
    steps, problems = steps_of(plan.site, with_version(after, "1.1.9"), after)
    assert not problems
    assert [(step.pins, step.parts[0].part) for step in steps] == [(["charts.made_up.version"], "made-up")]
    _, (skipped,) = steps_of(plan.site, with_version(after, "1.0.0"), after)
    assert (skipped.path, skipped.what) == (
        ("charts", "made_up", "version"),
        "made-up: the step leaves out a minor version",
    )


def with_version(pins: versions.Versions, version: str) -> versions.Versions:
    other = pins.charts["made_up"].model_copy(update={"version": version})
    return pins.model_copy(update={"charts": pins.charts | {"made_up": other}})


def test_its_version_is_read_from_a_cluster(plan: SitePlan) -> None:
    secret = helm_secret("made-up", NAMESPACE, "made-up", "1.2.2", 1, "deployed")
    seen = ClusterObjects(server="v1.36.3", nodes=[], pods=[], definitions=[], releases=releases([secret]))
    places = running(seen, plan.site, versions.load()).places
    assert places["made_up"] == {"1.2.2": [f"Helm release {NAMESPACE}/made-up"]}


def test_it_is_measured_and_an_alert_says_when_it_is_not(plan: SitePlan) -> None:
    targets = targets_of(plan.site, "m", "g")
    assert targets[-1].namespace == NAMESPACE
    promise = site_promise(plan, plan.site.monitoring.availability_percent, jobs_of(targets, own=True))
    assert "made-up" in promise.jobs
    down = rules.alerts(promise, Measured(parts=(), servers=False))["measuring"]
    assert any("made-up" in alert.expression for alert in down)


CHANGES: list[tuple[Callable[[], Change], str]] = [
    (lambda: Change(op="delete", type="", name="", before={"name": "made-up"}), "nothing is made up any more"),
    (
        lambda: Change(
            op="update",
            type="",
            name="",
            before={"name": "made-up", "version": "1.2.2"},
            after={"name": "made-up", "version": "1.2.3"},
        ),
        "it pauses",
    ),
]


@pytest.mark.parametrize(("change", "words"), CHANGES)
@pytest.mark.usefixtures("plan")
def test_a_verdict_says_what_a_change_of_it_costs(change: Callable[[], Change], words: str) -> None:
    (only,) = verdicts_of_release(change())
    assert only.reason == words
