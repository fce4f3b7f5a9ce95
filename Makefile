# `make` alone says what there is. Everything runs out of .venv, which `make venv` keeps equal to requirements.lock.
.DEFAULT_GOAL := help
.PHONY: help venv tools bundle lab lab-down doctor test test-fast test-lab test-site test-parts check format docs bench lock

PYTHON ?= python3
RUN := .venv/bin/python
UV := uv==0.13.9
# One more than cores: many tests wait for an emulated machine or a server.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

help: ## this text
	@echo "An LLM inference platform as one Pulumi program, and a lab that runs it on this machine without a GPU."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "First time: make lab (as root; it builds its tools once). Then, by hand as on any site:"
	@echo '  eval "$$($(RUN) -m lab env)"      pulumi, kubectl and helm now mean the lab'
	@echo "  pulumi preview                     what would change; edit Pulumi.lab.yaml and look again"
	@echo "  pulumi up                          make it so"

venv: ## .venv with exactly the packages of requirements.lock
	@$(PYTHON) lab/bootstrap.py

tools: venv ## build or find the lab's programs (once, into ~/.cache/inference-lab)
	@$(RUN) -m lab install

bundle: venv ## the CRDs and the pod network that the program brings, out of their pinned sources (no lab needed)
	@$(RUN) -m lab install --only crds --only cilium

lab: tools ## from emulated machines in maintenance mode to the platform, and a streamed answer
	@$(RUN) -m lab up
	@$(RUN) -m lab deploy

lab-down: venv ## take the lab down; leaves no process, namespace, link or mount
	@$(RUN) -m lab down

doctor: venv ## can this machine carry the lab; which engine and plugins serve
	@$(RUN) -m lab doctor

test: check test-lab ## all tests: lint, types and the fast tier, then the lab tier (sets the lab up)

test-fast: venv ## tests that need no lab
	@$(RUN) -m pytest -q -n $(WORKERS) tests/unit

test-lab: tools ## tests against a running lab: the platform, and beside it the lab's parts
	@$(MAKE) --no-print-directory -j2 test-site test-parts

test-site: tools
	@$(RUN) -m pytest -v --durations=15 tests/lab/site

test-parts: tools
	@$(RUN) -m pytest -v --durations=15 tests/lab --ignore=tests/lab/site

check: venv ## lint, format, types and the fast tests
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m mypy
	@$(MAKE) --no-print-directory test-fast

format: venv ## format and mend what the linter can
	@$(RUN) -m ruff format .
	@$(RUN) -m ruff check --fix .

docs: venv ## write docs/configuration.md and docs/site.schema.json anew from the site's model
	@$(RUN) -m stacks.reference

bench: tools ## measure the lab; results go to benchmarks/
	@$(RUN) -m benchmarks

lock: venv ## write requirements.lock anew from pyproject.toml
	@$(RUN) -m pip install --quiet --disable-pip-version-check $(UV)
	@$(RUN) -m uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-header --no-annotate --extra lab --extra dev pyproject.toml -o requirements.lock
	@echo "make venv installs it"
