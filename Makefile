# `make` checks and tests everything; `make demo` shows the main job. Nothing but Python >= 3.11 is assumed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed
DEMO_FLAGS ?=
STACK_FLAGS ?=
OTLP ?=

.DEFAULT_GOAL := test
.PHONY: test check demo install format stack backends clean

install: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("otel-gym needs Python 3.11 or newer; set PYTHON=...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)

demo: $(READY)
	$(BIN)/otel-gym demo $(if $(OTLP),--otlp-endpoint $(OTLP)) $(DEMO_FLAGS)

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check
	$(BIN)/python -m pytest

# The tracing stack without Docker, from local binaries; runs until it is interrupted.
stack: $(READY)
	$(BIN)/python -m tools.stack $(STACK_FLAGS)

# Build Jaeger, the Collector and Prometheus for the tests, once (minutes; needs Go >= 1.26).
backends: $(READY)
	$(BIN)/python -m tools.backends.build

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
