# make demo   the whole story on the built-in family graph
# make test   linters, types and every test
# Each makes .venv and installs what it needs; a second call is quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test check unit format clean

demo: $(VENV)/.core
	@$(BIN)/plogicnet demo

test: check unit

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(VENV)/.dev
	$(BIN)/pytest -n 2

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/.core: pyproject.toml constraints.txt
	@echo "installing plogicnet into $(VENV) (once; a minute or two)" >&2
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) --editable '.[web,plots]'
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@echo "installing the tools for testing into $(VENV)" >&2
	@$(INSTALL) --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
