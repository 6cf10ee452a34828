# Two commands: `make demo` and `make test`. `make help` lists the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# torch alone is installed first, pinned: an open requirement would bring about 18 CUDA packages, several GB.
# TORCH_INDEX, if set, is the package index of that one step.
TORCH_PIN := $(shell grep -i '^torch==' constraints.txt)
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
PIP_AUDIT := 2.10.1
GPU_PYTHON ?= 3.12
GPU_PEERS := liger-kernel==0.8.5
FOR_GPU = --only-binary=:all: --python-version $(GPU_PYTHON) --platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export HF_HUB_OFFLINE := 1
# Installing compiles the kernels, so the package is installed again when one has changed.
KERNELS := hatch_build.py $(wildcard src/whatwhere/kernels/*.cpp src/whatwhere/kernels/*.h)
# So is the studio's page, where Node.js is; without it the package has no page, and tests of it are skipped.
PAGE := src/whatwhere/studio/web
PAGE_FILES := hatch_page.py $(wildcard $(PAGE)/*.json $(PAGE)/*.mjs $(PAGE)/src/* $(PAGE)/src/*/* $(PAGE)/src/*/*/*)
# Two workers of one thread each: two cores are enough for the checks.
WORKERS ?= 2
# Compiled code is kept, for the second pass and for the programs that tests start.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# `command -v` of some shells looks at its first word alone.
has = for each in $(1); do command -v $$each > /dev/null && break; done
apt = { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && apt-get -qq update && apt-get -qq install -y $(1) > /dev/null; }
# In CI, a test that is skipped for want of a tool would be a test that nobody runs.
without = { echo "$(1)"; [ -z "$$CI" ]; }

.DEFAULT_GOAL := help
.PHONY: help demo test lint types tests coverage slow oldest latest newest tag lock audit cuda gpu gpu-wheels format docs site interfaces pictures page browser firefox release-check clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-14s %s\n", $$1, $$2}'

demo: $(VENV)/studio.stamp ## train a small Transformer with five positional encodings; write a report (2 to 3 minutes)
	$(BIN)/whatwhere demo

test: lint types tests ## every check: format, lint, types, tests, doctests

lint: $(VENV)/dev.stamp ## format and lint, without changing anything
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/zizmor --quiet --offline .github/workflows

types: $(VENV)/dev.stamp ## strict type check
	$(BIN)/mypy

# Shapes are checked at run time in the first pass; that hook and torch.compile exclude each other, hence the second,
# which collects the files that have such tests: all files would take half as long again.
# The third rehearses on the CPU what tests the library on a GPU, so that it is sound when there is one.
tests: $(VENV)/dev.stamp $(VENV)/page.stamp browser ## pytest in three passes
	$(PYTEST) -m "not compile and not slow" --jaxtyping-packages=whatwhere,benchmarks,experiments,beartype.beartype $(COVER)
	$(PYTEST) -m "compile and not slow" $(COVER_MORE) $$(grep -rl mark.compile tests)
	WHATWHERE_TEST_DEVICE=cpu $(PYTEST) -r fE -m "cuda and not compile" tests/cuda

# Not a part of the tests, which it would make three quarters longer.
coverage: ## the tests, with line coverage
	rm -f .coverage .coverage.*
	$(MAKE) tests COVER="--cov --cov-report=" COVER_MORE="--cov --cov-append --cov-report=term:skip-covered"

# Fuzzing alone takes an hour for each format: ONLY is an expression of pytest -k, by which CI runs it in jobs of its own.
slow: $(VENV)/page.stamp browser firefox ## the tests of minutes and hours that `make test` skips (ONLY='not fuzz': some of them)
	$(PYTEST) -m slow $(if $(ONLY),-k "$(ONLY)")

# Those that a user's environment may have; the checkers and peers are as ever. TORCH_OLDEST=torch==2.13.0 tests the others alone.
oldest: $(BIN)/python ## the tests with the oldest versions that pyproject.toml allows, in .venv-oldest
	$(BIN)/python release/versions.py oldest $(TORCH_OLDEST)

# PyTorch itself included, several GB where TORCH_INDEX is not set.
latest: $(BIN)/python ## the tests with the newest versions there are, in .venv-latest
	$(BIN)/python release/versions.py latest $(TORCH_LATEST)

# It installs the newest transformers into .venv, in place of the version of constraints.txt.
newest: $(VENV)/dev.stamp ## probe the model types of the newest transformers; fails where docs/models.md changes
	PIP_CONSTRAINT= $(PIP) install --upgrade --pre transformers
	$(BIN)/python -m docs.generate.model_types --again
	$(BIN)/python -m docs.generate
	git diff --exit-code -- docs/models.md

tag: ## fail unless TAG is that of this version
	test "v$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' src/whatwhere/__init__.py)" = "$(TAG)"

cuda: $(VENV)/dev.stamp ## the tests for an NVIDIA GPU (WHATWHERE_CUDA=1 make cuda, with a torch built for it)
	$(PYTEST) -m cuda

