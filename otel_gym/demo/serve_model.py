"""A process that serves the embedded model until its standard input closes; started by `otel_gym.demo.engine`.

A process of its own keeps llama.cpp's threads and log lines out of whoever uses it, and it ends with its parent however that one ends.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Serve the GGUF file argv[1] with argv[2] slots of argv[3] tokens on port argv[6]; print the address, wait for end of input."""
    from xllamacpp import CommonParams, Server

    path, slots, context_tokens, threads, seed, port = sys.argv[1], *map(int, sys.argv[2:7])
    parameters = CommonParams()
    parameters.model.path = path
    parameters.model_alias = (
        {"smollm2-135m"} if isinstance(parameters.model_alias, set) else "smollm2-135m"
    )
    parameters.port = port
    parameters.n_parallel = slots
    parameters.n_ctx = slots * context_tokens
    parameters.cpuparams.n_threads = threads
    parameters.cpuparams_batch.n_threads = threads
    parameters.n_threads_http = slots + 4
    parameters.warmup = False
    parameters.sampling.seed = seed
    server = Server(parameters)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
