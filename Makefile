# One command per thing that a developer does. `make` alone lists them.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# What an install is made of. Python files are read in place, but which folders are packages is written down.
BUILT_FROM := pyproject.toml constraints.txt CMakeLists.txt $(wildcard kernels/cpu/*.cpp kernels/cpu/*.hpp)
PACKAGES   := $(sort $(shell find deltastore kernels -name __init__.py))
SCRIPTS    := $(wildcard examples/*.py)

# A server that ignores conditions: the tests see that it is refused. Nothing of it is part of deltastore.
S3RVER := build/s3rver/installed-3.7.1

# Inference engines, whose own weight loaders layouts are compared with. Too big for $(VENV), and nothing needs them.
ENGINES := build/engines

.PHONY: help demo test check lint types layers format engines s3rver schema index vectors clean always

help:
	@echo 'make demo      a trainer and an engine on this machine'
	@echo 'make test      everything that must hold: check, then all tests'
	@echo 'make check     the fast part: ruff, mypy, the direction of imports'
	@echo 'make engines   layouts against the weight loaders of vLLM, which it installs into $(ENGINES)'
	@echo 'make sanitize  the compiled kernels under AddressSanitizer and UndefinedBehaviorSanitizer'
	@echo 'make fuzz      damaged patches for the compiled decoder; FUZZ_S=600 for ten minutes'
	@echo 'make valgrind  each compiled kernel once under valgrind'
	@echo 'make format    rewrite the Python files as ruff formats them'
	@echo 'make s3rver    get the S3 server that the tests must see refused, from npm'
	@echo 'make schema    write the JSON Schemas in spec/schema/ again'
	@echo 'make index     write the worked examples and the index of SPEC.md again'
	@echo 'make vectors   write the test vectors in spec/vectors/ again'
	@echo 'make clean     remove what was built; $(VENV) stays'

demo: $(VENV)/installed-demo
	$(BIN)/deltastore demo

test: check $(S3RVER)
	$(BIN)/python -m pytest -n 2 --dist loadfile

check: lint types layers

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# mypy does not see through an editable install, so it gets the package as a wheel would lay it out.
types: $(VENV)/installed-dev
	@rm -rf build/types
	@mkdir -p build/types/deltastore
	@for entry in deltastore/*; do ln -s "../../../$$entry" build/types/deltastore/; done
	@ln -s ../../../kernels build/types/deltastore/kernels
	MYPYPATH=build/types $(BIN)/mypy -p deltastore -p tests -p spec
	@set -e; for script in $(SCRIPTS); do MYPYPATH=build/types $(BIN)/mypy "$$script"; done

layers: $(VENV)/installed-dev
	$(BIN)/python -m pytest -q tests/test_layers.py

engines: $(ENGINES)/installed
	PYTHONPATH=$(ENGINES) VLLM_CACHE_ROOT=$(ENGINES)/cache $(BIN)/python -m pytest tests/engines

$(ENGINES)/installed: tests/engines/requirements.txt | $(VENV)/installed-dev
	rm -rf $(ENGINES)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --target $(ENGINES) -r $<
	@touch $@

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

include kernels/cpu/sanitize.mk

s3rver: $(S3RVER)

$(S3RVER):
	npm install --prefix build/s3rver --ignore-scripts --no-audit --no-fund --no-save --loglevel=error s3rver@3.7.1
	@touch $@

schema: $(VENV)/installed-dev
	$(BIN)/python -m spec.schema.write

index: $(VENV)/installed-dev
	$(BIN)/python -m spec.examples
	$(BIN)/python -m spec.index

vectors: $(VENV)/installed-dev
	$(BIN)/python -m spec.vectors.write

clean:
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find deltastore kernels tests spec examples -type d -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/packages: always | $(VENV)/bin/python
	@echo '$(PACKAGES)' | cmp -s - $@ || echo '$(PACKAGES)' > $@

$(VENV)/installed-%: $(BUILT_FROM) $(VENV)/packages
	$(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt -e '.[$*]'
	@touch $@
