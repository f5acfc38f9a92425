# Every target sets up what it needs: Python 3.11 or later and make are enough.
PYTHON ?= python3
JOBS ?= auto
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help test quick lint format demo reproduce bench scoreboard soak docs clean $(VENV)

help: ## print this
	@awk -F ':.*## ' '/^[a-z.]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: lint $(VENV)/installed-dev ## linters, types and every test
	$(BIN)/python -m pytest -n $(JOBS)

quick: lint $(VENV)/installed-dev ## the same without the slow tests
	$(BIN)/python -m pytest -n $(JOBS) -m "not slow"

lint: $(VENV)/installed-dev ## linters and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/installed-dev ## put imports and layout right
	$(BIN)/ruff check --fix --select I
	$(BIN)/ruff format

demo: $(VENV)/installed-all ## see it work, in a minute or two
	$(BIN)/lbo demo $(ARGS)

reproduce: $(VENV)/installed-all ## the paper's figures and tables (ARGS=... goes to `lbo reproduce`)
	$(BIN)/lbo reproduce $(ARGS)

bench: $(VENV)/installed-bench ## speed, growth and sample efficiency beside other libraries (ARGS=--quick to see it work)
	$(BIN)/python benchmarks/latency.py $(ARGS)
	$(BIN)/python benchmarks/cold_start.py $(ARGS)
	$(BIN)/python benchmarks/throughput.py $(ARGS)
	$(BIN)/python benchmarks/growth.py $(ARGS)
	$(BIN)/python benchmarks/peers.py $(ARGS)
	$(BIN)/python -m lbo.experiments.results runs/bench --page docs/speed.md

scoreboard: $(VENV)/installed-dev ## sample efficiency against every rival, and whether it reaches its targets
	$(BIN)/python -m lbo.experiments.scoreboard $(ARGS)

soak: $(VENV)/installed-dev ## hundreds of killed processes, flipped bytes and simultaneous workers
	$(BIN)/python tests/soak.py $(ARGS)

docs: $(VENV)/installed-docs ## build the documentation into site/
	$(BIN)/mkdocs build --strict

clean: ## remove .venv, caches and builds
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV): $(VENV)/installed-dev ## set up for development, nothing else

# One environment, filled as far as a target asks: the stem is an extra of pyproject.toml, redone when that file changes.
$(VENV)/installed-%: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@
