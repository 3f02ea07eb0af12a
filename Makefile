# The two commands a newcomer types are `make demo` and `make test`.
PYTHON ?= python3
UV_VERSION := 0.13.9
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup demo test test-long model mutants check bench lock

setup: $(VENV)/.ready ## create .venv with everything pinned, and fetch the broker
	@$(BIN)/python -m horolog.broker.prepare

$(VENV)/.ready: pyproject.toml uv.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Horolog needs Python 3.11 or newer; PYTHON=… names another one." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "python3 -m venv does not work here; on Debian: apt install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv sync --frozen --inexact --quiet --active
	@touch $@

demo: setup ## see jobs fire
	@$(BIN)/horolog demo

test: setup ## everything but the long tests
	@$(BIN)/python -m pytest

test-long: setup ## the long tests
	@$(BIN)/python -m pytest -m long

model: setup ## check the TLA+ models and what breaks without each defence; NAMES=… for some
	@$(BIN)/python -m tests.models $(NAMES)

mutants: setup ## bugs made by hand, each to be found by an invariant; NAMES=… SEEDS=…
	@$(BIN)/python -m tests.mutants $(NAMES) $(SEEDS)

check: setup ## lint, types, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: setup ## figures as JSON lines; NAME=… for one figure or group
	@$(BIN)/python -m bench $(NAME)

lock: ## pin the newest allowed versions
	@$(BIN)/uv lock --upgrade
