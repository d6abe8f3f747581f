# `make` or `make help` lists what there is. Everything else sets up what it needs first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)  # a third of a test's time is waiting
STAMP := $(VENV)/.installed
TOOLS := build/release-tools
DEBIAN = Debian, Ubuntu: apt-get install
.DEFAULT_GOAL := help
unexport PYTHONDONTWRITEBYTECODE  # without bytecode on the disk each process compiles every module again
.PHONY: help venv broker-jars jvm-archive browser postgresql redis haproxy prometheus s3-server quick test wheels release-check mutations crash clocks endurance soak lint types bench demo demo-lookup clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | awk -F '\t' '{printf "  make %-12s %s\n", $$1, $$2}'

venv: $(STAMP) ## the environment in .venv, with the C library; rebuilt when pyproject.toml or the C code has changed

$(STAMP): pyproject.toml $(wildcard teacup/kafka/native/c/*)
	@command -v $(PYTHON) >/dev/null || { echo "No $(PYTHON) found. Teacup needs Python 3.11 or newer. $(DEBIAN) python3 python3-venv; macOS: brew install python@3.13; or: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$$($(PYTHON) --version) is too old: Teacup needs Python 3.11 or newer. $(DEBIAN) python3.11 python3.11-venv; macOS: brew install python@3.13; then: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot make environments. $(DEBIAN) python3-venv" >&2; exit 1; }
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@$(BIN)/python -m teacup.kafka.native.build 2>/dev/null \
		|| { $(BIN)/python -m pip install --quiet --disable-pip-version-check ziglang && $(BIN)/python -m teacup.kafka.native.build; }
	@touch $@

broker-jars: $(STAMP) ## the development broker's jars, fetched once through Maven
	@$(BIN)/python -m deploy.broker.jars >/dev/null

jvm-archive: $(STAMP) ## Spark's classes prepared for the JVM (150 MB in the cache): jobs start in half the CPU time
	@-$(BIN)/python -m teacup.spark.class_archive >/dev/null  # only slower without it

browser: ## headless Chromium for the test of the page, where it is missing
	@if [ -f tests/install-browser.sh ]; then sh tests/install-browser.sh; fi

postgresql: ## PostgreSQL for the tests of the Data Delay API, where it is missing
	@if [ -f tests/install-postgresql.sh ]; then sh tests/install-postgresql.sh; fi

redis: ## a Redis server for the tests of that back end, where it is missing
	@if [ -f tests/install-redis.sh ]; then sh tests/install-redis.sh; fi

haproxy: ## HAProxy for the slow tests of the APIs behind it, where it is missing
	@if [ -f tests/install-haproxy.sh ]; then sh tests/install-haproxy.sh; fi

prometheus: ## Prometheus and promtool for the tests of metrics, where they are missing
	@if [ -f tests/install-prometheus.sh ]; then sh tests/install-prometheus.sh; fi

s3-server: $(STAMP) ## an S3 server in Python for the slow tests of checkpoints at s3a://
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[s3-server]'

quick: $(STAMP) ## the tests that need no broker, Spark or browser, with new examples each time (SEED=7 repeats a run): a minute
	@$(BIN)/python -m tests.quick $(if $(SEED),--seed $(SEED)) -n $(WORKERS) --dist worksteal $(ARGS)

test: $(STAMP) ## all tests but the slow ones, on a real broker (ARGS=tests/joins for some: installs what these need)
	@needs=$$($(BIN)/python -m tests.needs -m "not slow" $(ARGS)) && $(MAKE) --no-print-directory $$needs
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow" $(ARGS)

mutations: broker-jars redis prometheus ## takes safeguards out one at a time: a test must fail each time (ONLY=expiry)
	@$(BIN)/python -m tests.mutations $(if $(ONLY),--only "$(ONLY)")

crash: broker-jars ## the long crash matrix (RUNS=200, SEED=7 repeats a run, JOBS=2 side by side, KIND=feeder, KIND=stops, STANDBY=1): 15 s a fault
	@$(BIN)/python -m tests.crash.matrix --runs $(or $(RUNS),200) $(if $(SEED),--seed $(SEED)) $(if $(JOBS),--jobs $(JOBS)) $(if $(KIND),--kind $(KIND)) $(if $(STANDBY),--standby)

clocks: broker-jars redis ## each clock of a lookup join's chain takes each step: two hours (`make soak` takes one step of each)
	@TEACUP_CLOCKS=all $(BIN)/python -m pytest -n $(WORKERS) tests/joins/lookup/test_stepping_chain.py -m slow $(ARGS)

endurance: broker-jars ## one job for hours with a fault a minute (MINUTES=100, RATE=5000, SEED=7): every row right, and nothing grows
	@$(BIN)/python -m tests.crash.endurance --minutes $(or $(MINUTES),100) --rate $(or $(RATE),5000) $(if $(SEED),--seed $(SEED))

soak: broker-jars browser postgresql redis haproxy prometheus s3-server ## what takes too long for `make test`: 20,000 histories of all types and policies, as many of tables (HISTORIES=2000 for fewer, SEED=7), slow tests, properties for longer
	@$(BIN)/python -m tests.joins.window.soak --histories $(or $(HISTORIES),20000) $(if $(SEED),--seed $(SEED))
	@TEACUP_PROFILE=full $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "slow or hypothesis or canary" $(ARGS)

$(TOOLS)/.installed: Makefile
	@$(PYTHON) -m venv $(TOOLS)
	@$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check 'setuptools>=77' 'cyclonedx-bom>=7,<8' 'pip-audit>=2.10,<3' ziglang
	@touch $@

wheels: $(TOOLS)/.installed ## wheels for all platforms in dist/, each checked (ARGS="--only any" for one)
	@$(TOOLS)/bin/python -m dev.release.wheels $(ARGS)

release-check: $(STAMP) $(TOOLS)/.installed ## what is shipped: SBOM, audit against an index of advisories (ARGS="--index osv"), licences
	@$(TOOLS)/bin/python -m dev.release.checks --python $(BIN)/python $(ARGS)

lint: $(STAMP) ## ruff: rules and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(STAMP) ## mypy, strict
	@$(BIN)/mypy

bench: broker-jars ## the join, fetching alone and Spark's own join on the same backlog; then the window's length, and latency
	@$(BIN)/python -m benchmarks.window_join $(ARGS)
	@$(BIN)/python -m benchmarks.window_length
	@$(BIN)/python -m benchmarks.latency

demo: broker-jars ## clicks and impressions joined on a broker (BOOTSTRAP=host:9092 for one you have)
	@BOOTSTRAP="$(BOOTSTRAP)" $(BIN)/python -m dev.demo

demo-lookup: broker-jars ## clicks look impressions up in a store, right pauses (BOOTSTRAP, TEACUP_AEROSPIKE=host:port/namespace)
	@BOOTSTRAP="$(BOOTSTRAP)" $(BIN)/python -m dev.demo_lookup

clean: ## remove the environment and what tools have left
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
