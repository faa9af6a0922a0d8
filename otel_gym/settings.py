"""Everything a person configures: one YAML file and the standard OTEL_* variables, read once into frozen models.

The file is NeMo Gym's global configuration as its users have it: top-level `observability_enabled` and `model_call_capture_dir`, and blocks
`<name>: responses_api_models: <type>: {...}`. Our own keys stand in one top-level block `otel_gym:`. A standard variable wins over the file. Reference: `docs/settings.md`.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from otel_gym.errors import SettingsError

ContentCapture = Literal["NO_CONTENT", "SPAN_ONLY", "EVENT_ONLY", "SPAN_AND_EVENT"]
TraceContextMode = Literal["link", "parent", "ignore"]
ExportMode = Literal["live", "sidecar", "off"]
SEMCONV_VERSIONS: Final = ("genai-0.1", "genai-1.41", "openinference")

_CONTENT_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


def _known_semconv(versions: tuple[str, ...]) -> tuple[str, ...]:
    if not versions:
        raise ValueError(f"must name at least one of {', '.join(SEMCONV_VERSIONS)}")
    for version in versions:
        if version not in SEMCONV_VERSIONS:
            raise ValueError(f"knows {', '.join(SEMCONV_VERSIONS)}, not {version!r}")
    if versions[0] == "openinference":
        raise ValueError("begins with a genai version: openinference only adds names")
    return versions


def _lower_names(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.lower() for name in names)


class BridgeSettings(BaseModel):
    """The block `otel_gym:`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    capture_durability_timeout: float = Field(
        5.0,
        gt=0,
        description="Longest wait for a record to become durable before its response is released, in seconds.",
    )
    capture_terminal_grace: float = Field(
        0.05,
        ge=0,
        description="How long a stream may go on after its terminal event before its record is closed, in seconds.",
    )
    capture_queue_max_bytes: int = Field(
        256 * 1024 * 1024,
        gt=0,
        description="Bytes of finished calls that may wait for the writer, in bytes.",
    )
    capture_max_body_bytes: int = Field(
        64 * 1024 * 1024,
        ge=1024,
        description="A larger body is forwarded whole and recorded as head, tail, size and digest, in bytes.",
    )
    capture_redact: tuple[str, ...] = Field(
        (),
        description="JSON paths of request and response fields that are replaced before anything is written.",
    )
    capture_file_mode: int = Field(
        0o600, ge=0, le=0o777, description="Mode of the files in the capture directory."
    )
    capture_directory_mode: int = Field(
        0o700, ge=0, le=0o777, description="Mode of the capture directory."
    )
    capture_rollout_ids: tuple[str, ...] = Field(
        (),
        description="Where not empty: patterns (`*`, `?`) of the only rollout ids that are captured.",
    )
    run_id: str | None = Field(
        None, description="Name of the run for a directory that has no run.json yet."
    )
    request_stream_usage: bool = Field(
        False,
        description="Ask the engine for usage on chat and completions streams whose caller did not, and keep it from the caller.",
    )
    provider: str | None = Field(
        None, description="`gen_ai.provider.name` of the engine; null leaves it to the rule table."
    )
    trace_context: TraceContextMode = Field(
        "link", description="What an inbound traceparent becomes: a link, the parent, or nothing."
    )
    span_headers: Annotated[tuple[str, ...], AfterValidator(_lower_names)] = Field(
        (), description="Request headers that become span attributes; secrets are refused."
    )
    span_baggage: tuple[str, ...] = Field(
        (), description="Baggage keys that become span attributes."
    )
    span_max_bytes: int = Field(
        64 * 1024, ge=4096, description="Budget of one span's attributes, in bytes."
    )
    semconv: Annotated[tuple[str, ...], AfterValidator(_known_semconv)] = Field(
        ("genai-0.1", "genai-1.41"),
        description="Convention versions: the first is primary, the others add the names in which they differ.",
    )
    export: ExportMode = Field(
        "live",
        description="Who exports: this process, a sidecar (`otel-gym export --follow`), or nobody.",
    )
    export_queue_max_spans: int = Field(
        8192, gt=0, description="Spans that may wait for the backend in memory."
    )
    export_queue_max_bytes: int = Field(
        64 * 1024 * 1024,
        gt=0,
        description="Bytes of records that may wait for the backend in memory, in bytes.",
    )
    export_batch_max_bytes: int = Field(
        3 * 1024 * 1024,
        ge=65536,
        description="Largest export request, in bytes; gRPC servers refuse 4 MiB by default.",
    )
    export_batch_max_spans: int = Field(512, gt=0, description="Most spans in one export request.")
    export_interval: float = Field(
        1.0, gt=0, description="Longest time a span waits for its batch to fill, in seconds."
    )
    shutdown_timeout: float = Field(
        5.0, gt=0, description="Bound on draining records and spans at shutdown, in seconds."
    )
    otlp_endpoint: str | None = Field(
        None, description="Base URL of the OTLP backend; OTEL_EXPORTER_OTLP_ENDPOINT wins over it."
    )


