# `make` alone lists the targets. Everything is set up on first use; nothing is installed outside this folder.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?=
# An interpreter of exactly 3.13: PYTHON=, then PATH, then the folders of version managers.
PYTHON313 := $(shell for p in "$(PYTHON)" python3.13 python3 \
    "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.13*/bin/python3.13 "$$HOME"/.local/share/uv/python/cpython-3.13*/bin/python3.13 \
    "$$HOME"/.asdf/installs/python/3.13*/bin/python3.13 "$$HOME"/.local/share/mise/installs/python/3.13*/bin/python3.13 /opt/homebrew/bin/python3.13; do \
    [ -n "$$p" ] && "$$p" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 13))' 2>/dev/null && { command -v "$$p"; break; }; done)
PY := .venv/bin/python
export PYTHONPATH := layers/quitclaim/python:.
export SAM_CLI_TELEMETRY := 0
export AWS_DEFAULT_REGION ?= us-east-1

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F '\t' '{printf "  make %-14s %s\n", $$1, $$2}'

# --- environments: one stamp a lock, so an unchanged lock costs nothing -------------------------------------------
.PHONY: python
python:
	@[ -n "$(PYTHON313)" ] || { echo "Quitclaim needs Python 3.13, which is not on PATH: install it (for instance 'pyenv install 3.13' or 'uv python install 3.13') or name it with 'make PYTHON=/path/to/python3.13 …'."; exit 1; }

define environment
	@$(MAKE) --no-print-directory python
	@echo "setting up $(1) from $(2) …"
	@[ -x $(1)/bin/python ] || "$(PYTHON313)" -m venv $(1)
	@$(1)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r $(2)
	@touch $@
endef

.venv/ready: requirements/dev.txt
	$(call environment,.venv,$<)
.venv-ministack/ready: requirements/ministack.txt
	$(call environment,.venv-ministack,$<)
.venv-sam/ready: requirements/sam.txt
	$(call environment,.venv-sam,$<)

.PHONY: setup
setup: .venv/ready .venv-ministack/ready ## make the environments (the other targets do it by themselves)

# --- the local stack ----------------------------------------------------------------------------------------------
.PHONY: demo up down
demo: setup ## one connection's whole life, and a crash, against a real authorization server; ends with its verdict
	@$(PY) -m infra.local.demo

up: setup ## start the local stack and leave it running; prints its addresses
	@$(PY) -m infra.local up --detach --provider

down: ## stop the local stack
	@[ ! -x $(PY) ] || $(PY) -m infra.local down

# --- tests and checks ---------------------------------------------------------------------------------------------
.PHONY: test check build
test: setup ## every test but the proof: rules, store, flows, interop, workers killed on the way
	@$(PY) -m pytest --ignore tests/proof -n 2 --dist loadfile --timeout 300

check: setup .venv-sam/ready ## format, lint, types, the catalogue, the template
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/mypy
	@for f in functions/*/app.py; do .venv/bin/mypy $$f || exit 1; done
	@$(PY) -m quitclaim.providers.compile --check layers/quitclaim/python/quitclaim/providers/catalogue layers/quitclaim/python/quitclaim/providers/catalogue/compiled
	@$(PY) -m quitclaim.providers page --check
	@$(PY) -m quitclaim.runtime.event_bodies docs/events --check
	@$(PY) -m tests.rulebook --check
	@.venv/bin/cfn-lint
	@.venv-sam/bin/sam validate --lint

build: setup .venv-sam/ready ## what sam deploy takes: the functions and both layers
	@find layers/quitclaim functions -name __pycache__ -prune -exec rm -r {} +
	@PATH="$(CURDIR)/.venv/bin:$$PATH" .venv-sam/bin/sam build

.PHONY: lock clean
lock: ## make the locks again from pyproject.toml (needs uv)
	@uv pip compile $(LOCK) --group dev pyproject.toml -o requirements/dev.txt
	@uv pip compile $(LOCK) -c requirements/dev.txt pyproject.toml -o requirements/runtime.txt
	@uv pip compile $(LOCK) --group ministack -o requirements/ministack.txt
	@uv pip compile $(LOCK) --group sam -o requirements/sam.txt
LOCK := --quiet --python-version 3.13 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header

clean: down ## remove everything that was made: environments, builds, local state
	@rm -rf .venv .venv-ministack .venv-sam build var .aws-sam .mypy_cache .ruff_cache .pytest_cache

# --- the proof ----------------------------------------------------------------------------------------------------
.PHONY: proof proof-nightly
proof: setup ## crash points, interleavings, faults, clocks, mutants and the model, in the CI setting; ends in one table
	@$(PY) -m pytest tests/proof -n 2 --dist worksteal --timeout 900

proof-nightly: setup ## the same to its full extent, technique by technique; hours
	@$(PY) -m tests.proof.nightly

.PHONY: webhooks-nightly
webhooks-nightly: setup ## webhooks to their full extent: 2,000 deliveries, workers killed on the way; 100,000 mutated requests
	@QUITCLAIM_DELIVERIES=2000 $(PY) -m pytest tests/story/test_webhooks.py
	@QUITCLAIM_MUTATIONS=100000 $(PY) -m pytest tests/flows/test_webhooks.py tests/functions/test_webhook.py --timeout 3600

.PHONY: screenshots
screenshots: setup ## take the pictures in docs/img again (needs Debian's chromium and chromium-driver)
	@QUITCLAIM_SCREENSHOTS=docs/img $(PY) -m pytest -q tests/browser -k screenshots

.PHONY: rules
rules: setup ## which test asserts which numbered rule: build/rules.json, and what is uncovered
	@$(PY) -m tests.rulebook
