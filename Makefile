# make demo   see it work, end to end, on SQLite     make test       set up and pass the quick tests
#                                                    make test-all   those that take long, too
# Needs Python >= 3.11, pip and make, the tests git too; everything else comes from PyPI into .venv.

PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2
# compiled tests are kept: rewriting their asserts takes each process of pytest eight seconds
unexport PYTHONDONTWRITEBYTECODE
PARALLEL = -n $(WORKERS) --dist worksteal
QUICK := "not dear and not slow and not external and not second"
DEAR := "dear and not slow and not external and not second"
TREE := --editable recrawl_client --editable recrawl_lab --editable recrawl_cluster
# uv takes a quarter of pip's time; pip also knows the indexes of pip.conf, which uv does not read
install = $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python $(TREE) $(1) || \
	$(BIN)/pip install --quiet $(TREE) $(1)
PROJECTS := pyproject.toml $(wildcard recrawl_*/pyproject.toml)

.PHONY: demo test test-dear test-all test-external lint docs serve bench bench-leases bench-core bench-budget bench-revisions bench-sections faults fuzz rough clean

demo: .venv/demo
	$(BIN)/recrawl demo $(ARGS)

# tests wait for threads and Postgres: three at a time, on two cores
test test-dear: WORKERS = 3
test: .venv/dev
	$(BIN)/pytest $(PARALLEL) -m $(QUICK) $(ARGS)

# what `make test` leaves out though it takes less than five seconds; `.ci/run` runs it
test-dear: .venv/dev
	$(BIN)/pytest $(PARALLEL) -m $(DEAR) $(ARGS)

test-all: .venv/dev
	$(BIN)/pytest $(PARALLEL) --hypothesis-profile thorough -m "not external" $(ARGS)

# OpenAPI linters, TypeScript, orval and Postgres 15 to 18 from npm, clients by openapi-generator (Java), Go, buildah for the image, nginx and Prometheus from apt, kubectl
# Crawlee and a server of S3 from PyPI; the client of openapi-python-client runs in `make test-all` too
test-external: .venv/dev
	$(BIN)/pytest -m external $(ARGS)
	$(BIN)/pytest tests/api/test_openapi_client.py $(ARGS)

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/recrawl openapi --check openapi/openapi.json
	$(BIN)/python tools/house.py
	$(BIN)/python tools/prose.py

docs: .venv/dev
	$(BIN)/python tools/reference.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

serve: .venv/demo
	$(BIN)/recrawl serve $(ARGS)

bench: .venv/dev
	$(BIN)/python -m benchmarks.http $(ARGS)

bench-leases: .venv/dev
	$(BIN)/python -m benchmarks.leases $(ARGS)

bench-core: .venv/dev
	$(BIN)/python -m benchmarks.core $(ARGS)

bench-budget: .venv/dev
	$(BIN)/python -m benchmarks.budget $(ARGS)

bench-revisions: .venv/dev
	$(BIN)/python -m benchmarks.revisions $(ARGS)

bench-sections: .venv/dev
	$(BIN)/python -m benchmarks.sections $(ARGS)

faults: .venv/dev
	$(BIN)/python -m benchmarks.faults $(ARGS)

fuzz: .venv/dev
	$(BIN)/python -m benchmarks.fuzz $(ARGS)

rough: .venv/dev
	$(BIN)/python -m benchmarks.rough $(ARGS)

.PHONY: coverage dist lock image-test

coverage: .venv/dev
	$(BIN)/pytest $(PARALLEL) -m $(QUICK) --cov --cov-report=term --cov-report=xml $(ARGS)

dist: .venv/dev
	for project in . recrawl_client recrawl_cluster recrawl_lab; do \
		(cd $$project && $(CURDIR)/$(BIN)/python -m hatchling build -d $(CURDIR)/dist) || exit 1; \
	done

# Pins with hashes for the image; ARGS=--upgrade takes the newest releases that pyproject.toml admits.
LOCK := $(BIN)/uv pip compile --quiet --no-sources --python-version 3.11 --python-platform linux --generate-hashes \
	--no-annotate --no-emit-index-url --no-emit-find-links --no-emit-package recrawl-client \
	--no-emit-package recrawl --no-emit-package recrawl-cluster \
	--custom-compile-command "make lock"
BUILD_REQUIRES := import tomllib; \
	print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")

lock: .venv/dev
	echo ./recrawl_client | $(LOCK) - pyproject.toml --extra jwt -o deploy/requirements.txt $(ARGS)
	echo ./recrawl_client | $(LOCK) - pyproject.toml --extra jwt --extra arrow -c deploy/requirements.txt \
		-o deploy/requirements-arrow.txt $(ARGS)
	echo ./recrawl_client | $(LOCK) - pyproject.toml --extra jwt --extra s3 -c deploy/requirements-arrow.txt \
		-o deploy/requirements-s3.txt $(ARGS)
	echo ./recrawl_client | $(LOCK) - pyproject.toml --extra jwt --extra otel -c deploy/requirements.txt \
		-o deploy/requirements-otel.txt $(ARGS)
	printf '%s\n' ./recrawl_client '.[arrow,jwt]' ./recrawl_cluster | $(LOCK) - \
		-c deploy/requirements-arrow.txt -o deploy/requirements-cluster.txt $(ARGS)
	$(BIN)/python -c '$(BUILD_REQUIRES)' | $(LOCK) - -o deploy/requirements-build.txt $(ARGS)

# Builds the image by buildah and runs it on a real Postgres; needs Debian's programs and root.
image-test: .venv/dev
	$(BIN)/pytest tests/project/test_image.py \
		-o log_cli=true --log-cli-level=info $(ARGS)

.venv/demo: $(PROJECTS) | .venv/python
	$(call install,--editable '.[lab]')
	@touch $@

.venv/dev: $(PROJECTS) | .venv/python
	$(call install,--editable '.[dev]')
	@touch $@ .venv/demo

.venv/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip uv
	@touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