class ModelServerSettings(BaseModel):
    """One block `<name>: responses_api_models: <type>: {...}`; keys that only Gym itself needs are let through."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str = Field("model", description="Name of the block; the `model_ref` of its records.")
    type: str = Field("", description="Type of the server, such as `vllm_model` or `openai_model`.")
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int | None = Field(
        None, ge=0, le=65535, description="Port to listen on; null takes a free one."
    )
    base_url: str | tuple[str, ...] | None = Field(
        None,
        description="URL of the engine, with or without /v1; of several, the first.",
        repr=False,
    )
    api_key: str | None = Field(
        None, description="Key that the engine wants; never recorded.", repr=False
    )
    model: str | None = Field(None, description="Model name at the engine.")
    provider: str | None = Field(None, description="`gen_ai.provider.name` of this engine.")
    sampling_overrides: dict[str, Any] | None = Field(
        None, description="Sampling parameters that replace the caller's on every generation path."
    )
    sampling_allow_unknown: bool = Field(
        False, description="Let names through that the parameter table does not know."
    )
    extra_body: dict[str, Any] | None = Field(
        None, description="Fields merged into each generation request; the caller's own value wins."
    )
    use_completions_api: bool = Field(
        False, description="Render chat requests and send them to /v1/completions."
    )
    chat_template: str | None = Field(
        None,
        description="Jinja chat template, or a path of one, for `use_completions_api`; null asks the engine.",
    )

    @property
    def engine_url(self) -> str | None:
        """Root URL of the engine without a trailing slash or /v1; null where none is configured."""
        url = (
            self.base_url
            if isinstance(self.base_url, str | None)
            else (self.base_url or (None,))[0]
        )
        if url is None:
            return None
        url = url.rstrip("/")
        return url.removesuffix("/v1")


class Settings(BaseModel):
    """All settings of a process."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    observability_enabled: bool = Field(
        False,
        description="Whether anything is captured; off, nothing is written and no OpenTelemetry SDK is loaded.",
    )
    model_call_capture_dir: Path | None = Field(
        None, description="Absolute path of the capture directory: one run."
    )
    otel_gym: BridgeSettings = Field(default_factory=BridgeSettings, description="Our own keys.")
    model_servers: dict[str, ModelServerSettings] = Field(
        default_factory=dict,
        description="Model servers by name, from the `responses_api_models` blocks.",
    )
    agents: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="Agents by name, from the `responses_api_agents` blocks, as they stand.",
    )
    content_capture: ContentCapture = Field(
        "NO_CONTENT",
        description=f"Whether message content goes into spans or events; from {_CONTENT_VARIABLE}.",
    )
    otlp_endpoint: str | None = Field(
        None, description="Base URL of the OTLP backend; null exports nothing."
    )
    source: str = Field("defaults", description="Where the settings came from, for messages.")

    def model_server(self, name: str | None = None) -> ModelServerSettings:
        """The model server `name`, or the only one. Raises `SettingsError` where that is not clear."""
        if name is not None:
            if name not in self.model_servers:
                raise SettingsError(
                    f"{self.source}: no model server named {name!r}{_nearest(name, self.model_servers)}"
                )
            return self.model_servers[name]
        if len(self.model_servers) > 1:
            names = ", ".join(sorted(self.model_servers))
            raise SettingsError(
                f"{self.source}: has several model servers ({names}); choose one by name"
            )
        return next(iter(self.model_servers.values()), ModelServerSettings())