# Without an environment of its own: the machine's Python has a PyTorch that fits its GPU.
gpu: ## on a GPU, without a network: its tests, then the benchmark in order of worth, nine minutes in all; again to go on
	$(PYTHON) -m benchmarks.gpu $(if $(OUT),--out $(OUT))

# For the GPU's machine: Linux on x86_64. Liger needs nothing but the PyTorch that is there.
gpu-wheels: $(BIN)/python ## fetch the packages that make gpu unpacks, into build/wheels (GPU_PYTHON=3.12: of that Python)
	$(PIP) download --dest build/wheels $(FOR_GPU) -r release/gpu.txt
	$(PIP) download --dest build/wheels $(FOR_GPU) --no-deps $(GPU_PEERS)

format: $(VENV)/dev.stamp ## format the code and fix what lint can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	@if [ -d $(PAGE)/node_modules/prettier ]; then cd $(PAGE) && npm run --silent format; \
	else echo "TypeScript is not formatted without prettier: make page"; fi

docs: $(VENV)/dev.stamp ## write the generated parts of README.md and docs/
	$(BIN)/python -m docs.generate
	$(BIN)/python docs/minilm.py
	$(BIN)/python -m benchmarks.speed

site: $(VENV)/page.stamp ## build the site in build/site: documentation, course, reference
	$(BIN)/python -m docs.book

interfaces: $(VENV)/dev.stamp ## write the TypeScript types of the studio's answers from their dataclasses
	$(BIN)/python page_types.py

pictures: $(VENV)/page.stamp browser ## take the screenshots of docs/studio.md (5 minutes)
	$(BIN)/python docs/studio_pictures.py

page: $(VENV)/page.stamp ## bundle the studio's page, with what its tests need

# By the package manager where it may install; else the tests that need a browser are skipped with a message, and fail
# where CI is set, as the tests themselves do.
browser:
	@{ $(call has,chromium chromium-browser google-chrome); } || $(call apt,chromium) || \
	  $(call without,No chromium: tests of the studio's page are skipped. On Debian: apt install chromium)

firefox:
	@{ $(call has,firefox firefox-esr); } || $(call apt,firefox-esr) || \
	  $(call without,No firefox: a slow test of the studio's page is skipped. On Debian: apt install firefox-esr)

lock: $(BIN)/python ## write release/locked.txt, the hashes of the packages in constraints.txt
	$(PIP) install uv
	grep -v '^torch==' constraints.txt | $(BIN)/uv pip compile - --no-deps --generate-hashes --no-annotate --quiet \
	  --python-version 3.11.9 --custom-compile-command 'make lock' --output-file release/locked.txt

audit: $(VENV)/page.stamp ## ask the package indexes for known vulnerabilities of what is installed
	$(PIP) install pip-audit==$(PIP_AUDIT)
	$(BIN)/pip-audit --skip-editable
	cd $(PAGE) && npm audit

release-check: $(VENV)/page.stamp ## build the package twice, check it, install it alone, run each command; then dist/ has it
	$(PIP) install build twine
	$(BIN)/python release/check.py

clean: ## remove build outputs and caches
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.*

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "whatwhere needs Python 3.11 or later, but $(PYTHON) is $$($(PYTHON) -V). Pass another: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make environments. On Debian and Ubuntu: apt install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/torch.stamp: constraints.txt | $(BIN)/python
	$(PIP) install $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) $(TORCH_PIN)
	@$(BIN)/python -c 'import os, sys, torch; sys.exit(bool(torch.version.cuda) and not os.environ.get("WHATWHERE_CUDA"))' || \
	  { echo "This torch was built for CUDA and brings several GB of packages that a CPU does not need."; \
	    echo "For the CPU build: make clean, then make TORCH_INDEX=<the index of PyTorch's CPU builds>. To keep it: WHATWHERE_CUDA=1 make ..."; exit 1; }
	@touch $@

$(VENV)/studio.stamp: pyproject.toml $(VENV)/torch.stamp $(KERNELS)
	$(PIP) install -e '.[studio]'
	@touch $@

# On the system where versions are locked, each file has the hash that release/locked.txt has of it.
$(VENV)/dev.stamp: pyproject.toml release/locked.txt $(VENV)/torch.stamp $(KERNELS)
	@case "$$(uname -sm) $$($(BIN)/python -V)" in "Linux x86_64 Python 3.11."*) \
	  $(PIP) install --no-deps --require-hashes -r release/locked.txt;; esac
	$(PIP) install -e '.[dev]'
	@touch $@ $(VENV)/studio.stamp

$(VENV)/page.stamp: $(PAGE_FILES) $(VENV)/dev.stamp
	@if command -v npm > /dev/null; then \
	  cd $(PAGE) && npm ci --ignore-scripts --no-audit --no-fund --silent; \
	else $(call without,No npm: tests of the studio's page are skipped. On Debian: apt install npm); fi
	$(BIN)/python hatch_page.py || echo "The studio has no page here, and tests of it are skipped."
	@touch $@
