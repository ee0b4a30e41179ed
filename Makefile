# Each target sets up what it needs in .venv; a second call finds it there.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

define CHECK_PYTHON
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
  echo "mvcl needs Python 3.11 or newer as '$(PYTHON)'; name another with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
  echo "'$(PYTHON)' has no venv; install it (on Debian and Ubuntu: apt install python3-venv)"; exit 2; }
endef

.PHONY: train smoke docs docs-data tutorials test test-all test-newest test-slow test-docs test-distributed test-faults test-studies lint wheel clean

train: .venv/.run
	$(BIN)/mvcl train digits

# Some steps of every config on random data, offline: train, evaluate, report.
smoke: .venv/.run
	$(BIN)/python -m benchmarks.smoke

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile

# Also the exhaustive products and the slow proofs: before a release. With the suite's older emitters of fusions, which
# compile in two thirds of the time, XLA ends the process at a second derivative of `comm` in float64.
test-all: export XLA_FLAGS = --xla_cpu_use_fusion_emitters=true
test-all: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"
	$(BIN)/python -m pytest -m slow

# The newest versions of all packages that pyproject.toml allows, in an environment of its own.
test-newest:
	$(CHECK_PYTHON)
	$(PYTHON) -m venv .venv-newest
	.venv-newest/bin/python -m pip --quiet install --upgrade --upgrade-strategy eager --editable '.[test]'
	@echo "Not as in constraints.txt:"; tr _ - <constraints.txt >.venv-newest/pinned
	@.venv-newest/bin/python -m pip freeze --exclude-editable | tr _ - | grep -vixFf .venv-newest/pinned || true
	.venv-newest/bin/python -m pytest -n 2 --dist loadfile

# Minutes each: kill-and-resume trials, several processes.
test-slow: .venv/.test
	$(BIN)/python -m pytest -m slow

# Several processes and devices against one; a run killed, its disk filled, its files damaged.
test-distributed: .venv/.test
	$(BIN)/python -m pytest -m slow tests/faults/test_distributed.py

test-faults: .venv/.test
	$(BIN)/python -m pytest -m slow tests/faults --ignore tests/faults/test_distributed.py

# Every study at its smoke scale, random data, seconds each; every cell at scale paper is built, half an hour.
test-studies: .venv/.test
	$(BIN)/python -m pytest -m slow tests/studies

# The Python of the pages that take minutes, and the tutorials, from scratch.
test-docs: .venv/.test
	$(BIN)/python -m pytest -m slow tests/site

# Execute the tutorials and store their outputs; NAMES="compose_losses ..." for some.
tutorials: .venv/.test
	$(BIN)/python -m docs.tutorials $(NAMES)

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# What the pages have of objectives and papers: pictures, reference, README's table, agreement, scale, docs/papers.
# NAMES="nt_xent ..." makes the pictures and numbers of these objectives again.
docs-data: .venv/.test
	$(BIN)/python -m docs.data $(NAMES)

# The site in build/site; it needs no network, and a link that leads nowhere is an error.
docs: .venv/.docs
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --doctree-dir build/doctrees docs build/site

# dist/mvcl-VERSION-py3-none-any.whl, with the configs and studies.
wheel: .venv/.test
	$(BIN)/python -m pip --quiet wheel --no-build-isolation --no-deps --wheel-dir dist .

.venv/bin/python:
	$(CHECK_PYTHON)
	$(PYTHON) -m venv .venv

.venv/.run: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) install --constraint constraints.txt --editable .
	@touch $@

.venv/.test: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) install --constraint constraints.txt --editable '.[test]'
	@touch $@ .venv/.run

.venv/.docs: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) install --constraint constraints.txt --editable '.[docs]'
	@touch $@ .venv/.run

clean:
	rm -rf .venv .venv-newest .cache .mypy_cache .pytest_cache .ruff_cache build dist
