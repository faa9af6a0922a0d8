"""The image of `otel-gym` without a base image: this very Python, the packages that otel-gym needs, and its code.

The published way is the Dockerfile; it needs `python:…-slim` from a registry. What this tree shares with that image is what
the compose file relies on: `otel-gym` as the entry point, `python` in PATH, and a user that is not root.
"""

import io
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CODE = "/opt/otel-gym"


def archive() -> bytes:
    """The image's file tree as a tar archive."""
    data = io.BytesIO()
    libraries: set[Path] = set()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, path in _files():
            tar.add(path.resolve(), name.lstrip("/"), recursive=False)
            if ".so" in path.name or path.name.startswith("python"):
                libraries |= _libraries(path)
        for library in sorted(libraries):
            tar.add(library.resolve(), str(library).lstrip("/"), recursive=False)
        starter = b"#!/usr/local/bin/python\nfrom otel_gym.cli.main import main\nmain()\n"
        entry = tarfile.TarInfo("usr/local/bin/otel-gym")
        entry.mode, entry.size = 0o755, len(starter)
        tar.addfile(entry, io.BytesIO(starter))
    return data.getvalue()


def changes() -> list[str]:
    """The settings of the image, as `docker import --change` takes them."""
    return [
        'ENTRYPOINT ["otel-gym"]',
        f"ENV PATH=/usr/local/bin PYTHONPATH={CODE} PYTHONHOME=/usr/local PYTHONUNBUFFERED=1",
        "USER 10001:10001",
    ]


def _files() -> Iterator[tuple[str, Path]]:
    """Pairs of (path in the image, file): the interpreter, its library, the packages and our own."""
    base = Path(sys.base_prefix)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    yield "/usr/local/bin/python", Path(sys.executable).resolve()
    for path in (base / "lib" / version).rglob("*"):
        parts = path.relative_to(base / "lib" / version).parts
        spare = {"site-packages", "test", "tests", "idlelib", "ensurepip", "__pycache__"}
        if path.is_file() and not spare & set(parts) and not parts[0].startswith("config-"):
            yield f"/usr/local/lib/{version}/{'/'.join(parts)}", path
    for name in sorted(_needed("otel-gym", set()) - {"otel-gym"}):
        for file in distribution(name).files or ():
            path = Path(str(file.locate()))
            if path.is_file() and ".." not in file.parts and path.suffix != ".pyc":
                yield f"{CODE}/{file}", path
    for path in (REPOSITORY / "otel_gym").rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            yield f"{CODE}/{path.relative_to(REPOSITORY)}", path
    metadata = distribution("otel-gym")
    for file in metadata.files or ():
        if file.parts[0].endswith(".dist-info"):
            yield f"{CODE}/{file}", Path(str(file.locate()))


def _needed(name: str, seen: set[str]) -> set[str]:
    """The names of a distribution's requirements, its own included; extras and other platforms stay out."""
    if name in seen:
        return seen
    seen.add(name)
    for requirement in distribution(name).requires or ():
        if "extra ==" in requirement or re.search(
            r"(win32|emscripten|python_version <)", requirement
        ):
            continue
        found = re.match(r"[A-Za-z0-9._-]+", requirement)
        assert found is not None
        try:
            distribution(found.group())
        except ModuleNotFoundError:
            continue  # for another Python
        _needed(found.group().lower().replace("_", "-"), seen)
    return seen


def _libraries(path: Path) -> set[Path]:
    """The shared libraries that a program or extension loads, the loader included."""
    listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
    found = re.findall(r"(?:=> )?(/\S+) \(0x", listed)
    packages = str(Path(sys.prefix).resolve())
    return {Path(each) for each in found if not each.startswith(packages)}
