# One task file for people and CI. `make` alone lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Matrices here are small: more threads would only get in each other's way.
export OPENBLAS_NUM_THREADS := 1
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup java run plan test quick lint types unit docs reference bench bench-routers bench-engine bench-simulator soak differential faults attach-faults measured bench-loop event-logs bench-attach clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY)  ## Make .venv with the penstock command and all tools; does nothing when up to date

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "Penstock needs Python 3.10 or newer; '$(PYTHON)' is older or missing."; \
	  echo "Install one and run: make setup PYTHON=/path/to/python3"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
	  echo "Python cannot make a virtual environment; on Debian or Ubuntu: apt install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,docs,spark,postgres,testing]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[gnn]'
	@touch $@

java:  ## Check that Java 17 or newer is there, for the targets that start Spark
	@command -v java >/dev/null 2>&1 || { \
	  echo "Java was not found. Spark needs Java 17 or newer:"; \
	  echo "  Debian, Ubuntu:  apt install openjdk-17-jre-headless"; \
	  echo "  macOS:           brew install openjdk@17"; \
	  echo "then put its 'java' on the PATH."; exit 1; }
	@major=$$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1); \
	  test "$${major:-0}" -ge 17 || { \
	  echo "Java $${major:-of an unknown version} was found. Spark needs Java 17 or newer;"; \
	  echo "install one and put its 'java' first on the PATH."; exit 1; }

run: setup java  ## Run word count on an embedded Spark cluster for a minute, under a rate that changes
	$(BIN)/penstock run wordcount --rate steps:2000x20,6000x20,3000x20 --seconds 60

plan: setup  ## Show the planner at work: all strategies on an example
	$(BIN)/penstock plan examples/portrait.yaml --cluster examples/lab.yaml --strategy all

test: lint types unit docs  ## All that CI runs: lint, types, tests with coverage, docs

lint: setup  ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup  ## Check types, with Python 3.11 or newer
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	  echo $(BIN)/mypy; $(BIN)/mypy; \
	else \
	  echo "Types are not checked: the last NumPy and SciPy for Python 3.10 have older stubs."; \
	fi

unit: setup java  ## Run the tests, those in docstrings and documents included
	$(BIN)/pytest --cov --cov-report=term

quick: setup  ## Run the tests without Spark and without the slow ones, in about a minute
	$(BIN)/pytest -q -n auto --hypothesis-profile=quick -m "not spark and not slow and not measured" tests

docs: setup  ## Build the documentation into build/docs; a warning is an error
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -b html docs build/docs

reference: setup  ## Write docs/cli.md anew after a change of the command
	$(BIN)/python docs/reference.py

bench: setup  ## Compare the strategies: cuts, optima, planning times, stability; takes a while
	$(BIN)/python benchmarks/quality.py

bench-routers: setup  ## Time the routers on a million keys
	$(BIN)/python benchmarks/routers.py

bench-simulator: setup  ## Measure the simulator on 10,000 instances and on the largest real graph
	$(BIN)/python benchmarks/simulator.py

bench-engine: setup java  ## Compare the engine with plain Structured Streaming; takes a while
	$(BIN)/python benchmarks/engine.py

bench-loop: setup java  ## Measure the control loop on an embedded cluster; takes most of an hour
	$(BIN)/python benchmarks/loop.py

event-logs: setup java  ## Record the event logs that the tests of the advice read, for real
	$(BIN)/python benchmarks/event_logs.py
bench-attach: setup java  ## Measure what attaching to a query costs and gains; takes a quarter of an hour
	$(BIN)/python benchmarks/attach.py

soak: setup java  ## Half an hour at a steady rate: is memory flat, does nothing pile up on disk?
	$(BIN)/python benchmarks/soak.py

measured: setup java  ## Hold the simulator to what the engine does, on a machine that does nothing else
	$(BIN)/pytest -m measured -s tests/experiments/test_calibration.py

attach-faults: setup java  ## Compare attached queries of every kind, disturbed in every way, with unattached ones; takes long
	$(BIN)/python tests/runtimes/attached/equality_checks.py --files 12 --trouble move warm scale
	$(BIN)/python tests/runtimes/attached/equality_checks.py --files 12 --trouble move kill
	$(BIN)/python tests/runtimes/attached/equality_checks.py --files 12 --trouble move thread

differential: setup java  ## Compare many more examples with Spark's own queries, by a fresh seed that is printed
	@seed=$${PENSTOCK_SEED:-$$(date +%s)}; echo "PENSTOCK_SEED=$$seed"; \
	  PENSTOCK_SEED=$$seed PENSTOCK_EXAMPLES=$${PENSTOCK_EXAMPLES:-50} $(BIN)/pytest tests/differential

faults: setup java  ## Crash points by the thousand, every kind of fault, random schedules; takes hours
	PENSTOCK_CRASHES=2000 $(BIN)/pytest tests/engine/test_crash_points.py -q
	$(BIN)/penstock chaos --matrix
	$(BIN)/penstock chaos

clean:  ## Remove everything that was made, .venv included
	rm -rf $(VENV) build dist site docs/generated penstock-report.html .coverage coverage.xml \
	  .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
