# make demo   train, evaluate and explain on the built-in family graph
# make test   linters, type checks and tests; make test-all adds the slow tests
# make dist   wheel and sdist, tested in an empty environment; make licences, make fuzz, make torture: see CONTRIBUTING.md
# The first call creates .venv and installs the dependencies.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

FUZZ_MINUTES ?= 2
TORTURE_KILLS ?= 1000

.PHONY: demo test test-all check unit format dist licences fuzz torture clean

demo: $(VENV)/.core
	@$(BIN)/plogicnet demo

test: check unit

test-all: check
	$(BIN)/pytest -n 2 -m ""

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive src

unit: $(VENV)/.dev
	$(BIN)/pytest -n 2

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Builds the wheel from the sdist, which checks that the sdist is complete, and tests it in an empty environment.
dist: $(VENV)/.dev
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(PYTHON) -m venv dist/empty
	dist/empty/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt dist/*.whl
	cd dist && PYTHONPATH= empty/bin/plogicnet demo --json > demo.json
	cd dist && PYTHONPATH= empty/bin/plogicnet data list
	@cd dist && empty/bin/python -c "import json; print('demo with the wheel: MRR', json.load(open('demo.json'))['test']['plogicnet*']['mrr'])"
	rm -rf dist/empty

licences: $(VENV)/.dev
	$(BIN)/python release/licences.py

fuzz: $(VENV)/.fuzz
	$(BIN)/python fuzz/campaign.py --minutes $(FUZZ_MINUTES)

# Also runs the tests of other faults, and writes docs/reliability.md.
torture: $(VENV)/.dev
	$(BIN)/python torture/crash_states.py --write
	$(BIN)/python torture/kills.py --kills $(TORTURE_KILLS) --write

$(VENV)/.core: pyproject.toml constraints.txt
	@echo "installing plogicnet into $(VENV) (once; a minute or two)" >&2
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) --editable '.[web,plots]'
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@echo "installing the development tools into $(VENV)" >&2
	@$(INSTALL) --editable '.[dev]'
	@touch $@

$(VENV)/.fuzz: $(VENV)/.dev
	@$(INSTALL) --editable '.[fuzz]'
	@touch $@

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
