# Two commands do everything: `make demo` and `make test`.  Both make a private .venv first.
# All paths are relative, so that the checkout may live under a name with spaces.
SHELL := /bin/sh
.DEFAULT_GOAL := help
PY := .venv/bin/python
# Tests start real processes: more workers than cores would only measure the scheduler.
TESTS ?= tests
PYTEST_ARGS ?= -n auto --maxprocesses=4 --dist=worksteal

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

.PHONY: venv
venv: ## Make or refresh the private environment (.venv) from the pinned requirements
	@sh tools/setup-venv.sh

.PHONY: demo
demo: venv ## Start a program, kill -9 its starter, come back, see the whole timeline
	@$(PY) examples/demo.py

.PHONY: test
test: venv ## Run the whole test suite (TESTS=path, PYTEST_ARGS=... to narrow it)
	@$(PY) -m pytest $(PYTEST_ARGS) $(TESTS)

.PHONY: systemd
systemd: venv ## Test our unit under a real systemd, in namespaces of its own (root, cgroup v2)
	@DURABLE_SUPERVISOR_TEST_SYSTEMD=1 $(PY) -m pytest tests/service/test_systemd.py

.PHONY: load
load: venv ## Test the service under load, in the long form: kills, restarts, crowds, deaf followers
	@LOAD_TESTS_FULL=1 $(PY) -m pytest tests/service/test_load.py tests/client/test_restarts.py

.PHONY: lab
lab: venv ## Test against every kind of disaster, in the long form (LAB_SEED=n does one experiment again)
	@LAB_FULL=1 $(PY) -m pytest -s -rs $(if $(LAB_SEED),tests/lab/model,tests/lab)

.PHONY: lint
lint: venv ## Check style and likely bugs
	@$(PY) -m ruff check .

.PHONY: types
types: venv ## Check types, strictly
	@$(PY) -m mypy

.PHONY: layers
layers: venv ## Check which layer may import which
	@$(PY) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()' --no-cache

.PHONY: check
check: lint types layers test ## All of the above checks

.PHONY: schemas
schemas: venv ## Write docs/schemas/*.json from the documents that --json prints
	@$(PY) -m durable_supervisor.wire.schemas docs/schemas

.PHONY: browser
browser: venv ## Look at a report in a real chromium (they skip, saying so, where there is none)
	@$(PY) -m pytest -rs $(PYTEST_ARGS) tests/browser

.PHONY: openapi
openapi: venv ## Write docs/openapi.json from the service's route table
	@$(PY) -m durable_supervisor.server.routes.openapi docs/openapi.json

.PHONY: bench
bench: venv ## Measure everything, beside baselines and peers, into bench/results (BENCH_ARGS="--quick --peers none")
	@$(PY) -m bench $(BENCH_ARGS)

.PHONY: build
build: venv ## Build the wheel and the source archive into dist/
	@$(PY) -m build --no-isolation

.PHONY: clean
clean: ## Remove the environment, caches and built files
	rm -rf .venv bench/.venv dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
