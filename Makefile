# Two commands do everything on a fresh machine: `make demo` and `make test`. Each makes .venv in the checkout when it is missing.
PYTHON ?= python3
MODEL ?= smollm2-135m
PROMPT ?= In one sentence: what limits the speed of a language model on a CPU?
VENV := .venv
export PIP_DISABLE_PIP_VERSION_CHECK := 1
BIN := $(VENV)/bin
NATIVE := $(shell find native -name '*.cpp' -o -name '*.h' -o -name 'CMakeLists.txt') CMakeLists.txt

.PHONY: help build dev oracles demo test test-isa check format bench bench-kernels clean
help:  ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/venv.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; name it: make PYTHON=python3.12 ..."; exit 1; }
	@command -v c++ >/dev/null || { echo "a C++20 compiler is needed (GCC 12, clang 15 or newer), e.g. apt-get install g++"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

$(VENV)/build.stamp: $(VENV)/venv.stamp pyproject.toml $(NATIVE)
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/build.stamp pyproject.toml
	$(BIN)/python -m pip install --quiet --group dev
	@touch $@

$(VENV)/oracles.stamp: $(VENV)/dev.stamp
	$(BIN)/python -m pip install --quiet --group oracles
	@touch $@

build: $(VENV)/build.stamp      ## build the native side and install roofline into .venv
dev: $(VENV)/dev.stamp          ## and the tools that tests and checks need
oracles: $(VENV)/oracles.stamp  ## and torch + transformers, which some tests compare with

demo: build  ## install, build, get the default model, answer a prompt
	$(BIN)/roofline models get $(MODEL)
	$(BIN)/roofline run $(MODEL) "$(PROMPT)"

test: dev  ## the test suite; tests of models and oracles that are absent are skipped, with the command that gets them
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-isa: dev  ## engine, contract and model tests under every tier cap that this machine can run
	@for isa in ref avx2 avx512 amx; do \
	  if ROOFLINE_ISA=$$isa $(BIN)/python -m roofline.cli.main doctor --json >/dev/null 2>&1; then \
	    echo "ROOFLINE_ISA=$$isa"; ROOFLINE_ISA=$$isa $(BIN)/python -m pytest -n 2 --dist loadfile tests/engine tests/property tests/models || exit 1; \
	  else echo "ROOFLINE_ISA=$$isa: not on this machine"; fi; done

check: dev  ## lint, types, layers, sizes, symbols
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/size_report.py --check
	$(BIN)/python tools/check_symbols.py build

format: dev  ## rewrite the Python sources in the house's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: build  ## speed of the default model, one JSON object a line
	$(BIN)/roofline bench $(MODEL) --json

bench-kernels: dev  ## micro-benchmarks of the kernels beside this machine's ceilings
	$(BIN)/python bench/kernels_linear.py
	$(BIN)/python bench/kernels_attention.py

clean:  ## remove what was built, the environment included
	rm -rf $(VENV) build dist src/roofline/_native*.so
