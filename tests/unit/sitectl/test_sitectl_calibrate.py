"""`calibrate`: a site's own step times, and the line for its file. Prometheus is simulated: a test fills it."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from sitectl.shell.errors import Exit
from stacks.plan.site_plan import plan_file
from stacks.proof.serving import PATH_S, Steady
from tests import documented
from tests.unit.sitectl.site_with_service import AskedSite

pytestmark = [pytest.mark.processes, pytest.mark.row("opening 29")]

MODEL, PACE, PERIODS = "qwen3-32b", 1.3, 20
METRIC = re.compile(r"vllm:\w+|up(?=\{)")
LOAD = {"requests_per_s": 2.0, "prompt_tokens": {"p50": 1000, "p95": 6000}, "answer_tokens": {"p50": 250, "p95": 1000}}


class SimulatedPrometheus(ThreadingHTTPServer):
    """Answers a range of a metric with the same figure at each time, for one model, and another query by `since`."""

    figures: dict[str, float]
    since = 0.0
    """Unix seconds at which the oldest replica was seen first."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.figures = {}


class _Answering(BaseHTTPRequestHandler):
    server: SimulatedPrometheus

    def do_GET(self) -> None:
        asked = {key: value for key, (value,) in parse_qs(urlsplit(self.path).query).items()}
        (metric, *_) = METRIC.findall(asked["query"])
        figure = self.server.figures.get(metric)
        sample: dict[str, Any] = {"metric": {"model": MODEL}, "value": [0, str(self.server.since)]}
        if "step" in asked:
            end, step = float(asked["end"]), float(asked["step"])
            sample["values"] = [[end - step * number, str(figure)] for number in range(PERIODS)]
        result = [sample] if figure is not None else []
        answer = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def prometheus() -> Iterator[SimulatedPrometheus]:
    server = SimulatedPrometheus()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


@pytest.fixture
def site(tmp_path: Path, prometheus: SimulatedPrometheus, monkeypatch: pytest.MonkeyPatch) -> AskedSite:
    """Its model declares a load, of which Prometheus has measured half, on engines of that pace."""
    made = AskedSite(tmp_path, "prometheus-operated", prometheus.server_port, "", "inference-monitoring", 9090)
    monkeypatch.setenv("PATH", made.path)
    edit(made, load=LOAD, engine="vllm")
    proof = plan_file(made.project / "Pulumi.lab.yaml").models[MODEL].stable.proof
    load = proof.order.load
    assert load is not None
    engine = proof.case.steady.engine
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
    return made


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
    assert shown.out.splitlines()[1].split()[-10:-4] == ["20", "of", "20", "12,000", "x", "1.30"]
    (line,) = [line for line in shown.out.splitlines() if line.startswith(f"  models.{MODEL}.calibration: ")]
    edit(site, calibration=yaml.safe_load(line.partition("calibration: ")[2]))
    proof = plan_file(site.project / "Pulumi.lab.yaml").models[MODEL].stable.proof
    assert proof.order.measured is not None
    assert proof.order.measured.pace == pytest.approx(PACE, rel=1e-2)
    assert (
        f"in {PERIODS} periods of this site; median x 1.3 of computed"
        in site.run(*documented.argv("python -m sitectl proof prod")[3:-1], "lab").out
    )
    # What it has is what it finds again.
    again = json.loads(site.run("calibrate", "lab", "--json").out)["models"][0]
    assert again["calibration"]["pace"] == pytest.approx(PACE, rel=1e-2)


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
    site: AskedSite, prometheus: SimulatedPrometheus, metric: str, figure: float, reason: str
) -> None:
    prometheus.figures[metric] = figure
    shown = site.run("calibrate", "lab")
    assert shown.status == Exit.REFUSED
    assert f"{MODEL}: {reason}" in shown.out
    assert "calibration:" not in shown.out


def test_periods_of_replicas_that_are_gone_do_not_count(site: AskedSite, prometheus: SimulatedPrometheus) -> None:
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
