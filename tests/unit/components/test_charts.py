"""Charts of a site come from their publisher, or all from the mirror that the site names."""

from __future__ import annotations

import pytest

from components.addons.charts import Chart, chart_of
from floor.problems import SiteError
from stacks.plan.site_plan import plan_values
from tests.unit.stacks.site_examples import prod

PUBLISHED = "oci://docker.io/envoyproxy/gateway-helm"


@pytest.mark.parametrize(
    ("mirror", "chart", "repository"),
    [
        (None, PUBLISHED, None),
        ("oci://registry.site.example/charts", "oci://registry.site.example/charts/gateway-helm", None),
        ("oci://registry.site.example:5000/charts/", "oci://registry.site.example:5000/charts/gateway-helm", None),
        ("https://charts.site.example", "gateway-helm", "https://charts.site.example"),
        (".bundle/charts", "./.bundle/charts/gateway-helm-v1.tgz", None),
        ("./charts/", "./charts/gateway-helm-v1.tgz", None),
        ("../charts", "./../charts/gateway-helm-v1.tgz", None),
        ("/srv/charts", "/srv/charts/gateway-helm-v1.tgz", None),
    ],
)
def test_a_chart_comes_from_the_mirror(mirror: str | None, chart: str, repository: str | None) -> None:
    site = plan_values({**prod(), "charts": {"mirror": mirror} if mirror else {}}, "site.yaml").site
    assert site.charts.mirror == mirror
    assert chart_of(PUBLISHED, "v1", mirror) == Chart(chart=chart, version="v1", repository=repository)


@pytest.mark.parametrize(
    "mirror",
    [
        "",
        "oci://",
        "oci://user@registry.site.example/charts",
        "https://charts.site.example/?x=1",
        "s3://bucket/charts",
        "file:///srv/charts",
        "--repo=elsewhere",
        "charts\nmore",
        "charts\x00",
        "~/charts",
        "charts ",
    ],
)
def test_what_is_no_mirror_is_refused_at_its_key(mirror: str) -> None:
    with pytest.raises(SiteError) as caught:
        plan_values({**prod(), "charts": {"mirror": mirror}}, "site.yaml")
    [problem] = caught.value.problems
    assert problem.key == "charts.mirror"
    assert "write it like oci://registry.site.example/charts" in problem.fix
