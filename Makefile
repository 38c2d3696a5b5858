# Two targets matter: `make app` and `make test`. On Windows, run the same commands by hand (README).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: app test check bench clean

app: $(VENV)/app.stamp
	$(BIN)/ridgebeam app

test: $(VENV)/test.stamp
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadgroup --no-loadscope-reorder $(PYTEST_ARGS)

check: $(VENV)/test.stamp
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports --no-cache

bench: $(VENV)/test.stamp
	$(BIN)/python -m bench

$(VENV)/app.stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	$(BIN)/python -m calc.simulation.warm
	touch $@

$(VENV)/test.stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test,lint]"
	touch $@

clean:
	rm -rf $(VENV)
