"""A dashboard in Grafana's own form, by Grafana's own builders: the same text for the same board."""

from __future__ import annotations

import json
from collections.abc import Sequence

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import prometheus as prometheus_models

from components.monitoring import queries
from components.monitoring.dashboards.board import Board, Panel, PanelGroup, PanelPlace, Query, Shape, placed
from components.monitoring.runbooks import command

TAG = "inference-platform"
SOURCE = "datasource"
_SOURCE = models.DataSourceRef(type_val="prometheus", uid=f"${{{SOURCE}}}")
_TARGET_COLOUR = "red"


def text_of(board: Board) -> str:
    """The file that Grafana imports: JSON with sorted keys, a line for each of them and for each panel."""
    document = json.loads(json.dumps(_dashboard(board).build(), cls=JSONEncoder))
    panels = ",\n".join(json.dumps(panel, sort_keys=True) for panel in document["panels"])
    texts = {key: json.dumps(value, sort_keys=True) for key, value in document.items()} | {"panels": f"[\n{panels}\n]"}
    return "{\n" + ",\n".join(f'"{key}": {texts[key]}' for key in sorted(texts)) + "\n}\n"


def _dashboard(board: Board) -> dashboard.Dashboard:
    made = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.question)
        .tags([TAG])
        .readonly()
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .time("now-1h", "now")
        .refresh("1m")
        .link(
            dashboard.DashboardLink("The other questions")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(True)  # noqa: FBT003 - Grafana's builder
            .include_vars(True)  # noqa: FBT003
            .keep_time(True)  # noqa: FBT003
        )
    )
    for variable in _variables(board):
        made.with_variable(variable)
    top = 0
    for group in board.groups:
        made.with_row(_heading(group, top))
        places = placed(group.panels, top + 1)
        for panel, place in zip(group.panels, places, strict=True):
            made.with_panel(_panel(panel, panel.runbook or group.runbook, place))
        top = max(place.y + place.height for place in places)
    return made


def _variables(
    board: Board,
) -> Sequence[dashboard.DatasourceVariable | dashboard.QueryVariable | dashboard.TextBoxVariable]:
    price = (
        dashboard.TextBoxVariable("gpu_hour_price")
        .label("Price of a GPU hour")
        .description("With 1, costs are in GPU hours; a site's own price is `prices.gpu_hour` of its file.")
        .default_value("1")
    )
    return (
        dashboard.DatasourceVariable(SOURCE).label("Prometheus").type("prometheus"),
        _choice("model", "Model", f"up{{{queries.ENGINES}}}"),
        _choice("tenant", "Tenant", f"gen_ai_server_request_duration_seconds_count{{{queries.REQUESTS}}}"),
        *((price,) if board.has_price else ()),
    )


def _choice(name: str, label: str, series: str) -> dashboard.QueryVariable:
    """Values of the label `name` that these series have; all of them at first."""
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(_SOURCE)
        .query(f"label_values({series}, {name})")
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)  # noqa: FBT003 - Grafana's builder
        .include_all(True)  # noqa: FBT003
        .all_value(".*")
        .current(models.VariableOption(selected=True, text="All", value="$__all"))
    )


def _heading(group: PanelGroup, y: int) -> dashboard.Row:
    return dashboard.Row(group.title).id(group.identity).grid_pos(models.GridPos(h=1, w=24, x=0, y=y))


def _panel(panel: Panel, runbook: str | None, place: PanelPlace) -> timeseries.Panel | stat.Panel:
    made = _figure() if panel.shape is Shape.FIGURE else _lines(panel)
    made = (
        made.id(panel.identity)
        .title(panel.title)
        .description(panel.description + (f"\n\nRunbook: `{command(runbook)}`" if runbook else ""))
        .datasource(_SOURCE)
        .unit(panel.unit)
        .grid_pos(models.GridPos(h=place.height, w=place.width, x=place.x, y=place.y))
    )
    for index, query in enumerate(panel.queries):
        made.with_target(_target(query, chr(ord("A") + index)))
    return made


def _target(query: Query, letter: str) -> prometheus.Dataquery:
    return (
        prometheus.Dataquery()
        .ref_id(letter)
        .datasource(_SOURCE)
        .expr(query.expression)
        .legend_format(query.legend)
        .editor_mode(prometheus_models.QueryEditorMode.CODE)
        .range()
    )


def _figure() -> stat.Panel:
    last = common.ReduceDataOptions().calcs(["lastNotNull"])
    return stat.Panel().reduce_options(last).graph_mode(common_models.BigValueGraphMode.AREA)


def _lines(panel: Panel) -> timeseries.Panel:
    legend = (
        common.VizLegendOptions()
        .display_mode(common_models.LegendDisplayMode.LIST)
        .placement(common_models.LegendPlacement.BOTTOM)
        .show_legend(True)  # noqa: FBT003 - Grafana's builder
    )
    tooltip = (
        common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI).sort(common_models.SortOrder.DESCENDING)
    )
    made = timeseries.Panel().legend(legend).tooltip(tooltip).min(0).show_points(common_models.VisibilityMode.NEVER)
    if panel.shape is Shape.STACKED:
        made.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL)).fill_opacity(40)
    for index, query in enumerate(panel.queries):
        if query.is_target:
            made.override_by_query(chr(ord("A") + index), _target_line())
    return made


def _target_line() -> list[models.DynamicConfigValue]:
    return [
        models.DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": _TARGET_COLOUR}),
        models.DynamicConfigValue(id_val="custom.lineStyle", value={"fill": "dash", "dash": [8, 6]}),
        models.DynamicConfigValue(id_val="custom.fillOpacity", value=0),
    ]
