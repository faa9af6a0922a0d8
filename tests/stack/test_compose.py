"""docker-compose.yml: read by the real Compose, checked rule by rule, and brought up on a real engine."""

import json
import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from otel_gym.correlation import trace_ids
from tests.stack import gym_image
from tests.stack.engine import Engine, images
from tests.stack.traffic import send_rollouts
from tools.backends.build import BackendUnavailable
from tools.backends.compose import compose
from tools.backends.processes import free_port, get_json

pytestmark = pytest.mark.stack

REPOSITORY = Path(__file__).resolve().parents[2]
PORTS = (
    "JAEGER_PORT",
    "OTLP_GRPC_PORT",
    "OTLP_HTTP_PORT",
    "BACKFILL_GRPC_PORT",
    "BACKFILL_HTTP_PORT",
    "PROMETHEUS_PORT",
    "GRAFANA_PORT",
    "GYM_PORT",
)
PATIENCE_SECONDS = 90.0
FILES = {
    "stack": ("docker-compose.yml",),
    "scale": ("docker-compose.yml", "docker-compose.scale.yml"),
}

WRITES_ITS_CONFIGURATION = ("kafka", "cassandra")
"""Their images make configuration files from environment variables when they start."""


def _cannot(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def docker_compose() -> Path:
    """The real Compose."""
    try:
        return compose()
    except BackendUnavailable as reason:
        _cannot(str(reason))
        raise


@pytest.fixture(scope="module")
def configuration(docker_compose: Path) -> Callable[[str], dict[str, Any]]:
    """The files of a variant as Compose understands them, every profile on."""

    def read(variant: str) -> dict[str, Any]:
        files = [part for name in FILES[variant] for part in ("--file", name)]
        done = subprocess.run(
            [docker_compose, *files, "--profile", "*", "config", "--format", "json"],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return dict(json.loads(done.stdout))

    return read


@pytest.mark.parametrize("variant", FILES)
def test_compose_reads_the_files(
    configuration: Callable[[str], dict[str, Any]], variant: str
) -> None:
    """Compose takes the files without an error or a warning; every image has a pinned tag."""
    for name, service in configuration(variant)["services"].items():
        assert re.fullmatch(r"[\w./-]+:[\w.-]+", service["image"]), name
        assert not service["image"].endswith(":latest"), name


@pytest.mark.parametrize("variant", FILES)
def test_each_service_is_confined(
    configuration: Callable[[str], dict[str, Any]], variant: str
) -> None:
    """Every service has a memory limit, no capability it can spare, a read-only root, no new privileges, no root user
    but for the one-shot that owns the volumes, and ports on loopback only."""
    for name, service in configuration(variant)["services"].items():
        assert int(service["mem_limit"]) > 0, name
        assert service["cap_drop"] == ["ALL"], name
        assert service.get("read_only") is True or name in WRITES_ITS_CONFIGURATION, name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert {port["host_ip"] for port in service.get("ports", [])} <= {"127.0.0.1"}, name
        if name == "init-volumes":
            assert service["network_mode"] == "none"
            assert service["cap_add"] == ["CHOWN"]
        else:
            assert service["user"].split(":")[0] not in ("0", "root"), name
            assert "cap_add" not in service, name


@pytest.mark.parametrize("variant", FILES)
def test_each_service_is_watched_and_waited_for(
    configuration: Callable[[str], dict[str, Any]], variant: str
) -> None:
    """Each long-running service has a health check or another that asks for its health; starts follow conditions."""
    services = configuration(variant)["services"]
    for name, service in services.items():
        asked_by_others = any(
            name in " ".join(other.get("healthcheck", {}).get("test", []))
            for other in services.values()
        )
        once = name.startswith("init-")
        assert once or "healthcheck" in service or asked_by_others, name
        for needed in service.get("depends_on", {}).values():
            assert needed["condition"] in (
                "service_healthy",
                "service_completed_successfully",
                "service_started",
            )


def test_no_password_is_in_the_files(configuration: Callable[[str], dict[str, Any]]) -> None:
    """Grafana lets an anonymous viewer read and nobody log in; no variable of any service holds a password."""
    for variant in FILES:
        services = configuration(variant)["services"]
        grafana = services["grafana"]["environment"]
        assert grafana["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
        assert grafana["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
        assert grafana["GF_AUTH_BASIC_ENABLED"] == "false"
        for name, service in services.items():
            for key, value in (service.get("environment") or {}).items():
                assert not (re.search("PASSWORD|SECRET|TOKEN", key) and value), (name, key)


def test_grafana_keeps_the_data_sources_of_its_image(
    configuration: Callable[[str], dict[str, Any]],
) -> None:
    """Grafana replaces no plugin when it starts: on a read-only root that would leave it without its data sources, and
    every panel without data. Each variable of its provisioning files is set, or a link would be empty."""
    for variant in FILES:
        grafana = configuration(variant)["services"]["grafana"]
        environment = grafana["environment"]
        assert environment["GF_PLUGINS_PREINSTALL_DISABLED"] == "true"
        assert environment["GF_PLUGINS_PREINSTALL_AUTO_UPDATE"] == "false"
        mounted = {
            volume["target"].removeprefix("/etc/grafana/provisioning/"): Path(volume["source"])
            for volume in grafana["volumes"]
            if volume["target"].startswith("/etc/grafana/provisioning/")
        }
        assert set(mounted) == {"datasources", "dashboards"}
        for folder in mounted.values():
            for path in folder.iterdir():
                used = set(re.findall(r"(?<!\$)\$\{?([A-Z_]+)", path.read_text()))
                assert used <= set(environment), path


@pytest.fixture(scope="module")
def engine(
    backend_program: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """A Docker engine with stand-ins for all images but Grafana's."""
    for name in ("jaeger", "otelcol", "prometheus"):
        backend_program(name)
    busybox = shutil.which("busybox")
    if busybox is None:
        _cannot("no busybox in PATH for the images' health checks (Debian: busybox-static)")
    if b"ld-linux" in Path(str(busybox)).read_bytes()[:4096]:
        _cannot("busybox in PATH is not a static one, as images need it (Debian: busybox-static)")
    engine = Engine(tmp_path_factory.mktemp("docker"))
    if reason := engine.start():
        _cannot(reason)
    try:
        text = (REPOSITORY / ".env").read_text()
        tags = dict(re.findall(r"^(\w+)_TAG=(\S+)$", text, re.MULTILINE))
        for name, image in images(Path(str(busybox))).items():
            key = {"otel/opentelemetry-collector-contrib": "OTELCOL"}.get(
                name, name.split("/")[-1].upper()
            )
            engine.import_image(f"{name}:{tags[key]}", image)
        engine.import_archive("otel-gym:local", gym_image.archive(), gym_image.changes())
        yield engine
    finally:
        engine.stop()


class Project:
    """One run of the compose file under a name and ports of its own."""

    def __init__(self, docker_compose: Path, engine: Engine) -> None:
        self._compose = docker_compose
        self._ports = {name: free_port() for name in PORTS}
        self.name = f"otelgym{os.getpid()}"
        self._environment: Mapping[str, str] = {
            **os.environ,
            "DOCKER_HOST": engine.host,
            "ENGINE_URL": "http://127.0.0.1:9",  # nobody: a call to it fails, and is a record like any other
            **{name: str(port) for name, port in self._ports.items()},
        }

    def url(self, port: str) -> str:
        """The loopback URL of a published port."""
        return f"http://127.0.0.1:{self._ports[port]}"

    def run(self, *arguments: str) -> str:
        """The output of a compose command; raises when it fails."""
        done = subprocess.run(
            [self._compose, "--project-name", self.name, *arguments],
            cwd=REPOSITORY,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def _spans(project: Project, trace_id: str) -> set[str]:
    try:
        data = get_json(f"{project.url('JAEGER_PORT')}/api/traces/{trace_id}")["data"]
    except (urllib.error.URLError, ConnectionError):
        return set()
    return {span["spanID"] for span in data[0]["spans"]} if data else set()


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.25)


def _call_through_the_gym(project: Project) -> None:
    """A call to the service `gym` is a record in the volume of captures and a span in Jaeger."""
    request = urllib.request.Request(
        f"{project.url('GYM_PORT')}/ng-rollout/0-0/v1/chat/completions",
        json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]}).encode(),
        {"content-type": "application/json"},
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)
    assert refused.value.code == 502
    refused.value.close()
    read = (
        "import json; run, call = open('/captures/run.json'), open('/captures/0-0.capture.jsonl');"
        "print(json.dumps([json.load(run)['run_id'], json.loads(call.read())['model_call_id']]))"
    )
    run_id, call_id = json.loads(
        project.run("--profile", "gym", "exec", "-T", "gym", "python", "-c", read)
    )
    trace, span = trace_ids.trace_id(run_id, "0-0"), trace_ids.span_id(call_id)
    _until(lambda: span in _spans(project, trace))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_up_shows_traces_and_metrics_and_down_leaves_nothing(
    docker_compose: Path, engine: Engine
) -> None:
    """`up -d --wait` succeeds (without Grafana, whose image can't be had here); spans sent to its port are in Jaeger and
    counted in Prometheus, a call to the gym is recorded in its volume; both survive restarts and a killed Collector; `down -v` leaves no volume."""
    project = Project(docker_compose, engine)
    up = ("--profile", "gym", "up", "-d", "--no-build", "--wait", "--wait-timeout", "120")
    services = ("jaeger", "otel-collector", "otel-collector-ready", "prometheus")
    try:
        project.run(*up, *services, "gym")
        sent = send_rollouts(project.url("OTLP_HTTP_PORT"), "compose", 5, 8)
        _until(lambda: all(_spans(project, t) == ids for t, ids in sent.spans.items()))
        query = f"{project.url('PROMETHEUS_PORT')}/api/v1/query"
        _until(
            lambda: any(
                float(series["value"][1]) == sent.calls
                for series in get_json(query, query="sum(traces_span_metrics_calls_total)")["data"][
                    "result"
                ]
            )
        )
        exemplars = get_json(
            f"{query}_exemplars",
            query="traces_span_metrics_duration_milliseconds_bucket",
            start=str(time.time() - 600),
            end=str(time.time() + 60),
        )["data"]
        assert {
            each["labels"]["trace_id"] for series in exemplars for each in series["exemplars"]
        } <= sent.spans.keys()
        assert exemplars
        _call_through_the_gym(project)
        project.run("kill", "jaeger")
        more = send_rollouts(project.url("OTLP_HTTP_PORT"), "meanwhile", 3, 8)
        project.run("kill", "otel-collector")
        project.run(*up, *services)
        everything = {**sent.spans, **more.spans}
        _until(lambda: all(_spans(project, t) == ids for t, ids in everything.items()))
    finally:
        logs = project.run("--profile", "gym", "logs", "--no-color", "--tail", "40")
        project.run("--profile", "gym", "down", "-v", "--timeout", "5")
    assert "permission denied" not in logs.lower()
    assert engine.run("volume", "ls", "-q", "--filter", f"name={project.name}") == ""
    assert engine.run("ps", "-aq", "--filter", f"name={project.name}") == ""
