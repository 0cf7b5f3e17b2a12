# Everything a fresh machine needs is Python 3.11 or later with venv and pip. Each target installs
# what it needs into $(VENV) first; a second call finds that done.

PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed

.PHONY: demo test check lint types bench guests crash-full clean

demo: $(INSTALLED)
	$(PY) guests/recipes.py order gather approval
	$(VENV)/bin/shem demo

test: $(INSTALLED)
	$(PY) -m pytest

check: lint types test demo

lint: $(INSTALLED)
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check

types: $(INSTALLED)
	$(VENV)/bin/mypy

bench: $(INSTALLED)
	$(PY) guests/recipes.py
	$(PY) -m benches.run

guests: $(INSTALLED)
	$(PY) guests/recipes.py

# Every point at which the executor of each guest can be killed, not only a sample of them.
crash-full: $(INSTALLED)
	SHEM_CRASH_POINTS=all $(PY) -m pytest tests/crash

# What was built or cached; the virtual environment stays.
clean:
	rm -rf guests/build build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./.venv -prune -o -name __pycache__ -type d -exec rm -rf {} +

$(INSTALLED): pyproject.toml requirements-guests.txt
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --only-binary :all: \
		--require-hashes --requirement requirements-guests.txt
	$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[dev,guests]'
	touch $@
