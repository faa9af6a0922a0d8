"""*Rollouts*: how all rollouts of a run do."""

from grafana_foundation_sdk.builders import dashboard as builders

from dashboards.panels import MODEL, SERVER, SHARE, board, choice, heat, lines, number, traces_table

CALLS = "traces_span_metrics_calls_total"
DURATION = "traces_span_metrics_duration_milliseconds"
FIRST_CHUNK = "gen_ai_client_inference_time_to_first_chunk_seconds"
USAGE = "gen_ai_client_inference_usage"
RANGE = "[$__range]"
RATE = "[$__rate_interval]"
BOTH = f"{MODEL},{SERVER}"
FAILED = f'{BOTH},status_code="STATUS_CODE_ERROR"'
STREAMS = f'{BOTH},otel_gym_stream_terminal!=""'
CUT = f'{BOTH},otel_gym_stream_terminal=~"none|error"'


def _share(part: str, whole: str) -> str:
    """A ratio that is 0, not absent, while nothing of the part was seen."""
    return f"(({part}) or 0 * ({whole})) / ({whole})"


def dashboard() -> builders.Dashboard:
    """The dashboard of all rollouts."""
    return (
        board(
            "Rollouts",
            "otel-gym-rollouts",
            "How the model calls of all rollouts do: how many, how long, how many tokens, and what fails.",
        )
        .with_variable(choice("model", "Model", f"label_values({CALLS}, gen_ai_request_model)"))
        .with_variable(
            choice("server", "Model server", f"label_values({CALLS}, otel_gym_model_server_name)")
        )
        .with_panel(
            number(
                "Calls",
                "How many model calls ended in this time?",
                f"sum(increase({CALLS}{{{BOTH}}}{RANGE}))",
                "short",
                0,
            )
        )
        .with_panel(
            number(
                "Failed",
                "Which share of them failed?",
                _share(
                    f"sum(increase({CALLS}{{{FAILED}}}{RANGE}))",
                    f"sum(increase({CALLS}{{{BOTH}}}{RANGE}))",
                ),
                SHARE,
                2,
            )
        )
        .with_panel(
            number(
                "Streams cut",
                "Which share of the streamed answers ended without a terminal event? They are not complete.",
                _share(
                    f"sum(increase({CALLS}{{{CUT}}}{RANGE}))",
                    f"sum(increase({CALLS}{{{STREAMS}}}{RANGE}))",
                ),
                SHARE,
                2,
            )
        )
        .with_panel(
            number(
                "Input tokens",
                "How many tokens did the models read, those from the cache included?",
                f"sum(increase({USAGE}_input_tokens_total{{{MODEL}}}{RANGE}))",
                "short",
            )
        )
        .with_panel(
            number(
                "Output tokens",
                "How many tokens did the models write?",
                f"sum(increase({USAGE}_output_tokens_total{{{MODEL}}}{RANGE}))",
                "short",
            )
        )
        .with_panel(
            number(
                "Cache hits",
                "Which share of the input tokens came from the engine's prefix cache?",
                _share(
                    f"sum(increase({USAGE}_cache_read_input_tokens_total{{{MODEL}}}{RANGE}))",
                    f"sum(increase({USAGE}_input_tokens_total{{{MODEL}}}{RANGE}))",
                ),
                SHARE,
                1,
            )
        )
        .with_panel(
            lines(
                "Calls by model and server",
                "Who is asked how often?",
                [
                    (
                        "sum by (gen_ai_request_model, otel_gym_model_server_name) "
                        f"(rate({CALLS}{{{BOTH}}}{RATE}))",
                        "{{gen_ai_request_model}} at {{otel_gym_model_server_name}}",
                    )
                ],
                "reqps",
                stacked=True,
            )
        )
        .with_panel(
            lines(
                "Errors by type",
                "What goes wrong, and since when? A timeout points at the engine, a rate limit at the load, "
                "a cancelled call at the agent.",
                [
                    (
                        f"sum by (error_type) (rate({CALLS}{{{FAILED}}}{RATE}))",
                        "{{error_type}}",
                    )
                ],
                "reqps",
                stacked=True,
            )
        )
        .with_panel(
            heat(
                "Latency",
                "How long do calls take, and are there two kinds of them? A dot is one call: "
                "click it to open its trace.",
                f"sum by (le) (increase({DURATION}_bucket{{{BOTH}}}{RATE}))",
                "ms",
            )
        )
        .with_panel(
            heat(
                "Time to first chunk",
                "How long does a stream's reader wait for the first chunk? It grows with the queue and the "
                "uncached part of the prompt. A dot is one call.",
                f"sum by (le) (increase({FIRST_CHUNK}_bucket{{{MODEL}}}{RATE}))",
                "s",
            )
        )
        .with_panel(
            lines(
                "Latency by model and server",
                "Which model or server is slow? 95th percentile.",
                [
                    (
                        "histogram_quantile(0.95, sum by (le, gen_ai_request_model, "
                        f"otel_gym_model_server_name) (rate({DURATION}_bucket{{{BOTH}}}{RATE})))",
                        "{{gen_ai_request_model}} at {{otel_gym_model_server_name}}",
                    )
                ],
                "ms",
                exemplars=True,
            )
        )
        .with_panel(
            lines(
                "Time to first chunk by model and engine",
                "Which model or engine makes its readers wait? Median and 95th percentile.",
                [
                    (
                        f"histogram_quantile({quantile}, sum by (le, gen_ai_request_model, server_address) "
                        f"(rate({FIRST_CHUNK}_bucket{{{MODEL}}}{RATE})))",
                        f"{{{{gen_ai_request_model}}}} at {{{{server_address}}}} p{quantile * 100:.0f}",
                    )
                    for quantile in (0.5, 0.95)
                ],
                "s",
            )
        )
        .with_panel(
            lines(
                "Tokens",
                "How fast do the models read and write? Input is split into what the cache gave and what "
                "was computed (some engines also tell what they wrote to the cache); reasoning is part of the output.",
                [
                    (
                        f"sum(rate({USAGE}_cache_read_input_tokens_total{{{MODEL}}}{RATE}))",
                        "input from cache",
                    ),
                    (
                        f"sum(rate({USAGE}_input_tokens_total{{{MODEL}}}{RATE})) - "
                        f"sum(rate({USAGE}_cache_read_input_tokens_total{{{MODEL}}}{RATE}))",
                        "input computed",
                    ),
                    (
                        f"sum(rate({USAGE}_cache_write_input_tokens_total{{{MODEL}}}{RATE}))",
                        "input written to cache",
                    ),
                    (f"sum(rate({USAGE}_output_tokens_total{{{MODEL}}}{RATE}))", "output"),
                    (
                        f"sum(rate({USAGE}_reasoning_output_tokens_total{{{MODEL}}}{RATE}))",
                        "of it reasoning",
                    ),
                ],
                "short",
            )
        )
        .with_panel(
            lines(
                "Cache hits by model",
                "Does the prefix cache still work? A fall means changed prefixes, a restarted engine, or one "
                "rollout spread over several engines.",
                [
                    (
                        f"sum by (gen_ai_request_model) (rate({USAGE}_cache_read_input_tokens_total{{{MODEL}}}{RATE}))"
                        f" / sum by (gen_ai_request_model) (rate({USAGE}_input_tokens_total{{{MODEL}}}{RATE}))",
                        "{{gen_ai_request_model}}",
                    )
                ],
                SHARE,
                top=1,
            )
        )
        .with_panel(
            lines(
                "Streams by end",
                "How do streams end? `complete` is a terminal event; `none` is a stream cut on the wire.",
                [
                    (
                        f"sum by (otel_gym_stream_terminal) (rate({CALLS}{{{STREAMS}}}{RATE}))",
                        "{{otel_gym_stream_terminal}}",
                    )
                ],
                "reqps",
                span=24,
                stacked=True,
            )
        )
        .with_variable(
            builders.TextBoxVariable("slower_than").label("Slow is longer than").default_value("1s")
        )
        .with_panel(
            traces_table(
                "Rollouts with slow calls",
                "Which rollouts hold a model call that took longer than the variable says? Click a trace id "
                "to see it here or in Jaeger.",
                [
                    (
                        "Show this rollout",
                        "/d/otel-gym-rollout?var-trace=${__value.raw}&${__url_time_range}",
                    ),
                    ("Open in Jaeger", "${jaeger}/trace/${__value.raw}"),
                ],
                operation="",
                tags="gen_ai.operation.name=chat",
                minDuration="$slower_than",
                maxDuration="",
                limit=50,
            )
        )
    )