def load_settings(
    path: Path | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """The settings of `path` (null: defaults), under the OTEL_* variables, under `overrides` (command line flags).

    `overrides` has the shape of the file. Raises `SettingsError`: one line with the file, the key, its value and what to do.
    """
    raw: dict[str, Any] = {} if path is None else _read(path)
    return settings_from(
        _merged(raw, overrides or {}), source=str(path or "settings"), environment=environment
    )


def settings_from(
    raw: Mapping[str, Any], *, source: str = "settings", environment: Mapping[str, str] = os.environ
) -> Settings:
    """Settings from a mapping of the file's shape, such as Gym's global configuration. Raises `SettingsError`."""
    values: dict[str, Any] = {
        key: raw[key]
        for key in ("observability_enabled", "model_call_capture_dir")
        if raw.get(key) is not None
    }
    values["otel_gym"] = raw.get("otel_gym") or {}
    values["model_servers"] = _blocks(raw, "responses_api_models", source)
    values["agents"] = _blocks(raw, "responses_api_agents", source)
    values["content_capture"] = _content_capture(environment)
    values["source"] = source
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(f"{source}: {_first_problem(error)}") from None
    _check_directory(settings)
    return settings.model_copy(update={"otlp_endpoint": _endpoint(settings, environment)})


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: is not UTF-8 text") from None
    try:
        if "${" in text:
            # Gym's configurations refer to each other's keys; its own resolver reads them as their authors meant.
            from omegaconf import OmegaConf

            loaded: Any = OmegaConf.to_container(
                OmegaConf.create(yaml.safe_load(text) or {}), resolve=True
            )
        else:
            loaded = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise SettingsError(f"{path}: is not valid YAML{place}") from None
    except Exception as error:  # noqa: BLE001 - the resolver has its own tree of errors; each is a wrong value in the file
        raise SettingsError(f"{path}: {str(error).splitlines()[0]}") from None
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise SettingsError(f"{path}: must hold a mapping of keys, not a {type(loaded).__name__}")
    return loaded


def _blocks(raw: Mapping[str, Any], kind: str, source: str) -> dict[str, dict[str, Any]]:
    """The servers of one kind, by name, each with its `name` and `type`."""
    found: dict[str, dict[str, Any]] = {}
    for name, block in raw.items():
        if not isinstance(block, Mapping) or not isinstance(block.get(kind), Mapping):
            continue
        for type_, values in block[kind].items():
            if not isinstance(values, Mapping):
                raise SettingsError(f"{source}: {name}.{kind}.{type_} must be a mapping of keys")
            found[str(name)] = {**values, "name": str(name), "type": str(type_)}
    return found


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = _merged(merged[key], value)
        else:
            merged[key] = value
    return merged


def _content_capture(environment: Mapping[str, str]) -> str:
    value = environment.get(_CONTENT_VARIABLE, "").strip().upper()
    if value in ("", "FALSE", "0"):
        return "NO_CONTENT"
    if value in ("TRUE", "1"):
        return "SPAN_ONLY"
    if value not in ("NO_CONTENT", "SPAN_ONLY", "EVENT_ONLY", "SPAN_AND_EVENT"):
        raise SettingsError(
            f"{_CONTENT_VARIABLE}={value}: must be NO_CONTENT, SPAN_ONLY, EVENT_ONLY or SPAN_AND_EVENT"
        )
    return value


def _endpoint(settings: Settings, environment: Mapping[str, str]) -> str | None:
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if environment.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none":
        return None
    endpoint = (
        environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
        or environment.get("OTEL_EXPORTER_OTLP_ENDPOINT")
        or settings.otel_gym.otlp_endpoint
    )
    if endpoint and "://" not in endpoint:
        raise SettingsError(
            f"OTLP endpoint {endpoint!r}: must be a URL such as http://127.0.0.1:4318"
        )
    return endpoint or None


def _check_directory(settings: Settings) -> None:
    directory = settings.model_call_capture_dir
    if directory is not None and not directory.is_absolute():
        raise SettingsError(
            f"{settings.source}: model_call_capture_dir: {str(directory)!r} must be an absolute path"
        )
    if settings.observability_enabled and directory is None:
        raise SettingsError(
            f"{settings.source}: observability_enabled is true but model_call_capture_dir is missing; name an absolute path"
        )


def _first_problem(error: ValidationError) -> str:
    """The first thing wrong, as `key: value: what to do`."""
    problem = error.errors(include_url=False)[0]
    parts = [
        str(part)
        for part in problem["loc"]
        if not str(part).startswith(("function-", "tuple[", "constrained-"))
    ]
    key = ".".join(parts)
    if problem["type"] == "extra_forbidden":
        return f"{key}: is no setting{_nearest(parts[-1], BridgeSettings.model_fields)}"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{key}: {problem['input']!r}: {message}"


def _nearest(name: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
