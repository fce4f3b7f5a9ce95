# `make` alone lists the targets. Everything runs out of .venv, which `make venv` keeps equal to requirements.lock.
.DEFAULT_GOAL := help
.PHONY: help root venv tools lab lab-vllm lab-down doctor drill test test-fast test-processes test-lab test-site test-all check lint format docs bench lock

# A machine that forbids it compiles every module again for each of the hundreds of programs that the tests start.
export PYTHONDONTWRITEBYTECODE :=

PYTHON ?= python3
RUN := .venv/bin/python
UV := uv==0.13.9
# More than cores: many tests wait for an emulated machine or a server. A lab takes a gigabyte, a unit test nothing.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
UNIT_WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
# Collected once, unlike by xdist, each of whose workers collects all.
unit_tests = $(RUN) -m pytest -q -p tests.forks --forks $(UNIT_WORKERS)
# Each worker has namespaces and a lab folder of its own; tests that share a lab share a worker (tests/lab/groups.py).
lab_tests = $(RUN) -m pytest -v --durations=40 --dist loadscope --no-loadscope-reorder \
	--tx '$(1)*popen//python=tests/lab/alone.sh $(RUN)'

help: ## this text
	@echo "An LLM inference platform as one Pulumi program, and a lab that runs it on this machine without a GPU."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "Sites, without a lab: bin/sitectl --help"
	@echo "A lab, first time: make lab (as root; it builds its tools once). Then, by hand in it:"
	@echo '  eval "$$($(RUN) -m lab env)"   pulumi, kubectl and helm now mean the lab'
	@echo '  pulumi preview                          what would change; edit Pulumi.lab.yaml and look again'
	@echo '  pulumi up                               make it so'

# Before anything is built: that takes half an hour.
root:
	@[ "$$(id -u)" = 0 ] || { printf 'error: the lab needs root, and this is user id %s\n  fix: %s\n' "$$(id -u)" \
		'run it by sudo; bin/sitectl and make check need neither root nor lab' >&2; exit 1; }

venv: ## .venv with exactly the packages of requirements.lock
	@$(PYTHON) lab/bootstrap.py $(if $(filter venv,$(MAKECMDGOALS)),--report)

tools: venv ## build or find the lab's programs (once, into ~/.cache/inference-lab)
	@$(RUN) -m lab install

lab: root tools ## from emulated machines in maintenance mode to the platform, and a streamed answer
	@$(RUN) -m lab up
	@$(RUN) -m lab deploy

lab-vllm: root tools ## the same with a real vLLM on this machine's CPU: two replicas of a tiny model (9 GB once)
	@$(RUN) -m lab up --engine vllm
	@$(RUN) -m lab deploy

lab-down: venv ## remove the lab; leaves no process, namespace, link or mount
	@$(RUN) -m lab down

doctor: venv ## can this machine run the lab; which engine and plugins it uses
	@$(RUN) -m lab doctor

check: venv lint ## lint, and the fast tests that your changes can touch: since main, or BASE; LIST=1 runs none
	@$(RUN) -m tests.changed $(if $(LIST),--list) $(BASE)

test: root lint ## lint, the unit tier, then the lab tier (as root; starts its own labs)
	@$(unit_tests) -m "not exhaustive and not second_source" tests/unit
	@$(MAKE) --no-print-directory test-lab

test-fast: venv ## all fast tests: those of the unit tier that start no processes and take no second
	@$(unit_tests) tests/unit

test-processes: venv ## slow tests: of commands as processes, whole sites, emulated racks and simulated traffic, left out of the fast tier
	@$(unit_tests) -m "(processes or slow or simulations) and not exhaustive" tests/unit

test-lab: root tools ## tests against running labs, each worker with its own labs
	@$(call lab_tests,$(WORKERS)) tests/lab

test-site: root tools ## of these, the tests of the running platform
	@$(call lab_tests,$(WORKERS)) tests/lab/site

drill: root tools ## inject each failure mode into a lab; prints panel, alert, runbook and answer (15 minutes)
	@$(RUN) -m pytest -q -m exhaustive tests/lab/site/test_failure_modes.py

# One lab at a time: beside two others on two cores some of these tests failed that pass alone.
test-all: root test ## all of `make test`, and the slow tests that it leaves out; hours
	@$(unit_tests) -m exhaustive tests/unit
	@$(RUN) -m lab.vllm_cpu
	@$(RUN) -m tests.lab.keycloak_server
	@$(RUN) -m lab install --only keda --only leader-worker-set
	@$(RUN) -m lab.install.earlier
	@$(call lab_tests,1) -m exhaustive tests/lab
	@$(RUN) -m tests.exhaustive.second_source

lint: venv ## linter, format and types
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m mypy

format: venv ## format, and apply the fixes of the linter
	@$(RUN) -m ruff format .
	@$(RUN) -m ruff check --fix .

docs: venv ## write what is generated: configuration.md, its schema, alerts.md, requirements.md, live-checks.md, dashboards
	@$(RUN) -m stacks.site.reference
	@$(RUN) -m components.monitoring.alert_page
	@$(RUN) -m components.monitoring.dashboards
	@$(RUN) -m tests.requirements
	@$(RUN) -m tests.live_table

bench: root tools ## measure the lab; results go to benchmarks/
	@$(RUN) -m benchmarks

lock: venv ## write requirements.lock again from pyproject.toml
	@$(RUN) -m pip install --quiet --disable-pip-version-check $(UV)
	@$(RUN) -m uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-header --no-annotate --extra lab --extra dev --extra services pyproject.toml -o requirements.lock
	@echo "make venv installs it"
