"""Dashboards: the files are what the boards make, each panel can be read, and each runbook is there."""

from __future__ import annotations

import ast
import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.models import units

from components.monitoring.dashboard_config_maps import dashboard_config_map
from components.monitoring.dashboards.board import GRID_COLUMNS, Board, Panel
from components.monitoring.dashboards.boards import BOARDS
from components.monitoring.dashboards.failures import NOT_SHOWN
from components.monitoring.dashboards.grafana import text_of
from components.monitoring.dashboards.readings import Window, filled_in
from floor.gpu_nodes import resource_of
from manifests import grafana
from stacks.facts.mig import cut_kinds, slices_of
from tests.unit import promql
from tests.unit.platform_series import known_series

ROOT = Path(__file__).parents[3]
RUNBOOKS = {page.stem for page in (ROOT / "docs" / "runbooks").glob("*.md")} - {"README"}
UNITS = {value for value in vars(units).values() if isinstance(value, str)}
PANELS = [(board, panel) for board in BOARDS for panel in board.panels()]
# A ConfigMap takes 1 MiB, and the API server's store 1.5 MiB with all else of the object.
MOST_BYTES = 2**20
WINDOW = Window(until_s=0, length_s=900, step_s=15, rate_s=60)
EVERYTHING = {"model": ".*", "tenant": ".*", "gpu_hour_price": "1"}

each_board = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
each_panel = pytest.mark.parametrize(
    ("board", "panel"), PANELS, ids=[f"{board.name}: {panel.title}" for board, panel in PANELS]
)


def drawn(board: Board) -> list[dict[str, Any]]:
    """Panels and headings of the file, as Grafana reads them."""
    panels: list[dict[str, Any]] = json.loads(grafana.dashboards()[board.name])["panels"]
    return panels


def test_each_file_is_what_its_board_makes() -> None:
    assert grafana.dashboards() == {board.name: text_of(board) for board in BOARDS}, "run `make docs`"


@each_board
def test_the_same_board_makes_the_same_text(board: Board) -> None:
    assert text_of(board) == text_of(board)
    assert len(text_of(board).splitlines()) < len(drawn(board)) + 20


def test_dashboards_are_found_by_addresses_that_stay() -> None:
    named = {name: json.loads(text)["uid"] for name, text in grafana.dashboards().items()}
    assert named == {
        name: f"inference-{name}"
        for name in ("cost", "failures", "gateway", "hardware", "hosts", "slo", "storage", "time", "usage")
    }


@each_board
def test_panels_do_not_overlap_and_stay_on_the_grid(board: Board) -> None:
    cells: list[tuple[str, set[tuple[int, int]]]] = []
    for panel in drawn(board):
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= GRID_COLUMNS, panel["title"]
        across, down = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        cells.append((panel["title"], {(x, y) for x in across for y in down}))
    assert [(first, second) for (first, here), (second, there) in combinations(cells, 2) if here & there] == []


@each_board
def test_ids_are_unique_and_do_not_depend_on_a_panels_neighbours(board: Board) -> None:
    ids = [panel["id"] for panel in drawn(board)]
    assert len(set(ids)) == len(ids)
    fewer = json.loads(text_of(Board(name="x", title="x", question="x", groups=board.groups[-1:])))["panels"]
    assert [panel["id"] for panel in fewer] == ids[-len(fewer) :]


