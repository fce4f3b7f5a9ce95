"""Which release of a site a chart's rendering takes its values from."""

from __future__ import annotations

from pathlib import Path

import pytest

from bundle.fetching import Sources
from bundle.helm import Helm
from components.addons.charts import Chart
from policy.model import Resource
from sitectl.offline.rendered_charts import rendered_images
from stacks.facts import versions
from stacks.facts.image_lock import ChartRelease
from stacks.plan.images import untagged_repositories
from stacks.plan.site_plan import plan_file

pytestmark = pytest.mark.row("opening 14")

ROOT = Path(__file__).parents[3]
PINS = versions.load()
PLAN = plan_file(ROOT / "Pulumi.prod.yaml")
OPERATOR = ChartRelease("gpu_operator", PINS.charts["gpu_operator"].version)
REPOSITORIES = [name for name, charts in untagged_repositories(PLAN.site, PINS).items() if charts == [OPERATOR]]


def release(chart: str) -> Resource:
    name = chart.rpartition("/")[2]
    body = {"chart": chart, "name": name, "namespace": "there"}
    return Resource(type="kubernetes:helm.sh/v3:Release", name=name, body=body)


@pytest.mark.parametrize(
    "form",
    ["oci://registry.example/gpu-operator/{name}", "/gpu-operator/charts/{name}-{version}.tgz", "{name}"],
)
def test_a_release_is_found_by_its_chart_not_by_the_mirrors_address(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered = list[str]()

    def render(_: Sources, chart: Chart, name: str, values: object, namespace: str) -> str:
        rendered.append(name)
        return "\n".join(f"- {repository}:v1.2.3" for repository in REPOSITORIES)

    monkeypatch.setattr(Sources, "rendered", render)
    monkeypatch.setattr(
        "sitectl.offline.rendered_charts.untagged_repositories", lambda *_: {name: [OPERATOR] for name in REPOSITORIES}
    )
    charts = {"gpu-operator": PINS.charts["gpu_operator"].version, "longhorn": PINS.charts["longhorn"].version}
    releases = [release(form.format(name=name, version=version)) for name, version in charts.items()]
    images = rendered_images(PLAN, releases, Sources(versions=PINS, helm=Helm("helm", tmp_path)), tmp_path)
    assert rendered == [releases[0].body["name"]]
    assert sorted(image.name for image in images) == sorted(REPOSITORIES)
    assert {frozenset(charts) for charts in images.values()} == {frozenset({OPERATOR})}
