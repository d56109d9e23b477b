# One verb per job. `make run` and `make test` are all a newcomer needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: install run test test-slow lint types wheel-test clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

run: install
	$(BIN)/python -m sao_bench run --drift drift_schedules/style_switch.yaml

test: install
	$(BIN)/python -m pytest -m 'not slow and not alone' --numprocesses 2 --dist loadfile
	$(BIN)/python -m pytest -m 'alone and not slow'

test-slow: install
	$(BIN)/python -m pytest -m slow

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

wheel-test: install
	$(BIN)/python -m pytest -m '' tests/test_packaging.py

clean:
	rm -rf $(VENV) runs out dist build
