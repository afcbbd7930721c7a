# `make` alone lists what there is. Everything needs only make and Python 3.11 or newer.

# The first of these that runs and is new enough; or say which: make PYTHON=/path/to/python3.12 test
new_enough := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	if $$p $(new_enough) 2>/dev/null; then echo $$p; break; fi; done)

VENV := .venv
PY := $(VENV)/bin/python
JOBS ?= 4
ARGS ?=

# Without bytecode beside the sources every process that a test starts compiles them again.
unexport PYTHONDONTWRITEBYTECODE
# Other people's packages on this path would shadow the locked ones.
unexport PYTHONPATH
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test lowest ring soak prove bench mutants contract lint format proto docs lock clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(VENV)/.installed ## make the environment .venv from requirements.lock (done once)

demo: setup ## Spark workers write four tables at once, a million rows, two get killed; ARGS="--help" for sizes
	$(PY) examples/orders_pipeline.py $(ARGS)

test: setup $(VENV)/spark-classes.jsa ## run the tests; ARGS="tests/format -k name" for some of them
	$(PY) -m pytest -n $(JOBS) --dist worksteal $(ARGS)

LOWEST := .venv-lowest
lowest: setup ## run a part of the tests with the lowest versions that pyproject.toml allows, in an environment of their own
	$(PY) -m uv venv --quiet --clear --python $(PY) $(LOWEST)
	$(PY) -m uv pip install --quiet --python $(LOWEST)/bin/python -r requirements.lock # the tools of the tests
	$(PY) -m uv pip install --quiet --python $(LOWEST)/bin/python --upgrade --resolution lowest-direct \
		--editable ".[postgres,dynamodb,cli,clickhouse]"
	$(PY) -m uv pip list --python $(LOWEST)/bin/python
	$(LOWEST)/bin/python -m tools.lowest # each is as low as pyproject.toml allows
	$(LOWEST)/bin/python -m pytest -q -n $(JOBS) -p no:cacheprovider $(or $(ARGS),$(LOWEST_TESTS))
LOWEST_TESTS := tests/format tests/operations tests/conflicts tests/data tests/table tests/reader tests/storage/test_objects.py \
	tests/storage/test_sql_schema.py tests/lake/test_lake.py tests/cli/test_load.py

ring: setup ## every supported pylance against conroi and each other; ARGS=--short for two, ARGS=--spark for each pyspark
	$(PY) -m tools.ring $(ARGS)

soak: setup ## run the long tests
	$(PY) -m pytest -m soak --timeout 3600 $(ARGS)

prove: setup ## simulate concurrent clients on bad storage; ARGS="--seeds 100000 --jobs 2" for more, "--help" for all
	$(PY) -m conroi.testing.simulation $(ARGS)

mutants: setup ## change the code in a thousand places, one at a time, and count the changes that a test notices; an hour
	$(PY) -m tools.mutation $(ARGS)

bench: setup ## measure beside pylance, deltalake and pyiceberg; ARGS="--quick" for a first look
	$(PY) -m benchmarks $(ARGS)

contract: setup ## each statement of docs/contract.md, its tests, their last result; ARGS=-v for names
	$(PY) -m tools.contract $(ARGS)

lint: setup ## ruff (rules and format) and pyright (strict)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m pyright --pythonpath $(PY)

format: setup ## let ruff mend what it can
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

proto: setup ## generate lance_pb2 again from lance.proto
	$(PY) -m uv run --quiet --no-project --isolated --python $(PY) --with 'grpcio-tools==1.62.3' --with 'setuptools<81' \
		python -m grpc_tools.protoc -Isrc --python_out=src --pyi_out=src src/conroi/format/lance.proto

docs: setup ## write the pages of docs/ that are made from the code
	$(PY) -m tools.docs

lock: setup ## choose the versions in requirements.lock again; ARGS=--upgrade for the newest
	$(PY) -m uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
		--no-header --no-emit-index-url --no-emit-find-links \
		--extra spark --extra postgres --extra dynamodb --extra clickhouse --extra cli --group dev --group bench $(ARGS) \
		--output-file requirements.lock pyproject.toml

# Halves the processor time in which a test starts Spark; without it (it may be empty) tests are slower, and that is all.
$(VENV)/spark-classes.jsa: $(VENV)/.locked tools/java_archive.py | $(VENV)/.installed
	@$(PY) -m tools.java_archive $@ 2>/dev/null

clean: ## delete the environment, caches and results
	rm -rf $(VENV) $(LOWEST) .ring .contract .mutants .hypothesis .pytest_cache .ruff_cache bench-out build demo-out dist \
		src/conroi/spark/connector/conroi-spark.jar
	find src tests tools benchmarks examples -name __pycache__ -prune -exec rm -rf {} +

# Two stamps: the packages change seldom and take minutes, our own editable install takes seconds.
$(VENV)/.locked: requirements.lock
	@test -n "$(PYTHON)" || { echo "conroi needs Python 3.11 or newer, and none was found. Install one, or say where it is: make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) $(new_enough) || { echo "conroi needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; exit 1; }
	@echo "Making $(VENV) from requirements.lock; this takes a few minutes the first time."
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --require-hashes --requirement requirements.lock
	@touch $@

$(VENV)/.installed: $(VENV)/.locked pyproject.toml
	$(PY) -m pip install --quiet --no-deps --no-index --no-build-isolation --editable .
	@touch $@
