# On a fresh machine with Python >= 3.11 and make, each of these alone sets everything up and does its work.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt
# torch comes first and pinned: with it installed, no other package asks for a newer build.
TORCH := $(shell sed -n 's/^torch==/torch==/p' constraints.txt)
# What is compiled is kept: collecting the tests takes 26 s of CPU then, in place of 34.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

.PHONY: demo test test-thorough test-processors test-all test-gpu check house docs bench clean

demo: $(VENV)/.core
	$(BIN)/unmask demo

test: $(VENV)/.test
	$(PYTEST)

test-thorough: $(VENV)/.test
	$(PYTEST) -m "thorough and not slow and not gpu and not network"

test-processors: $(VENV)/.test
	$(BIN)/python scripts/processors.py

test-all: $(VENV)/.test
	$(PYTEST) -m "not gpu and not network"

test-gpu: $(VENV)/.test
	$(PYTEST) -m gpu tests/gpu

house: $(VENV)/.core
	$(BIN)/python scripts/house.py

check: $(VENV)/.check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

bench: $(VENV)/.test
	$(BIN)/python benchmarks/run_all.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) $(TORCH)
	$(PIP) --editable .
	touch $@

$(VENV)/.test: $(VENV)/.core
	$(PIP) --editable '.[test]'
	touch $@

$(VENV)/.check: $(VENV)/.test
	$(PIP) --editable '.[test,check]'
	touch $@

$(VENV)/.docs: $(VENV)/.core
	$(PIP) --editable '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
