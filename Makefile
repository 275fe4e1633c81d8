# The main commands are `make quickstart` and `make test`. Each command installs what it needs.
PYTHON ?= python3
VENV ?= .venv
DIST ?= dist
BIN := $(VENV)/bin
# setuptools warns about every editable installation.
INSTALL := PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --editable
# One process per core. Each process runs whole files, because a file's fixtures are expensive; see the scheduler in
# tests/conftest.py.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder
# The tests of what depends on the backend.
OF_BACKENDS := tests/keras_transformer tests/conformance $(addprefix --ignore=tests/keras_transformer/,cli evaluation storage text translate)
QUICK := not slow and not nightly and not torch_parity

.PHONY: quickstart test test-extended test-nightly wheel bench docs tutorials lint format clean

$(VENV)/.installed: setup.py pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(INSTALL) ".[dev,demo]"
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(INSTALL) ".[dev,demo,serve,clean]"
	touch $@

$(VENV)/.installed-extended: $(VENV)/.installed-test
	$(INSTALL) ".[dev,demo,serve,clean,jax,parity]"
	touch $@

$(VENV)/.installed-nightly: $(VENV)/.installed-extended
	$(INSTALL) ".[dev,demo,serve,clean,jax,parity,ray,openvino,litert,tutorials]"
	touch $@

quickstart: $(VENV)/.installed
	$(BIN)/python examples/quickstart.py runs/quickstart

test: $(VENV)/.installed-test
	$(PYTEST) -m "$(QUICK)"

test-extended: $(VENV)/.installed-extended
	KERAS_BACKEND=jax $(PYTEST) $(OF_BACKENDS) -m "$(QUICK) and not portable"
	KERAS_BACKEND=torch $(PYTEST) tests/conformance -m "$(QUICK)"
	$(PYTEST) -m "(slow or torch_parity) and not nightly"

test-nightly: $(VENV)/.installed-nightly
	$(PYTEST) -m nightly
	KERAS_BACKEND=torch $(PYTEST) tests/conformance -m nightly
	KERAS_BACKEND=jax $(PYTEST) $(OF_BACKENDS) -m "(slow or nightly or portable) and not torch_parity"
	rm -rf build/nightly
	$(MAKE) DIST=build/nightly wheel
	$(PYTHON) -m venv build/nightly/venv
	build/nightly/venv/bin/pip install --quiet build/nightly/*.whl
	.ci/installed build/nightly/venv/bin

wheel: $(VENV)/.installed
	$(BIN)/python -m build --quiet --wheel --outdir $(DIST) .

# Measures the model of `make quickstart`.
bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks.decode runs/quickstart

$(VENV)/.installed-docs: $(VENV)/.installed-test
	$(INSTALL) ".[dev,demo,serve,clean,docs]"
	touch $@

# The documentation, into site/.
docs: $(VENV)/.installed-docs
	$(BIN)/python -m doctest docs/docstrings.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

$(VENV)/.installed-tutorials: $(VENV)/.installed-docs
	$(INSTALL) ".[dev,demo,serve,clean,docs,tutorials]"
	touch $@

# Runs tutorials and writes their pages, into docs/tutorials/: all of them, or `make tutorials TUTORIAL=vision_transformer`.
TUTORIAL ?= *
tutorials: $(VENV)/.installed-tutorials
	$(BIN)/python docs/tutorials.py examples/tutorials/$(TUTORIAL).py

$(VENV)/.installed-lint: $(VENV)/.installed-test
	$(INSTALL) ".[dev,demo,serve,clean,lint]"
	touch $@

# Pyright reads the package as it installs: with `training/`, `export/` and `apps/` inside.
lint: $(VENV)/.installed-lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell
	rm -rf build/typing && mkdir -p build/typing
	cp -r keras_transformer build/typing && cp -r training export apps build/typing/keras_transformer
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(VENV)/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist *.egg-info site
