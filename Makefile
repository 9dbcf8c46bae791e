# Two commands do all the set-up by themselves: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help setup demo demo-control demo-sandbox lint docs screenshots check test test-slow test-harness test-browser audit gpu-check format lock clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: ## Make or update .venv (the other targets do this too)
	@$(PYTHON) bootstrap.py $(if $(BUILD),--build $(BUILD))

demo: setup ## Let simulated users teach a real language model (fetches it at first, 93 MB)
	@$(BIN)/burnish demo

demo-control: setup ## The same twice more: learner off, rewards shuffled
	@$(BIN)/burnish demo --control

demo-sandbox: setup ## The demo in the toy language, with the small model that ships
	@$(BIN)/burnish demo --sandbox

lint: setup ## Lint, types, import rules, and the documentation's links
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs: setup ## Write the generated pages and build the site into .work/site
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

screenshots: setup ## Pictures of every page, light and dark, into docs/images (Chromium as in test-browser)
	$(BIN)/python -m benchmarks.seen.screenshots

# Tests that start no server run in two processes. A real engine takes both cores, so its tests run in one.
PLAIN = $(BIN)/pytest --numprocesses 2 --dist loadfile --durations 15

check: lint ## Lint and the tests that start no server
	$(PLAIN) -m "not engine and not slow and not harness and not browser and not fuzz"

test: lint ## Everything that CI runs: lint and all tests with real servers
	$(PLAIN) -m "not engine and not slow and not harness and not browser"
	$(BIN)/pytest -m "engine and not slow and not harness and not browser" --durations 15

test-slow: setup ## The long suites
	$(BIN)/pytest -m slow --timeout 3600

test-harness: setup ## Real agent harnesses against the gateway (installs them under .work/ at first)
	$(BIN)/pytest -m harness tests/harness

test-browser: setup ## Thumbs and pages in a real Chromium (installs Debian's where there is none; axe-core from npm)
	$(BIN)/pytest -m browser tests/browser

audit: setup ## SBOMs of the locks, and their known vulnerabilities
	$(BIN)/python deploy/audit.py

gpu-check: ## On a CUDA machine: the learner's speed and memory, vLLM (ARGS="--only ours --minutes 9"; no .venv needed)
	$(PYTHON) -m benchmarks.gpu $(ARGS)

format: setup ## Rewrite the code's layout
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

LOCK = UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links $(UPGRADE)

lock: setup ## Write locks/ anew after a change of pyproject.toml (UPGRADE=--upgrade takes newer versions)
	printf 'torch\ntriton\n' | $(LOCK) pyproject.toml locks/torch.txt --extra cpu --extra dev --excludes - \
		--output-file locks/cpu.txt
	$(LOCK) pyproject.toml --extra gpu --extra dev --output-file locks/gpu.txt
	printf 'setuptools\nuv\n' | $(LOCK) - --output-file locks/build.txt

clean: ## Remove the environment and caches (never .burnish)
	rm -rf .venv .pytest_cache .ruff_cache .mypy_cache .import_linter_cache
