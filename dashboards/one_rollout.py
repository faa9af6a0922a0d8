"""*One rollout*: its trace, its calls, its tokens and its cache over time."""

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard as dashboard_models

from dashboards.panels import SHARE, board, choice, lines, number, trace_view, traces_table

THIS = 'otel_gym_rollout_id="$rollout",trace_id=~"$trace"'
ANY_TRACE = ".*"
RANGE = "[$__range]"


def _total(metric: str) -> str:
    """A rollout's counter starts with it, so the highest value is the total; `increase` would extrapolate."""
    return f"sum(max_over_time(otel_gym_rollout_{metric}_total{{{THIS}}}{RANGE}))"


def dashboard() -> builders.Dashboard:
    """The dashboard of one rollout."""
    return (
        board(
            "One rollout",
            "otel-gym-rollout",
            "One rollout from its first call to its last: pick or type a rollout id. Its figures come from "
            "series that live for 15 minutes after its last call and are then history in Prometheus; the "
            "trace lives as long as Jaeger keeps it. A rollout id comes again in every run: with a trace id, "
            "the figures are those of that run alone.",
        )
        .link(
            builders.DashboardLink("Another rollout")
            .type(dashboard_models.DashboardLinkType.LINK)
            .url(f"/d/otel-gym-rollout?var-trace={ANY_TRACE}")
            .keep_time(True)
        )
        .with_variable(
            choice(
                "rollout",
                "Rollout",
                'label_values(otel_gym_rollout_calls_total{trace_id=~"$trace"}, otel_gym_rollout_id)',
                all_values=False,
            )
        )
        .with_variable(builders.TextBoxVariable("trace").label("Trace id").default_value(ANY_TRACE))
        .with_panel(
            traces_table(
                "Trace of the rollout",
                "Under which trace id is it? A rollout is one trace. Click the id to show it below or in Jaeger.",
                [
                    (
                        "Show below",
                        "/d/otel-gym-rollout?var-trace=${__value.raw}&var-rollout=${rollout}"
                        "&${__url_time_range}",
                    ),
                    ("Open in Jaeger", "${jaeger}/trace/${__value.raw}"),
                ],
                height=6,
                operation="",
                tags="otel_gym.rollout.id=$rollout",
                minDuration="",
                maxDuration="",
                limit=20,
            )
        )
        .with_panel(
            number("Calls", "How many model calls did it make?", _total("calls"), "short", 0)
        )
        .with_panel(
            number(
                "Failed",
                "How many of them failed?",
                "sum(max_over_time(otel_gym_rollout_calls_total"
                f'{{{THIS},error_type!="none"}}{RANGE})) or 0 * {_total("calls")}',
                "short",
                0,
            )
        )
        .with_panel(
            number("Input tokens", "How much did it read?", _total("input_tokens"), "short", 0)
        )
        .with_panel(
            number("Output tokens", "How much did it write?", _total("output_tokens"), "short", 0)
        )
        .with_panel(
            number(
                "From cache",
                "Which share of its input came from the cache? From the second turn on it should be high.",
                f"{_total('cached_tokens')} / {_total('input_tokens')}",
                SHARE,
                1,
            )
        )
        .with_panel(
            number(
                "Output per call",
                "How much does it write in one turn?",
                f"{_total('output_tokens')} / {_total('calls')}",
                "short",
                1,
            )
        )
        .with_panel(
            trace_view(
                "Calls",
                "Which calls did it make, in which order, side by side or one after the other, and where is "
                "time outside the model? Empty until you click the trace id above.",
            )
        )
        .with_panel(
            lines(
                "Tokens so far",
                "How does the context grow? Input grows by the whole history with each turn.",
                [
                    (f"sum(otel_gym_rollout_input_tokens_total{{{THIS}}})", "input"),
                    (f"sum(otel_gym_rollout_cached_tokens_total{{{THIS}}})", "of it from cache"),
                    (f"sum(otel_gym_rollout_output_tokens_total{{{THIS}}})", "output"),
                ],
                "short",
            )
        )
        .with_panel(
            lines(
                "Cache share so far",
                "Is each turn's history read from the cache? A flat or falling line means it is computed anew.",
                [
                    (
                        f"sum(otel_gym_rollout_cached_tokens_total{{{THIS}}}) / "
                        f"sum(otel_gym_rollout_input_tokens_total{{{THIS}}})",
                        "cached share of input",
                    )
                ],
                SHARE,
                top=1,
            )
        )
        .with_panel(
            lines(
                "Calls so far, by model and error",
                "Which models did it ask, and what failed?",
                [
                    (
                        "sum by (gen_ai_request_model, error_type) "
                        f"(otel_gym_rollout_calls_total{{{THIS}}})",
                        "{{gen_ai_request_model}}, error {{error_type}}",
                    )
                ],
                "short",
                span=24,
            )
        )
    )
