# make demo   see it work, end to end, on SQLite     make test       set up and pass the quick tests
#                                                    make test-all   those that take long, too
# Needs Python >= 3.11, pip and make, the tests git too; everything else comes from PyPI into .venv.

PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2
PARALLEL := -n $(WORKERS) --dist worksteal
TREE := --editable recrawl_client --editable recrawl_lab
PROJECTS := pyproject.toml recrawl_client/pyproject.toml recrawl_lab/pyproject.toml

.PHONY: demo test test-all lint serve bench bench-leases bench-core bench-polite bench-strangers faults fuzz clean

demo: .venv/demo
	$(BIN)/recrawl demo $(ARGS)

test: .venv/dev
	$(BIN)/pytest $(PARALLEL) -m "not slow" $(ARGS)

test-all: .venv/dev
	$(BIN)/pytest $(PARALLEL) --hypothesis-profile thorough $(ARGS)

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/recrawl openapi --check openapi/openapi.json
	$(BIN)/python tools/house.py

serve: .venv/demo
	$(BIN)/recrawl serve $(ARGS)

bench: .venv/dev
	$(BIN)/python -m benchmarks.http $(ARGS)

bench-leases: .venv/dev
	$(BIN)/python -m benchmarks.leases $(ARGS)

bench-core: .venv/dev
	$(BIN)/python -m benchmarks.core $(ARGS)

bench-polite: .venv/dev
	$(BIN)/python -m benchmarks.polite $(ARGS)

bench-strangers: .venv/dev
	$(BIN)/python -m benchmarks.strangers $(ARGS)

faults: .venv/dev
	$(BIN)/python -m benchmarks.faults $(ARGS)

fuzz: .venv/dev
	$(BIN)/python -m benchmarks.fuzz $(ARGS)

.venv/demo: $(PROJECTS) | .venv/python
	$(BIN)/pip install --quiet $(TREE) --editable '.[lab]'
	@touch $@

.venv/dev: $(PROJECTS) | .venv/python
	$(BIN)/pip install --quiet $(TREE) --editable '.[dev]'
	@touch $@ .venv/demo

.venv/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	@touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
