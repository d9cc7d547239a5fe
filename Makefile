# Thin names for native commands. `make run` and `make test` each work alone on a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export PATH := $(CURDIR)/$(BIN):$(PATH)
export DO_NOT_TRACK := 1
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export DVC_NO_ANALYTICS := 1
export MLFLOW_DISABLE_TELEMETRY := true

.PHONY: run test test-all check ui docs paper medium clean help

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ \t/'

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("sfumato needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)
	@# Compiling every module of every package takes a minute; Python compiles what is imported, once.
	$(BIN)/python -m pip install --disable-pip-version-check --no-compile -q -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

run: $(STAMP)  ## the main job: every stage that is not cached, then a table and where to look
	$(BIN)/python -m flows.reproduce

test: check  ## everything but the slow tests
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-all: check  ## the slow tests too
	$(BIN)/python -m pytest -n 2 --dist loadfile -m 'slow or not slow' --hypothesis-profile explore

check: $(STAMP)  ## lint, format, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports --no-cache

ui: $(STAMP)  ## the MLflow comparison UI and the Prefect UI, on this machine only
	$(BIN)/python -m flows.ui

docs: $(STAMP)  ## refresh the README's table and docs/claims.* from the last run and results/
	$(BIN)/python -m tasks.docs

medium: $(STAMP)  ## the medium profile: long, resumable, figures go to results/medium
	$(BIN)/python -m flows.workspace --profile medium --all

paper: $(STAMP)  ## the paper's scale: days on two cores, resumable
	$(BIN)/python -m flows.workspace --profile paper --all

clean:  ## remove the environment, caches and run-time state; data/raw stays
	rm -rf $(VENV) .runtime .dvc/cache .dvc/tmp .pytest_cache .ruff_cache .hypothesis
