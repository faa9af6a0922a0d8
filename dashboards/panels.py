"""The few panel shapes that our dashboards are made of, over `grafana-foundation-sdk`.

Every panel has a question as its description; the question is also its entry in ``docs/dashboards.md``.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog import builder as cog_builder
from grafana_foundation_sdk.cog import variants
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

PROMETHEUS = dashboard.DataSourceRef(type_val="prometheus", uid="prometheus")
JAEGER = dashboard.DataSourceRef(type_val="jaeger", uid="jaeger")
SERVICE = "otel-gym"

MODEL = 'gen_ai_request_model=~"$model"'
SERVER = 'otel_gym_model_server_name=~"$server"'
SHARE = "percentunit"

Query: TypeAlias = tuple[str, str]
"""A PromQL expression and the legend of its series."""


class JaegerQuery(variants.Dataquery):
    """A query of Grafana's Jaeger data source, for which the SDK has no class."""

    def __init__(self, **fields: Any) -> None:
        self._fields = {"refId": "A", "datasource": JAEGER, **fields}

    def to_json(self) -> dict[str, Any]:
        """The query as Grafana stores it."""
        return self._fields


class _Ready(cog_builder.Builder[variants.Dataquery]):
    def __init__(self, query: JaegerQuery) -> None:
        self._query = query

    def build(self) -> variants.Dataquery:
        return self._query


class _Hidden(cog_builder.Builder[dashboard.VariableModel]):
    """A constant that does not show; the SDK's own builder has no way to hide one."""

    def __init__(self, name: str, label: str, value: str) -> None:
        self._variable = builders.ConstantVariable(name).label(label).value(value).build()
        self._variable.hide = dashboard.VariableHide.HIDE_VARIABLE

    def build(self) -> dashboard.VariableModel:
        return self._variable


def _property(name: str, value: object) -> dashboard.DynamicConfigValue:
    return dashboard.DynamicConfigValue(id_val=name, value=value)


def number(
    title: str, question: str, expression: str, unit: str, decimals: int | None = None
) -> stat.Panel:
    """One figure for the whole time range."""
    panel = (
        stat.Panel()
        .title(title)
        .description(question)
        .datasource(PROMETHEUS)
        .unit(unit)
        .height(4)
        .span(4)
        .graph_mode(common.BigValueGraphMode.NONE)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(prometheus.Dataquery().expr(expression).instant().ref_id("A"))
    )
    return panel if decimals is None else panel.decimals(decimals)


def lines(
    title: str,
    question: str,
    queries: Sequence[Query],
    unit: str,
    *,
    span: int = 12,
    stacked: bool = False,
    top: float | None = None,
    exemplars: bool = False,
) -> timeseries.Panel:
    """Series over time."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(question)
        .datasource(PROMETHEUS)
        .unit(unit)
        .min(0)
        .height(8)
        .span(span)
        .line_width(1)
        .fill_opacity(20 if stacked else 5)
        .show_points(common.VisibilityMode.NEVER)
        .tooltip(common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
        .legend(
            common_builders.VizLegendOptions()
            .display_mode(common.LegendDisplayMode.TABLE)
            .placement(common.LegendPlacement.BOTTOM)
            .calcs(["lastNotNull", "max"])
            .show_legend(True)
        )
    )
    if top is not None:
        panel = panel.max(top)
    if stacked:
        panel = panel.stacking(
            common_builders.StackingConfig().mode(common.StackingMode.NORMAL).group("A")
        )
    for index, (expression, legend) in enumerate(queries):
        panel = panel.with_target(
            prometheus.Dataquery()
            .expr(expression)
            .range()
            .exemplar(exemplars)
            .legend_format(legend)
            .ref_id(chr(ord("A") + index))
        )
    return panel


def heat(title: str, question: str, expression: str, unit: str) -> heatmap.Panel:
    """A histogram over time; its points are exemplars, which lead to traces."""
    return (
        heatmap.Panel()
        .title(title)
        .description(question)
        .datasource(PROMETHEUS)
        .unit(unit)
        .height(9)
        .span(12)
        .calculate(False)
        .y_axis(heatmap.YAxisConfig().unit(unit).axis_placement(common.AxisPlacement.LEFT))
        .color(
            heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Blues").steps(64)
        )
        .exemplars_color("rgba(255,0,255,0.7)")
        .with_target(
            prometheus.Dataquery()
            .expr(expression)
            .range()
            .exemplar(True)
            .format(PromQueryFormat.HEATMAP)
            .legend_format("{{le}}")
            .ref_id("A")
        )
    )


def traces_table(
    title: str, question: str, links: Sequence[tuple[str, str]], *, height: int = 8, **query: Any
) -> table.Panel:
    """The traces that a Jaeger search finds, the longest first; `links` are pairs of (title, URL) on the trace id."""
    return (
        table.Panel()
        .title(title)
        .description(question)
        .datasource(JAEGER)
        .unit("string")
        .height(height)
        .span(24)
        .show_header(True)
        .sort_by([common_builders.TableSortByFieldState().display_name("Duration").desc(True)])
        .override_by_name("startTime", [_property("unit", "dateTimeAsIso")])
        .override_by_name("duration", [_property("unit", "µs")])
        .override_by_name(
            "traceID",
            [
                _property(
                    "links",
                    [
                        {"title": name, "url": url, "targetBlank": not url.startswith("/d/")}
                        for name, url in links
                    ],
                )
            ],
        )
        .with_target(_Ready(JaegerQuery(queryType="search", service=SERVICE, **query)))
    )


def trace_view(title: str, question: str) -> builders.Panel:
    """One trace as Grafana's own waterfall."""
    return (
        builders.Panel()
        .type("traces")
        .title(title)
        .description(question)
        .datasource(JAEGER)
        .unit("none")
        .height(18)
        .span(24)
        .with_target(_Ready(JaegerQuery(query="$trace")))
    )


def choice(name: str, label: str, query: str, *, all_values: bool = True) -> builders.QueryVariable:
    """A variable whose values are those of a label; any other value can be typed, too."""
    variable = (
        builders.QueryVariable(name)
        .label(label)
        .datasource(PROMETHEUS)
        .query({"query": query, "refId": name})
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.ALPHABETICAL_ASC)
        .multi(all_values)
        .include_all(all_values)
    )
    if all_values:
        everything = dashboard.VariableOption(selected=True, text="All", value="$__all")
        variable = variable.all_value(".*").current(everything)
    return variable


def board(title: str, uid: str, purpose: str) -> builders.Dashboard:
    """An empty dashboard with what all of ours share."""
    return (
        builders.Dashboard(title)
        .uid(uid)
        .description(purpose)
        .tags(["otel-gym"])
        .readonly()
        .timezone("browser")
        .time("now-1h", "now")
        .refresh("10s")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .link(
            builders.DashboardLink("otel-gym")
            .type(dashboard.DashboardLinkType.DASHBOARDS)
            .tags(["otel-gym"])
            .keep_time(True)
        )
        .with_variable(_Hidden("jaeger", "Address of the Jaeger UI", "http://localhost:16686"))
    )
