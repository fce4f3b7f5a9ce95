"""`calibrate`: a site's own step times, and the line for its file. Prometheus is simulated: a test fills it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from sitectl.shell.errors import Exit
from stacks.plan.site_plan import plan_file
from stacks.proof.serving import PATH_S, Steady
from tests import documented
from tests.unit.sitectl.simulated_prometheus import SimulatedPrometheus
from tests.unit.sitectl.site_with_service import AskedSite

pytestmark = [pytest.mark.processes, pytest.mark.row("opening 29")]

MODEL, PACE, PERIODS = "qwen3-32b", 1.1, 20
PAGE = documented.ROOT / "docs" / "how-to" / "calibrate-a-site.md"
METRIC = re.compile(r"vllm:\w+|up(?=\{)")
LOAD = {"requests_per_s": 2.0, "prompt_tokens": {"p50": 1000, "p95": 6000}, "answer_tokens": {"p50": 250, "p95": 1000}}


class Prometheus(SimulatedPrometheus):
    """Answers a range of a metric with the same figure at each time, for one model, and another query by `since`."""

    figures: dict[str, float]
    periods = PERIODS
    since = 0.0
    """Unix seconds at which the oldest replica was seen first."""

    def results(self, asked: Mapping[str, str]) -> list[dict[str, Any]]:
        (metric, *_) = METRIC.findall(asked["query"])
        figure = self.figures.get(metric)
        sample: dict[str, Any] = {"metric": {"model": MODEL}, "value": [0, str(self.since)]}
        if "step" in asked:
            end, step = float(asked["end"]), float(asked["step"])
            sample["values"] = [[end - step * number, str(figure)] for number in range(self.periods)]
        return [sample] if figure is not None else []


@pytest.fixture
def prometheus() -> Prometheus:
    return Prometheus()


@pytest.fixture
def site(tmp_path: Path, prometheus: Prometheus, monkeypatch: pytest.MonkeyPatch) -> Iterator[AskedSite]:
    """Its model declares a load, of which Prometheus has measured half, on engines of that pace."""
    with prometheus.on_a_site(tmp_path) as made:
        monkeypatch.setenv("PATH", made.path)
        edit(made, load=LOAD, engine="vllm")
        proof = plan_file(made.project / "Pulumi.lab.yaml").models[MODEL].stable.proof
        load, engine = proof.order.load, proof.case.steady.engine
        assert load is not None
        half = replace(load, requests_per_s=1.0)
        steady = Steady(replace(engine, roofline=engine.roofline.at(PACE)), half, proof.case.replicas)
        prometheus.figures = {
            "vllm:request_success_total": 1.0,
            "vllm:prompt_tokens_total": load.prompt_tokens.mean,
            "vllm:generation_tokens_total": load.answer_tokens.mean,
            "vllm:inter_token_latency_seconds_sum": steady.itl_mean_s,
            "vllm:time_to_first_token_seconds_sum": steady.ttft.total - PATH_S,
            "up": proof.case.replicas,
        }
        yield made


def edit(site: AskedSite, *, engine: str = "", **keys: Any) -> None:
    file = site.project / "Pulumi.lab.yaml"
    document = yaml.safe_load(file.read_text())
    (values,) = (value for value in document["config"].values() if isinstance(value, dict))
    values["models"][MODEL] |= keys
    if engine:
        values["models"][MODEL]["server"]["engine"] = engine
    file.write_text(yaml.safe_dump(document))


def test_the_line_that_it_prints_has_the_proof_count_with_the_measured_pace(site: AskedSite) -> None:
    words = documented.argv("python -m sitectl calibrate prod")
    shown = site.run(*words[3:-1], "lab")
    assert shown.status == Exit.OK, shown.err
    assert shown.out.splitlines()[1].split()[-10:-4] == ["20", "of", "20", "12,000", "x", f"{PACE:.2f}"]
    (line,) = [line for line in shown.out.splitlines() if line.startswith(f"  models.{MODEL}.calibration: ")]
    edit(site, calibration=yaml.safe_load(line.partition("calibration: ")[2]))
    proof = plan_file(site.project / "Pulumi.lab.yaml").models[MODEL].stable.proof
    assert proof.order.measured is not None
    assert proof.order.measured.pace == pytest.approx(PACE, rel=1e-2)
    assert (
        f"in {PERIODS} periods of this site; median x {PACE:g} of computed"
        in site.run(*documented.argv("python -m sitectl proof prod")[3:-1], "lab").out
    )
    # What it has is what it finds again.
    again = json.loads(site.run("calibrate", "lab", "--json").out)["models"][0]
    assert again["calibration"]["pace"] == pytest.approx(PACE, rel=1e-2)


def test_the_page_shows_what_is_printed(site: AskedSite, prometheus: Prometheus) -> None:
    """Of a day, but for the date."""
    prometheus.periods = 144
    shown = re.sub(r'until: "[-0-9]+"', 'until: "2026-11-30"', site.run("calibrate", "lab").out)
    assert f"```text\n{shown}```" in PAGE.read_text()
    edit(site, calibration=yaml.safe_load(shown.rpartition("calibration: ")[2]))
    (band,) = [line for line in site.run("proof", "lab").out.splitlines() if "periods of this site" in line]
    assert f"```text\n{band}\n```" in PAGE.read_text()


@pytest.mark.parametrize(
    ("metric", "figure", "reason"),
    [
        ("vllm:request_success_total", 0.001, "0 periods of ten minutes had enough requests, and 12 are the fewest"),
        # A replica more for half of the time.
        ("up", 1.5, "0 periods of ten minutes had enough requests"),
        ("vllm:inter_token_latency_seconds_sum", 30.0, "in 20 of 20 periods no pace from x 0.2 to 5 explains"),
        ("vllm:time_to_first_token_seconds_sum", 90.0, "in 20 of 20 periods no pace explains the times to the first"),
        ("vllm:generation_tokens_total", 100.0, "its requests are not as declared: answers of 100 tokens in the mean"),
        ("vllm:prefix_cache_hits_total", 0.5, "its requests are not as declared: 50 % of their tokens cached, not 0 %"),
    ],
)
def test_what_is_too_little_or_cannot_be_is_no_calibration(
    site: AskedSite, prometheus: Prometheus, metric: str, figure: float, reason: str
) -> None:
    prometheus.figures[metric] = figure
    shown = site.run("calibrate", "lab")
    assert shown.status == Exit.REFUSED
    assert f"{MODEL}: {reason}" in shown.out
    assert "calibration:" not in shown.out


def test_periods_of_replicas_that_are_gone_do_not_count(site: AskedSite, prometheus: Prometheus) -> None:
    """An upgrade two hours ago: since then, and not of the engine before."""
    prometheus.since = time.time() - 7500
    shown = site.run("calibrate", "lab")
    assert shown.status == Exit.OK
    assert "13 of 13" in shown.out


def test_a_simulator_has_no_times_of_a_gpu(site: AskedSite) -> None:
    edit(site, engine="simulator")
    shown = site.run("calibrate", "lab")
    assert shown.status == Exit.REFUSED
    assert f"{MODEL}: it runs on the simulator, whose times are the proof's" in shown.out


def test_a_site_without_a_load_has_nothing_to_compare_with(site: AskedSite) -> None:
    edit(site, load=None)
    assert "no model of lab that writes text declares a load" in site.run("calibrate", "lab").err
