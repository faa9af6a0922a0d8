"""*Capture health*: whether records are written and spans arrive, hop by hop."""

from grafana_foundation_sdk.builders import dashboard as builders

from dashboards.panels import board, lines, number

RANGE = "[$__range]"
RATE = "[$__rate_interval]"


def _increase(metric: str) -> str:
    return f"sum(increase({metric}{RANGE}))"


def _rate(metric: str, by: str = "") -> str:
    return f"sum{f' by ({by})' if by else ''} (rate({metric}{RATE}))"


def _quantiles(metric: str) -> list[tuple[str, str]]:
    return [
        (
            f"histogram_quantile({quantile}, sum by (le) (rate({metric}_bucket{RATE})))",
            f"p{quantile * 100:.0f}",
        )
        for quantile in (0.5, 0.99)
    ]


def _mean(metric: str) -> str:
    return f"sum(rate({metric}_sum{RATE})) / sum(rate({metric}_count{RATE}))"


def _refused(job: str) -> str:
    refused, failed = (
        _rate(f'otelcol_receiver_{kind}_spans_total{{job="{job}"}}')
        for kind in ("refused", "failed")
    )
    return f"{refused} + {failed}"


GIVEN_UP = " or ".join(
    "label_replace("
    + _rate(f"otelcol_exporter_{kind}_failed_spans_total", "job")
    + f', "reason", "{kind}", "", "")'
    for kind in ("send", "enqueue")
)
"""By job and reason: a series is there only once its first span has failed, so the two are joined, not added."""


