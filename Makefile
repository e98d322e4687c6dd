# `make help` lists the targets. Everything is installed into .venv and nowhere else.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help venv demo test fuzz test-unit test-system full-size chaos soak check lint protos locks docs bench bench-peers sanitize clean

BIN := $(CURDIR)/.venv/bin
# Without these, npm and the services would leave files in the home directory and beside the sources.
export npm_config_cache := $(CURDIR)/.venv/npm-cache
# The tests compute in two processes and more; one thread each keeps them out of each other's way.
export OMP_NUM_THREADS ?= 1

QUESTION ?= What is the capital of France?
MINUTES ?= 5
DEMO_FLAGS ?= --port 0 --quantization int8

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

venv: ## the virtual environment with everything in it (PYTHON, TORCH_SPEC)
	@deploy/install.sh

# By the environment and a pipe: neither make nor a shell reads what is asked.
demo: export DEMO_QUESTION = $(value QUESTION)
demo: venv ## install, start everything, ask the real model one question, stop everything (QUESTION)
	@printf '%s' "$$DEMO_QUESTION" | env -u OMP_NUM_THREADS PYTHONDONTWRITEBYTECODE=1 \
	  $(BIN)/headrace-local $(DEMO_FLAGS) --run 'headrace generate --stats --temperature 0 -'

test: venv ## the whole test suite, except what needs Debian packages or an accelerator
	@HEADRACE_TEST_REDIS=bundled $(BIN)/pytest -m 'not system and not gpu'

chaos: venv ## faults of every kind under load, for MINUTES; SEED replays a run (CHAOS_FLAGS)
	@$(BIN)/python -m tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(CHAOS_FLAGS)

full-size: venv ## 1000 requests with one client id at once, 100,000 tiny ones: bounded in the suite, in full here
	@HEADRACE_TEST_REDIS=bundled HEADRACE_TEST_SIZE=full $(BIN)/pytest -s tests/e2e/test_identity.py tests/e2e/test_many_small.py

soak: venv ## one engine on a tiny pool, everything at once, for MINUTES (20); SEED replays, SOAK_FLAGS as --kind lean
	@$(BIN)/python -m tests.soak $(if $(filter file,$(origin MINUTES)),,--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(SOAK_FLAGS)

fuzz: venv ## tens of thousands of broken and odd messages, guided by coverage too; prints their number (CI: less)
	@$(BIN)/pytest tests/fuzz --hypothesis-profile=fuzz

test-unit: venv ## the pure and fast tests alone
	@$(BIN)/pytest tests/unit

test-system: venv ## the tests that need Debian packages, which are installed; integration on their Redis
	@deploy/system_packages.sh
	@PYTHON=$(BIN)/python deploy/gptq_packages.sh $(CURDIR)/.venv/gptq
	@HEADRACE_TEST_REDIS=system $(BIN)/pytest -m '(system or integration) and not gpu'

check: lint test-unit ## lint, and the unit tests

lint: venv ## format, lint, types, import rules, protos, list of modules
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@PYTHON=$(BIN)/python protos/check.sh
	@$(BIN)/python deploy/module_list.py --check

protos: venv ## generate the stubs again
	@PYTHON=$(BIN)/python protos/generate.sh

locks: venv ## write the lock files of the images again (TORCH_CPU: a folder or page with torch's CPU wheel)
	@$(BIN)/pip install --quiet uv==0.13.9
	@UV=$(BIN)/uv UV_CACHE_DIR=$(CURDIR)/.venv/uv-cache TORCH_CPU="$(TORCH_CPU)" deploy/lock.sh

docs: ## write the list of modules in docs/architecture.md again
	@python3 deploy/module_list.py

bench: venv ## measure throughput and latency with the standard workload (BENCH_FLAGS)
	@env -u OMP_NUM_THREADS $(BIN)/python -m tests.bench $(BENCH_FLAGS)

bench-peers: venv ## the same beside its peers, which are installed first: ratios of one run (PEERS_FLAGS)
	@env -u OMP_NUM_THREADS PYTHON=$(BIN)/python $(BIN)/python -m tests.bench.peers $(PEERS_FLAGS)

sanitize: venv ## the kernels under the address and undefined-behaviour sanitizers
	@PYTHON="$(BIN)/python" tests/sanitize_kernels.sh

clean: ## remove everything that was installed or built
	@rm -rf .venv build dist .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@rm -rf protos/node_modules protos/build protos/dist ./*.egg-info protos/python/*.egg-info .coverage*
	@rm -f worker/kernels/_native*.so
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
