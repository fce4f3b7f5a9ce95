"""What a dashboard's queries return of a Prometheus, and what the command for pictures makes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from unittest.mock import MagicMock
from urllib.parse import parse_qs

import httpx
import pytest

from components.monitoring import queries
from components.monitoring.dashboards import pictures
from components.monitoring.dashboards.readings import (
    PanelReading,
    ReadingError,
    Series,
    Window,
    filled_in,
    named,
    read_panels,
)
from manifests import grafana
from tests import documented

WINDOW = Window(until_s=1000, length_s=600, step_s=10, rate_s=60)
LATENCY = {"metric": {"model": "chat"}, "values": [[900, "0.5"], [990, "NaN"], [1000, "+Inf"]]}


def answered(request: httpx.Request, *results: object) -> httpx.Response:
    assert request.url.path == "/api/v1/query_range"
    return httpx.Response(200, json={"status": "success", "data": {"result": list(results)}})


def test_variables_of_grafana_get_values() -> None:
    expression = 'a{model=~"$model"}[$__rate_interval] or b[$__range] or label_replace(c, "model", "$1", "d", "(.+)")'
    assert filled_in(expression, WINDOW, {"model": ".*"}) == (
        'a{model=~".*"}[60s] or b[600s] or label_replace(c, "model", "$1", "d", "(.+)")'
    )


def test_a_variable_without_a_value_is_an_error() -> None:
    with pytest.raises(ReadingError, match=r"no value for \$other in rate\(a\[\$other\]\)\n  fix: "):
        filled_in("rate(a[$other])", WINDOW, {})


def test_a_series_is_called_as_grafana_calls_it() -> None:
    assert named("{{model}} P95", {"model": "chat"}) == "chat P95"
    assert named("{{ gone }}x", {}) == "x"


def test_panels_have_what_was_counted_and_know_targets() -> None:
    with httpx.Client(
        transport=httpx.MockTransport(lambda request: answered(request, LATENCY)), base_url="http://x"
    ) as client:
        panels = read_panels(client, grafana.dashboards()["slo"], WINDOW)
    (panel,) = [panel for panel in panels if panel.title == "Time to the first token, by model (P95)"]
    assert (panel.group, panel.unit) == ("Time to the first token", "s")
    assert [(line.name, line.seconds, line.values, line.is_target) for line in panel.series] == [
        ("chat", (-100.0,), (0.5,), False),
        ("chat target", (-100.0,), (0.5,), True),
    ]


def test_a_panel_without_numbers_has_no_series() -> None:
    nothing = {"metric": {}, "values": [[1000, "NaN"]]}
    with httpx.Client(
        transport=httpx.MockTransport(lambda request: answered(request, nothing)), base_url="http://x"
    ) as client:
        assert {panel.series for panel in read_panels(client, grafana.dashboards()["slo"], WINDOW)} == {()}


def test_a_panel_with_nothing_but_its_target_has_no_data() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        (query,) = parse_qs(request.content.decode())["query"]
        return answered(request, *([LATENCY] if query.startswith(queries.TARGET) else []))

    with httpx.Client(transport=httpx.MockTransport(answer), base_url="http://x") as client:
        panels = read_panels(client, grafana.dashboards()["slo"], WINDOW)
    (panel,) = [panel for panel in panels if panel.title == "Time to the first token, by model (P95)"]
    assert ([line.name for line in panel.series], panel.has_data) == (["chat target"], False)


def test_a_refused_query_is_an_error_that_names_it() -> None:
    refusal = httpx.Response(400, json={"status": "error", "error": "parse error"})
    with (
        httpx.Client(transport=httpx.MockTransport(lambda _: refusal), base_url="http://x") as client,
        pytest.raises(ReadingError, match=r"Prometheus refuses .*: parse error\n  fix: correct the dashboard's query"),
    ):
        read_panels(client, grafana.dashboards()["cost"], WINDOW)


def test_what_is_no_prometheus_is_an_error() -> None:
    page = httpx.Response(200, text="<html>")
    with (
        httpx.Client(transport=httpx.MockTransport(lambda _: page), base_url="http://x") as client,
        pytest.raises(ReadingError, match="does not answer as Prometheus does"),
    ):
        read_panels(client, grafana.dashboards()["cost"], WINDOW)


class _Prometheus(BaseHTTPRequestHandler):
    """Has data for what engines count, and nothing else."""

    def do_POST(self) -> None:
        (query,) = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())["query"]
        results = [LATENCY] if "vllm:" in query else []
        body = json.dumps({"status": "success", "data": {"result": results}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def prometheus() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Prometheus) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def drawings(monkeypatch: pytest.MonkeyPatch) -> dict[Path, Sequence[PanelReading]]:
    """What would be drawn, by file: matplotlib is no package of the tests."""
    made: dict[Path, Sequence[PanelReading]] = {}

    def draw(name: str, panels: Sequence[PanelReading], file: Path, source: str) -> None:
        assert (name, source) == (file.stem, "")
        made[file] = panels

    monkeypatch.setattr(pictures, "draw", draw)
    monkeypatch.setattr(pictures, "can_draw", lambda: True)
    return made


def test_each_dashboard_becomes_a_picture_and_panels_without_data_are_listed(
    prometheus: str,
    drawings: dict[Path, Sequence[PanelReading]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    page = documented.argv("python -m components.monitoring.dashboards.pictures http://127.0.0.1:9090 --out pictures")
    words = [prometheus if word.startswith("http://") else word for word in page[3:]]
    assert pictures.main(words) == 1
    assert [str(file) for file in drawings] == [f"pictures/{name}.png" for name in grafana.dashboards()]
    empty = capsys.readouterr().out.splitlines()
    assert "no data: hardware: Temperature of each GPU" in empty
    assert not [line for line in empty if line.startswith("no data: slo: Time to the first token, by model")]


def test_a_dashboard_whose_panels_all_have_data_ends_well(
    prometheus: str, drawings: dict[Path, Sequence[PanelReading]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    panels = json.loads(grafana.dashboards()["slo"])["panels"]
    engines = [panel for panel in panels if panel["title"] == "From request to last token, by model"]
    monkeypatch.setattr(grafana, "dashboards", lambda: {"slo": json.dumps({"panels": engines})})
    assert pictures.main([prometheus, "--dashboard", "slo", "--out", str(tmp_path / "drawn")]) == 0
    assert [panel.title for panel in drawings[tmp_path / "drawn" / "slo.png"]] == [engines[0]["title"]]


def test_a_picture_states_that_it_is_not_grafana_and_has_a_plot_for_each_panel_with_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With stand-ins for matplotlib's modules."""
    figure, places = MagicMock(), [MagicMock() for _ in range(3)]
    pyplot = MagicMock()
    pyplot.subplots.return_value = (figure, [places])
    modules = {"matplotlib": MagicMock(), "matplotlib.pyplot": pyplot, "PIL.Image": MagicMock()}
    monkeypatch.setattr("importlib.import_module", modules.__getitem__)
    line = Series(name="chat", seconds=(-60.0, 0.0), values=(0.5, 0.7), is_target=False)
    target = Series(name="chat target", seconds=(0.0,), values=(0.4,), is_target=True)
    panels = [
        PanelReading(title="Slow?", group="g", unit="s", series=(line, target)),
        PanelReading(title="Empty?", group="g", unit="s", series=(target,)),
    ]
    pictures.draw("slo", panels, tmp_path / "slo.png", "a lab")
    figure.suptitle.assert_called_once_with("slo: plots of the panels' queries, not Grafana - a lab")
    places[0].set_title.assert_called_once_with("Slow?", fontsize=9)
    places[0].set_ylabel.assert_called_once_with("seconds", fontsize=8)
    assert [call.args[0] for call in places[0].plot.call_args_list] == [[-1.0, 0.0], [0.0]]
    assert [place.plot.called for place in places] == [True, False, False]
    assert [place.set_axis_off.called for place in places] == [False, True, True]


def test_a_dashboard_that_does_not_exist_is_an_error(
    drawings: dict[Path, Sequence[PanelReading]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert pictures.main(["http://127.0.0.1:1", "--dashboard", "nothing"]) == 1
    assert capsys.readouterr().err.startswith("error: no dashboard nothing\n  fix: name one of cost, failures, ")


def test_without_matplotlib_the_error_has_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pictures, "can_draw", lambda: False)
    assert pictures.main(["http://127.0.0.1:1"]) == 1
    assert capsys.readouterr().err == (
        "error: matplotlib is not installed\n  fix: pip install 'matplotlib~=3.11' (the extra `plot`)\n"
    )
