# One task file for people and CI. `make` alone lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Matrices here are small: more threads would only get in each other's way.
export OPENBLAS_NUM_THREADS := 1
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Two set-ups in one environment: what a run needs, and all that the checks need besides.
RUN_READY := $(VENV)/.run-ready
KAFKA_READY := $(VENV)/.kafka-ready
READY := $(VENV)/.ready

# Where `make faults` notes what ended well, so that it goes on there; BOUND="--minutes 10" bounds each half of it.
FAULTS := build/faults
BOUND ?=
CRASHES := tests/engine/test_crash_points.py::test_the_results_are_those_of_an_undisturbed_run

.DEFAULT_GOAL := help
.PHONY: help setup run-setup java chromium page pictures run kafka-demo plan test quick lint types unit coverage docs reference bench bench-routers bench-engine bench-nexmark bench-peers bench-simulator soak differential faults attach-faults measured bench-loop bench-papers bench-page event-logs bench-attach clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY)  ## Make .venv with the penstock command and all tools; does nothing when up to date

run-setup: $(RUN_READY)  ## Make .venv with the penstock command and Spark, without the tools

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "Penstock needs Python 3.10 or newer; '$(PYTHON)' is older or missing."; \
	  echo "Install one and run: make setup PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "Python cannot make a virtual environment; on Debian or Ubuntu: apt install python3-venv"; exit 1; }

$(RUN_READY): pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[spark,page]'
	@touch $@

$(KAFKA_READY): pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[spark,page,kafka]'
	@touch $(RUN_READY) $@

$(READY): pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[dev,docs,kafka,spark,postgres,testing,page]'
	@touch $(RUN_READY) $(KAFKA_READY) $@

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

chromium:  ## Check that Chromium is there, for the tests of the page; as root on Debian, install it
	@command -v chromium >/dev/null 2>&1 || \
	  if test "$$(id -u)" = 0 && command -v apt-get >/dev/null 2>&1; then \
	    echo "installing Chromium for the tests of the page"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	      chromium fonts-dejavu-core >/dev/null; \
	  else \
	    echo "Chromium was not found, so the browser tests are skipped. Debian: apt install chromium"; \
	  fi

page:  ## Build the live page from frontend/ into the package; needs Node
	cd frontend && npm ci --silent --no-audit --no-fund && npm run --silent build

run: run-setup java  ## Count the views of a shop for two minutes, with the live page; it stays until Ctrl-C
	$(BIN)/python examples/shop.py

kafka-demo: $(KAFKA_READY) java  ## Count clicks of a Kafka topic by a Spark job, attached, and by a pipeline, side by side
	$(BIN)/python examples/kafka_demo.py

pictures: setup java chromium  ## Take the pictures of the page in the documents anew, from a real run
	PENSTOCK_PICTURES=1 $(BIN)/pytest -q tests/web/test_live.py

plan: run-setup  ## Show the planner at work: all strategies on an example
	$(BIN)/penstock plan examples/portrait.yaml --cluster examples/lab.yaml --strategy all

test: lint types unit docs  ## All that CI runs: lint, types, tests, docs

lint: setup  ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup  ## Check types, with Python 3.11 or newer
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	  echo $(BIN)/mypy; $(BIN)/mypy; \
	else \
	  echo "Types are not checked: the last NumPy and SciPy for Python 3.10 have older stubs."; \
	fi

# Tests that start clusters wait more than they work, so that three of them do not crowd two cores.
WORKERS ?= 3

# Clusters, brokers and browsers share the machine: what fails among them is told, and run once more on its own.
unit: setup java chromium  ## Run the tests, those in docstrings and documents included
	$(BIN)/pytest -n $(WORKERS) --dist loadfile || { test $$? -eq 1 && \
	  echo "What failed above is run once more, one test after the other:" && \
	  $(BIN)/pytest --last-failed --last-failed-no-failures=none; }

coverage: setup java  ## Run the tests one after the other, and show what they do not reach
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

bench-nexmark: setup java  ## NEXMark by the engine and by Structured Streaming, and what a batch costs; takes hours
	$(BIN)/python benchmarks/nexmark.py
	$(BIN)/python benchmarks/batch_cost.py
	$(BIN)/python benchmarks/latency.py
	$(BIN)/python benchmarks/growth.py

bench-peers: setup java  ## Compare counts over Kafka with Spark, bytewax, Flink and Storm; installs them, takes half an hour
	$(BIN)/python benchmarks/peers.py

bench-loop: setup java  ## Measure the control loop on an embedded cluster; takes most of an hour
	$(BIN)/python benchmarks/loop.py

bench-papers: setup java  ## Measure the papers' systems and baselines on an embedded cluster; takes half an hour
	$(BIN)/python benchmarks/papers_on_spark.py --keep build/papers-on-spark.jsonl

event-logs: setup java  ## Record the event logs that the tests of the advice read, for real
	$(BIN)/python benchmarks/event_logs.py
bench-attach: setup java  ## Measure what attaching to a query costs and gains; takes an hour and a half
	$(BIN)/python benchmarks/attach.py

bench-page: setup java  ## Measure what the live page costs a run, and how fast it opens; takes five minutes
	$(BIN)/python benchmarks/page.py

soak: setup java  ## Half an hour at a steady rate: is memory flat, does nothing pile up on disk?
	$(BIN)/python benchmarks/soak.py

measured: setup java  ## Hold the simulator to what the engine does, on a machine that does nothing else
	$(BIN)/pytest -m measured -s tests/experiments/test_calibration.py

attach-faults: setup java  ## Compare attached queries of every kind, disturbed in every way, with unattached ones; takes long
	$(BIN)/python tests/runtimes/attached/equality_checks.py --files 12 --trouble move warm scale
	$(BIN)/python tests/runtimes/attached/equality_checks.py --files 12 --trouble move kill
	$(BIN)/python tests/runtimes/attached/equality_checks.py --files 12 --trouble move thread

differential: setup java  ## Compare every kind of step with Spark's own query, with a new seed each time
	@seed=$${PENSTOCK_SEED:-$$(date +%s)}; echo "PENSTOCK_SEED=$$seed"; \
	  PENSTOCK_SEED=$$seed PENSTOCK_EXAMPLES=$${PENSTOCK_EXAMPLES:-50} $(BIN)/pytest tests/differential

faults: setup java  ## Crash points by the thousand, every kind of fault, random schedules; goes on where it stopped
	@mkdir -p $(FAULTS)
	@for part in 0 1 2 3 4 5 6 7 8 9; do test -e $(FAULTS)/crashes-$$part || { \
	  echo "crash points, part $$part of 0 to 9"; \
	  PENSTOCK_CRASHES=2000 $(BIN)/pytest -q "$(CRASHES)[sums-$$part]" "$(CRASHES)[streams-$$part]" \
	  && touch $(FAULTS)/crashes-$$part; } || exit 1; done
	@test -e $(FAULTS)/kafka || { PYTHONPATH=. $(BIN)/python -m tests.kafka.executor_kills && touch $(FAULTS)/kafka; }
	$(BIN)/penstock chaos --matrix --keep $(FAULTS)/matrix.jsonl $(BOUND)
	$(BIN)/penstock chaos --schedules 100 --keep $(FAULTS)/schedules.jsonl $(BOUND)

clean:  ## Remove everything that was made, .venv included
	rm -rf $(VENV) build dist site docs/generated penstock-report.html .coverage coverage.xml \
	  .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
