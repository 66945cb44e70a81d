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
