"""`canary`: both revisions side by side, and what is next. Prometheus is simulated: it answers what a test gives it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.monitoring.revisions import FEWEST
from sitectl.live.canaries import MeasuredRevision, judge
from sitectl.shell.errors import Exit
from stacks.plan.site_plan import plan_file
from tests import documented
from tests.unit.sitectl.simulated_prometheus import SimulatedPrometheus
from tests.unit.sitectl.site_with_service import AskedSite

pytestmark = [pytest.mark.processes, pytest.mark.row("001.06")]

MODEL = "qwen3-32b"
WELL = MeasuredRevision(requests=5000, failed=0.001, ttft_p95_s=0.4, itl_p95_s=0.03)


class Prometheus(SimulatedPrometheus):
    """Answers a query about a metric with a figure for each revision."""

    figures: dict[str, dict[str, float]]

    def results(self, asked: Mapping[str, str]) -> list[dict[str, Any]]:
        metric = re.search(r"(vllm|envoy)[a-z_:]+", asked["query"])
        by_model = self.figures.get(metric.group() if metric else "", {})
        return [{"metric": {"model": model}, "value": [0, str(figure)]} for model, figure in by_model.items()]


@pytest.fixture
def prometheus() -> Prometheus:
    made = Prometheus()
    made.figures = {}
    return made


@pytest.fixture
def site(tmp_path: Path, prometheus: Prometheus, monkeypatch: pytest.MonkeyPatch) -> Iterator[AskedSite]:
    with prometheus.on_a_site(tmp_path) as made:
        monkeypatch.setenv("PATH", made.path)
        yield made


def with_canary(site: AskedSite, percent: int) -> str:
    """The name of the canary that the site has from now on."""
    file = site.project / "Pulumi.lab.yaml"
    document = yaml.safe_load(file.read_text())
    (values,) = (value for value in document["config"].values() if isinstance(value, dict))
    values["callers"] = {"decided_by": "gatekeeper"}
    values["models"][MODEL]["canary"] = {"percent": percent, "server": {"extra_args": ["--seed=7"]}}
    file.write_text(yaml.safe_dump(document))
    plan = plan_file(file)
    (name,) = plan.named.keys() - plan.models.keys()
    return name


def figures(stable: str, canary: str, slower: float) -> dict[str, dict[str, float]]:
    return {
        "vllm:time_to_first_token_seconds_count": {stable: 9500, canary: 500},
        "envoy_cluster_upstream_rq_xx": {stable: 0.001, canary: 0.002},
        "vllm:time_to_first_token_seconds_bucket": {stable: 0.4, canary: 0.4 * slower},
        "vllm:inter_token_latency_seconds_bucket": {stable: 0.03, canary: 0.03},
    }


def test_a_canary_that_does_as_well_may_have_more_sessions(site: AskedSite, prometheus: Prometheus) -> None:
    canary = with_canary(site, 5)
    prometheus.figures = figures(MODEL, canary, slower=1.1)
    words = documented.argv("python -m sitectl canary prod")
    shown = site.run(*("lab" if word == "prod" else word for word in words[3:]))
    assert shown.status == Exit.OK, shown.err
    assert [line.split()[:3] for line in shown.out.splitlines()[1:3]] == [[MODEL, "95", "%"], [canary, "5", "%"]]
    assert shown.out.splitlines()[-1].startswith(f"does as well: raise models.{MODEL}.canary.percent")
    with_canary(site, 100)
    assert f"write the keys of models.{MODEL}.canary into models.{MODEL}, too" in site.run("canary", "lab").out


def test_a_canary_that_is_slower_waits(site: AskedSite, prometheus: Prometheus) -> None:
    canary = with_canary(site, 5)
    prometheus.figures = figures(MODEL, canary, slower=2)
    shown = site.run("canary", "lab", "--json", "--window", "2h")
    assert shown.status == Exit.REFUSED
    (compared,) = json.loads(shown.out)["canaries"]
    assert compared["reasons"] == ["its TTFT at p95 is 2.0 times as long"]
    assert compared["canary"]["requests"] == 500


def test_nothing_measured_is_no_good_sign(site: AskedSite) -> None:
    with_canary(site, 5)
    shown = site.run("canary", "lab")
    assert shown.status == Exit.REFUSED
    assert "wait: 0 requests are too few" in shown.out


def test_a_site_without_a_canary_is_shown_how_to_have_one(site: AskedSite) -> None:
    shown = site.run("canary", "lab")
    assert shown.status == Exit.REFUSED
    assert "no model of lab has a canary" in shown.err


@pytest.mark.parametrize(
    ("canary", "reasons"),
    [
        (WELL, 0),
        (MeasuredRevision(requests=FEWEST - 1, failed=0, ttft_p95_s=0.1, itl_p95_s=0.01), 1),
        (MeasuredRevision(requests=500, failed=0.02, ttft_p95_s=0.4, itl_p95_s=0.03), 1),
        (MeasuredRevision(requests=500, failed=0.02, ttft_p95_s=0.7, itl_p95_s=0.05), 3),
    ],
)
def test_each_figure_is_compared(canary: MeasuredRevision, reasons: int) -> None:
    assert len(judge(WELL, canary)) == reasons