def dashboard() -> builders.Dashboard:
    """The dashboard of the capture itself."""
    return (
        board(
            "Capture health",
            "otel-gym-health",
            "Whether every model call becomes a durable record and every record becomes a span, and where it "
            "waits or is dropped on the way.",
        )
        .with_panel(
            number(
                "Records written",
                "How many records became durable?",
                _increase("otel_gym_records_written_total"),
                "short",
                0,
            )
        )
        .with_panel(
            number(
                "Incomplete",
                "How many records were not durable in time or could not be written? It must be 0.",
                _increase("otel_gym_records_incomplete_total"),
                "short",
                0,
            )
        )
        .with_panel(
            number(
                "Pending",
                "How many calls are under way now? A figure that never falls is a call that never ended.",
                "sum(otel_gym_calls_pending)",
                "short",
                0,
            )
        )
        .with_panel(
            number(
                "Export lag",
                "How far are the spans behind the files? Lag is no loss: export catches up from the files.",
                "max(otel_gym_export_lag_seconds)",
                "s",
                1,
            )
        )
        .with_panel(
            number(
                "Spans exported",
                "How many spans did the next hop take?",
                _increase("otel_gym_export_spans_total"),
                "short",
                0,
            )
        )
        .with_panel(
            number(
                "Spans parked",
                "How many spans does the backend refuse for good? Each stands beside its reason.",
                _increase("otel_gym_export_parked_total"),
                "short",
                0,
            )
        )
        .with_panel(
            lines(
                "Write time",
                "How long does a record take to become durable, the wait for its batch included?",
                _quantiles("otel_gym_write_duration_seconds"),
                "s",
                span=8,
            )
        )
        .with_panel(
            lines(
                "Fsync time",
                "How slow is the disk? Model answers wait for it.",
                _quantiles("otel_gym_fsync_duration_seconds"),
                "s",
                span=8,
            )
        )
        .with_panel(
            lines(
                "Records per write",
                "How many records share one fsync? It grows with load; that is good.",
                [(_mean("otel_gym_write_batch_size"), "records")],
                "short",
                span=8,
            )
        )
        .with_panel(
            lines(
                "Queues, records",
                "Does the writer keep up with the calls, and export with the writer? A full export queue is no "
                "loss: export goes on from the files.",
                [
                    (
                        "sum by (instance, otel_gym_queue_name) (otel_gym_queue_length)",
                        "{{otel_gym_queue_name}} of {{instance}}",
                    )
                ],
                "short",
                span=8,
            )
        )
        .with_panel(
            lines(
                "Queues, bytes",
                "How much memory do waiting records take?",
                [
                    (
                        "sum by (instance, otel_gym_queue_name) (otel_gym_queue_bytes)",
                        "{{otel_gym_queue_name}} of {{instance}}",
                    )
                ],
                "bytes",
                span=8,
            )
        )
        .with_panel(
            lines(
                "Export lag",
                "When did export fall behind, and does it catch up?",
                [("max by (instance) (otel_gym_export_lag_seconds)", "{{instance}}")],
                "s",
                span=8,
            )
        )
        .with_panel(
            lines(
                "What goes wrong at capture",
                "Which calls are not captured as they should be? `lost` and `incomplete` must be 0; `unprefixed` "
                "calls belong to no rollout, `invalid ids` were refused, `overrides` are sampling parameters "
                "that were replaced.",
                [
                    (_rate(f"otel_gym_{name}_total"), label)
                    for name, label in (
                        ("records_lost", "lost"),
                        ("records_incomplete", "incomplete"),
                        ("records_late", "late"),
                        ("capture_failures", "capture failures"),
                        ("ids_invalid", "invalid ids"),
                        ("calls_unprefixed", "unprefixed"),
                        ("sampling_overrides", "overrides"),
                    )
                ],
                "ops",
            )
        )
        .with_panel(
            lines(
                "What goes wrong at export",
                "Why is export behind? `deferred` spans wait for the cursor, `retried` batches went out again, "
                "`parked` spans are refused for good, `failures` are errors inside export.",
                [
                    (_rate(f"otel_gym_export_{name}_total"), name)
                    for name in ("deferred", "retried", "parked", "failures")
                ],
                "ops",
            )
        )
        .with_panel(
            lines(
                "Spans at every hop",
                "Where do spans stop? The lines lie on each other while all is well; the distance between "
                "two of them waits in the queue between, or was dropped (next panel).",
                [
                    (_rate("otel_gym_export_spans_total"), "otel-gym sent"),
                    (
                        _rate('otelcol_receiver_accepted_spans_total{job="collector"}'),
                        "Collector took",
                    ),
                    (
                        _rate(
                            'otelcol_exporter_sent_spans_total{job="collector",exporter="otlp_grpc/jaeger"}'
                        ),
                        "Collector sent",
                    ),
                    (_rate('otelcol_receiver_accepted_spans_total{job="jaeger"}'), "Jaeger took"),
                    (_rate('otelcol_exporter_sent_spans_total{job="jaeger"}'), "Jaeger stored"),
                ],
                "ops",
            )
        )
        .with_panel(
            lines(
                "Spans refused or dropped at every hop",
                "Is anything lost? A refused span is sent again by otel-gym; a failed one at the Collector or "
                "Jaeger is gone from there and comes back with `otel-gym export`.",
                [
                    (_refused("collector"), "Collector refused"),
                    (_refused("jaeger"), "Jaeger refused"),
                    (GIVEN_UP, "{{job}} gave up ({{reason}})"),
                ],
                "ops",
            )
        )
        .with_panel(
            lines(
                "Collector queue",
                "How full is the Collector's queue on disk? It fills while Jaeger is away.",
                [
                    (
                        'sum by (exporter) (otelcol_exporter_queue_size{job="collector",data_type="traces"})',
                        "{{exporter}}",
                    ),
                    (
                        'sum by (exporter) (otelcol_exporter_queue_capacity{job="collector",data_type="traces"})',
                        "{{exporter}} at most",
                    ),
                ],
                "bytes",
            )
        )
        .with_panel(
            lines(
                "Series by rollout",
                "How many series of single rollouts live at once? At the limit, further rollouts have no "
                "figures in the dashboard One rollout; everything else goes on.",
                [
                    ("sum(otelcol_deltatocumulative_streams_tracked)", "streams"),
                    ("sum(otelcol_deltatocumulative_streams_limit)", "at most"),
                ],
                "short",
            )
        )
        .with_panel(
            lines(
                "Parts that answer",
                "Is every part of the stack up?",
                [("min by (job) (up)", "{{job}}")],
                "bool",
                top=1,
            )
        )
    )
