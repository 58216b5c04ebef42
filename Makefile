# make train            the demo, or any run: make train ARGS="--experiment=base ..."
# make test             the quick tests:      make test ARGS="tests/models"
# make test-all         the slow ones too, also those that the gate leaves out
# make lint             ruff, pyright and the import contracts
# make smoke            a short run through all of it; for further Python versions
# make smoke-oldest     the same with the oldest dependencies that pyproject.toml allows; use another
#                       environment:          make smoke-oldest VENV=.venv-oldest PYTHON=python3.11
# make docs             the documentation site in build/site; a warning is an error. Its first page
#                       runs a small model, or that of a run:  make docs RUN=runs/demo
# make soak             an hour and more of training that is killed, stopped and out of disk space
PYTHON ?= python3
VENV ?= .venv
ARGS ?=
BIN = $(VENV)/bin
PYTEST = $(BIN)/python -m pytest -n 2 --dist worksteal

# The Python of a virtual environment that failed would be taken again.
.DELETE_ON_ERROR:
.PHONY: train test test-all lint smoke smoke-oldest docs soak

train: $(VENV)/installed
	$(BIN)/python -m experiments.train $(ARGS)

test: $(VENV)/installed-test
	$(PYTEST) -m "not slow and not release" $(ARGS)

test-all: $(VENV)/installed-test
	$(PYTEST) $(ARGS)

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

smoke: $(VENV)/installed-smoke
smoke-oldest: $(VENV)/installed-oldest
smoke smoke-oldest:
	$(BIN)/python -m pytest tests/experiments/test_smoke.py $(ARGS)

docs: $(VENV)/installed-docs
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env \
		-c docs -d build/doctrees -D live_run=$(RUN) . build/site
	echo '<meta http-equiv="refresh" content="0; url=docs/index.html">' > build/site/index.html

soak: $(VENV)/installed
	$(BIN)/python -m tools.soak $(ARGS)

# A module is compiled when it is first imported, which most of the libraries' never are.
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15) and \
		"expected Python 3.11 to 3.14, found " + sys.version.split()[0] + "; name it: make PYTHON=python3.13 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(BIN)/python pyproject.toml
	$(PIP) -e .
	touch $@

$(VENV)/installed-test: $(BIN)/python pyproject.toml
	$(PIP) -e '.[test]'
	touch $@

$(VENV)/installed-smoke: $(BIN)/python pyproject.toml
	$(PIP) -e . pytest beartype
	touch $@

# NAME>=VERSION of pyproject.toml, as NAME==VERSION.
$(VENV)/installed-oldest: $(BIN)/python pyproject.toml
	grep -oE '"[^">=]+>=[0-9.]+' pyproject.toml | sed 's/"//; s/>=/==/' > $(VENV)/oldest.txt
	$(PIP) -c $(VENV)/oldest.txt -e . pytest beartype
	touch $@

$(VENV)/installed-docs: $(BIN)/python pyproject.toml
	$(PIP) -e '.[docs]'
	touch $@
