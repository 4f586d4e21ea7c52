# Two commands on a fresh machine: `make demo` and `make test`. Needs Python 3.11+ with venv, git and make; nothing else.
# PYTHON=/path/to/python picks the interpreter for the virtual environment in .venv.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
RUN := $(VENV)/.ready-run
DEV := $(VENV)/.ready-dev
# One more than there are cores: tests of jobs and services wait for a part of their time.
JOBS ?= $(shell expr $$(nproc 2>/dev/null || echo 1) + 1)

.PHONY: help demo test test-newest test-full check format site bench regenerate clean

help:
	@echo "make demo       partition a JAX transformer step over a 2x2 mesh and run it on 4 MPI ranks"
	@echo "make test       the test suite with seeded slices of the big parts"
	@echo "make test-newest  what touches JAX, under the newest Python and JAX that this machine has"
	@echo "make test-full  everything, in parts that go on where they stopped; writes docs/status.md"
	@echo "make check      ruff, mypy, import-linter"
	@echo "make site       the documentation as pages for a browser, in build/site"
	@echo "make bench      speed, as ratios"

# Two stages: what running needs, and what testing needs on top.
$(RUN): pyproject.toml tools/find_python.sh
	@python=$$(sh tools/find_python.sh "$(PYTHON)") || exit 1; \
	echo "shardc: making $(VENV) with $$python"; \
	test -x $(BIN)/python || "$$python" -m venv $(VENV); \
	$(PIP) --upgrade "pip>=24" && $(PIP) -e ".[jax,mpich,plot]" && touch $@

$(DEV): $(RUN)
	@$(PIP) -e ".[jax,mpich,plot,test,dev,docs]" && touch $@

demo: $(RUN)
	@$(BIN)/python -m shardc demo --jax --svg shardc-demo.svg

test: $(DEV)
	@sh tools/run_tests.sh $(BIN)/python -n $(JOBS) --dist worksteal

test-newest: $(DEV)
	@sh tools/test_newest.sh $(BIN)/python $(VENV)-newest -n $(JOBS) --dist worksteal

test-full: $(DEV)
	@JOBS=$(JOBS) $(BIN)/python -m tools.full_run $(PARTS)

check: $(DEV)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(DEV)
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

site: $(DEV)
	@$(BIN)/sphinx-build -q -W -n docs build/site && echo "build/site/index.html"

bench: $(RUN)
	@$(BIN)/python benchmarks/run.py

regenerate: $(RUN)
	@$(BIN)/python -m shardc.demo.export
	@$(BIN)/python -m shardc.demo.guide

clean:
	rm -rf $(VENV) $(VENV)-newest build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