@each_panel
def test_a_panel_has_all_that_its_reader_needs(board: Board, panel: Panel) -> None:
    (shown,) = [shown for shown in drawn(board) if shown["title"] == panel.title]
    assert shown["description"].partition("\n\nRunbook: ")[0] == f"Good: {panel.good}\n\nOtherwise: {panel.do}"
    assert all(text.endswith(".") for text in (panel.good, panel.do))
    unit = shown["fieldConfig"]["defaults"]["unit"]
    assert unit in UNITS or unit.startswith("suffix: "), unit
    assert shown["targets"]
    for query in shown["targets"]:
        assert query["expr"]
        assert query["legendFormat"]
        assert query["datasource"] == shown["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@each_panel
def test_a_panel_asks_with_the_variables_of_its_dashboard(board: Board, panel: Panel) -> None:
    variables = {variable["name"] for variable in json.loads(grafana.dashboards()[board.name])["templating"]["list"]}
    assert {"datasource", "model", "tenant"} <= variables
    used = {name for query in panel.queries for name in re.findall(r"\$([A-Za-z_]\w*)", query.expression)}
    assert used - variables <= {"__rate_interval", "__range"}


@each_panel
def test_a_panel_asks_for_what_the_pinned_parts_expose(board: Board, panel: Panel) -> None:
    """And calls its series by labels that they have there: a part's new version leaves no panel blank."""
    for query in panel.queries:
        reading = promql.read(filled_in(query.expression, WINDOW, EVERYTHING), known_series())
        assert reading.mistakes == []
        assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= reading.labels, board.name


@each_board
def test_models_and_tenants_to_choose_from_are_those_that_are_measured(board: Board) -> None:
    offered = {
        variable["name"]: re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
        for variable in json.loads(grafana.dashboards()[board.name])["templating"]["list"]
        if variable["type"] == "query"
    }
    assert offered.keys() == {"model", "tenant"}
    for name, asked in offered.items():
        assert asked
        assert asked[2] == name
        reading = promql.read(asked[1], known_series())
        assert (reading.mistakes, name in reading.labels) == ([], True)


@pytest.mark.row("000.12")
def test_what_a_node_offers_is_shown_with_slices_of_every_profile() -> None:
    (panel,) = [panel for _, panel in PANELS if panel.title == "GPUs that each node offers"]
    (query,) = panel.queries
    chosen = re.search(r'resource=~"(.+?)"', query.expression)
    assert chosen and "by (node, resource)" in query.expression and "{{resource}}" in query.legend
    profiles = ["", *(profile for gpu in cut_kinds() for profile in slices_of(gpu))]
    resources = [re.sub(r"[^a-zA-Z0-9]", "_", resource_of(profile)) for profile in profiles]
    assert len(resources) > 10
    assert [name for name in resources if not re.fullmatch(chosen[1], name)] == []
    assert not re.fullmatch(chosen[1], "nvidia_com_gpu_shared") and not re.fullmatch(chosen[1], "memory")


@pytest.mark.row("004.08")
def test_how_much_of_the_time_a_gpu_works_is_shown_as_a_share() -> None:
    """Measured by DCGM per GPU, so that half can be read off; the proof predicts it per model."""
    (panel,) = [panel for board, panel in PANELS if panel.title == "Share of time in which a GPU works"]
    assert [query.expression for query in panel.queries] == ["max by (node, gpu) (DCGM_FI_PROF_GR_ENGINE_ACTIVE)"]
    assert (panel.unit, panel.good.partition(" over")[0]) == ("percentunit", "Above 0.5")


@pytest.mark.row("002.07")
@pytest.mark.row("004.19")
def test_each_stage_of_a_request_has_a_panel_of_its_own() -> None:
    """Prefill and decode apart: what helps one of them does not help the other."""
    (board,) = [board for board in BOARDS if board.name == "time"]
    asked = {panel.title: " ".join(query.expression for query in panel.queries) for panel in board.panels()}
    for title, histogram in {
        "How long does a picker take to choose a replica?": "inference_extension_scheduler_e2e_duration_seconds",
        "How long does a request wait in the queue?": "vllm:request_queue_time_seconds",
        "How long does prefill take?": "vllm:request_prefill_time_seconds",
        "How long does decode take?": "vllm:request_decode_time_seconds",
    }.items():
        assert set(re.findall(r"rate\((\S+?)_bucket", asked[title])) == {histogram}


@pytest.mark.row("002.09", "003.15", "003.16")
def test_latency_is_shown_as_quantiles_of_histograms_and_never_as_a_mean() -> None:
    for board, panel in PANELS:
        for query in panel.queries:
            divided = re.search(r"_sum\b.*/.*_count\b", query.expression)
            assert not divided, f"{board.name}: {panel.title}"
    (slo,) = [board for board in BOARDS if board.name == "slo"]
    asked = "\n".join(query.expression for panel in slo.panels() for query in panel.queries)
    for histogram in ("vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds"):
        for share in ("0.5", "0.95", "0.99"):
            assert re.search(rf"histogram_quantile\({share}, [^\n]*{histogram}_bucket", asked), (histogram, share)


@pytest.mark.row("002.09")
def test_what_a_site_promised_is_a_dashed_line() -> None:
    (slo,) = [board for board in BOARDS if board.name == "slo"]
    dashed = [
        panel["title"]
        for panel in drawn(slo)
        for override in panel.get("fieldConfig", {}).get("overrides", [])
        if any(prop["id"] == "custom.lineStyle" for prop in override["properties"])
    ]
    assert len(dashed) == len(set(dashed)) == 8
    assert "Time to the first token, by model (P95)" in dashed


@pytest.mark.row("001.38")
def test_each_runbook_has_a_group_of_panels_or_a_reason() -> None:
    (failures,) = [board for board in BOARDS if board.name == "failures"]
    groups = [group for group in failures.groups if group.mode is None]
    shown = [group.runbook for group in groups]
    assert len(set(shown)) == len(shown)
    assert {*shown, *NOT_SHOWN} == RUNBOOKS
    assert set(shown) & NOT_SHOWN.keys() == set()
    for group in groups:
        assert group.title == (ROOT / "docs" / "runbooks" / f"{group.runbook}.md").read_text().splitlines()[0][2:]


@pytest.mark.row("001.38", "opening 9")
def test_each_failure_mode_has_a_group_with_its_runbook() -> None:
    rows = yaml.safe_load((ROOT / "docs" / "requirements.yaml").read_text()).values()
    modes = {
        row: entry["title"] for part in rows for row, entry in part.items() if entry["title"].startswith("Failure:")
    }
    assert len(modes) == 7
    (failures,) = [board for board in BOARDS if board.name == "failures"]
    groups = {group.mode: group for group in failures.groups if group.mode is not None}
    assert list(groups) == sorted(groups)
    assert groups.keys() == set(modes)
    listed = (ROOT / "docs" / "observability.md").read_text()
    for number, mode in enumerate(sorted(modes), 1):
        group = groups[mode]
        assert group.title.startswith(f"Failure mode {number}: ")
        assert len(group.panels) >= 2
        assert group.runbook in RUNBOOKS
        page = re.escape(f"(runbooks/{group.runbook}.md)")
        assert re.search(rf"^\| {number} \|.*\[.+\]{page}.* \|$", listed, re.MULTILINE), mode


@pytest.mark.row("001.38")
def test_panels_name_the_command_that_prints_their_runbook() -> None:
    """And link to no page: where the pages are is the site's to state."""
    panels = [panel for board in BOARDS for panel in drawn(board)]
    assert [panel["title"] for panel in panels if panel.get("links")] == []
    assert [name for name, text in grafana.dashboards().items() if "://" in text] == []
    named = [
        name
        for panel in panels
        for name in re.findall(r"\n\nRunbook: `sitectl docs ([\w-]+)`$", panel.get("description", ""))
    ]
    assert len(named) > 40
    assert set(named) <= RUNBOOKS


@each_board
def test_a_dashboard_fits_into_a_config_map(board: Board) -> None:
    body = dashboard_config_map(board.name, text_of(board), "inference-monitoring")
    assert len(json.dumps(body)) < MOST_BYTES / 10


@pytest.mark.slow
def test_the_program_needs_nothing_of_grafanas_builders() -> None:
    """They are tools of developers: neither installed with the program, nor a part of its start."""
    makers = ROOT / "components" / "monitoring" / "dashboards"
    users = {
        str(path.relative_to(ROOT))
        for folder in ("components", "floor", "manifests", "policy", "sitectl", "stacks", "talos")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        and str(node.module).startswith(("grafana_foundation_sdk", "components.monitoring.dashboards"))
        and not path.is_relative_to(makers)
    }
    assert users == set()
