# Two commands do everything: `make quickstart` and `make test`. Each sets up what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: quickstart test test-extended bench lint format clean

$(VENV)/.installed: setup.py pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable ".[dev,demo]"
	touch $@

$(VENV)/.installed-extended: $(VENV)/.installed
	$(BIN)/pip install --quiet --editable ".[dev,demo,jax,parity]"
	touch $@

quickstart: $(VENV)/.installed
	$(BIN)/python examples/quickstart.py runs/quickstart

test: $(VENV)/.installed
	$(BIN)/python -m pytest -m "not slow and not torch_parity"

test-extended: $(VENV)/.installed-extended
	KERAS_BACKEND=jax $(BIN)/python -m pytest tests/keras_transformer tests/conformance -m "not slow and not torch_parity"
	$(BIN)/python -m pytest -m "slow or torch_parity"

# Of the model that `make quickstart` has trained.
bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks.decode runs/quickstart

lint: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: $(VENV)/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist *.egg-info runs
