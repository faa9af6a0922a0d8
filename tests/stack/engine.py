"""A Docker engine for the compose test, and images under the names of the compose file, made of local binaries.

An engine without an image registry can't pull, so each image is imported as a small file tree: the program at the path
where the published image has it, and Debian's static busybox for the health checks. Grafana has no such stand-in.
"""

import io
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools.backends.build import program

NOBODY = 65534
START_SECONDS = 60.0


@dataclass(frozen=True)
class Image:
    """What an image holds: programs by their path, empty folders with their owner, and how it starts."""

    programs: Mapping[str, Path]
    entrypoint: str = ""
    folders: Mapping[str, int] = field(default_factory=dict)

    def archive(self) -> bytes:
        """The image's file tree as a tar archive."""
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            for name, owner in self.folders.items():
                entry = tarfile.TarInfo(name.lstrip("/"))
                entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, 0o755, owner, owner
                tar.addfile(entry)
            for name, path in self.programs.items():
                entry = tarfile.TarInfo(name.lstrip("/"))
                entry.size, entry.mode = path.stat().st_size, 0o755
                with path.open("rb") as source:
                    tar.addfile(entry, source)
        return data.getvalue()


def images(busybox: Path) -> dict[str, Image]:
    """The stand-ins by image name, without tags."""
    return {
        "busybox": Image(
            {f"/bin/{name}": busybox for name in ("busybox", "chown", "sleep", "wget")}
        ),
        "jaegertracing/jaeger": Image(
            {"/cmd/jaeger/jaeger-linux": program("jaeger"), "/usr/bin/wget": busybox},
            "/cmd/jaeger/jaeger-linux",
        ),
        "otel/opentelemetry-collector-contrib": Image(
            {"/otelcol-contrib": program("otelcol")}, "/otelcol-contrib"
        ),
        "prom/prometheus": Image(
            {"/bin/prometheus": program("prometheus"), "/bin/wget": busybox},
            "/bin/prometheus",
            {"/prometheus": NOBODY},
        ),
    }


class Engine:
    """A Docker engine: the one that runs already, or one of our own in a folder, which `stop` ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")

    def start(self) -> str:
        """Make sure that an engine answers; returns the reason in one line where none can."""
        if shutil.which("docker") is None:
            return "no docker in PATH"
        if self._answers():
            return ""
        if shutil.which("dockerd") is None or os.geteuid() != 0:
            return "no Docker engine answers, and none can be started here (needs dockerd and root)"
        self._folder.mkdir(parents=True, exist_ok=True)
        self.host = f"unix://{self._folder / 'docker.sock'}"
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "dockerd",
                    f"--host={self.host}",
                    # No bridge of its own: it would outlive the engine. Compose makes and removes its networks.
                    "--bridge=none",
                    "--host-gateway-ip=127.0.0.1",
                    f"--data-root={self._folder / 'data'}",
                    f"--exec-root={self._folder / 'exec'}",
                    f"--pidfile={self._folder / 'pid'}",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                last = (self._folder / "log").read_text(errors="replace").splitlines()[-1:]
                self.stop()
                return f"dockerd does not start: {' '.join(last)[:300]}"
            time.sleep(0.2)
        return ""

    def stop(self) -> None:
        """End the engine if it is ours."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None

    def run(self, *arguments: str, given: bytes | None = None) -> str:
        """The output of a docker command; raises when it fails."""
        done = subprocess.run(
            ["docker", *arguments],
            input=given,
            capture_output=True,
            env={**os.environ, "DOCKER_HOST": self.host},
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def import_image(self, name: str, image: Image) -> None:
        """Add an image under a name with its tag."""
        changes = [f'ENTRYPOINT ["{image.entrypoint}"]'] if image.entrypoint else []
        self.import_archive(name, image.archive(), changes)

    def import_archive(self, name: str, archive: bytes, changes: list[str]) -> None:
        """Add a file tree as an image, with settings as a Dockerfile writes them."""
        self.run("import", *(f"--change={each}" for each in changes), "-", name, given=archive)

    def _answers(self) -> bool:
        return (
            subprocess.run(
                ["docker", "info"],
                capture_output=True,
                env={**os.environ, "DOCKER_HOST": self.host},
                check=False,
            ).returncode
            == 0
        )
