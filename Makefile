# `make run` and `make test` do all their own set-up; nothing but Python 3.11 and make is needed.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: run test test-torch test-hosts test-browser check gpu clean

run: .venv/run
	$(BIN)/deepbench run

test: .venv/test
	$(BIN)/python -m pytest

# The same with PyTorch, in the build for CPUs where an index has it: several gigabytes elsewhere.
TORCH := 2.13.0
test-torch: .venv/test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'torch==$(TORCH)'
	$(BIN)/python -m pytest tests/backends -k 'torch or gloo'

# Long tests: groups, fleets, launchers and comparisons for real; groups and fleets over several hosts, as network namespaces with slow links: needs root and iproute2, else skipped.
test-hosts: .venv/test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fleet]'
	DEEPBENCH_TEST_HOSTS=1 $(BIN)/python -m pytest tests/hosts tests/measure/test_launched.py tests/cli/test_loss.py tests/docs/test_docs.py::test_the_example_library_multiplies tests/cli/test_commands.py::test_show_by_application_and_by_backend tests/cli/test_commands.py::test_a_group_from_the_command_line_and_its_views tests/cli/test_compare.py::test_a_budget_is_kept tests/measure/test_liars.py::test_work_that_was_not_done_is_found_by_the_roof

# Pages in a real browser: Debian's chromium, installed where we may, and axe's rules of accessibility.
test-browser: .venv/test
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; } || echo "no chromium, and no right to install it: the tests will say what they miss"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[browser-test]'
	DEEPBENCH_TEST_BROWSER=1 $(BIN)/python -m pytest tests/report/test_pages_in_browser.py

# For developers, under a minute: format, lint, strict types, the fast tests.
check: .venv/check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/core tests/ops tests/native/test_*.py tests/machine tests/results tests/plan tests/judge tests/formats tests/report tests/measure/test_clock.py tests/measure/test_sides.py tests/measure/test_launch.py tests/measure/test_launcher.py tests/test_architecture.py

# For a machine with an NVIDIA GPU, under eight minutes: is every library right, and how fast? Results stay in gpu-results.
gpu: .venv/gpu
	$(BIN)/python benchmarks/gpu.py gpu-results

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find deepbench -name '*.so' -delete

.venv/run: .venv/made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[mkl,scipy,mpi]'
	@touch $@

.venv/test: .venv/made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[mkl,scipy,mpi,test,gpu-test]'
	@touch $@

.venv/gpu: .venv/made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cuda13,test]'
	@touch $@

.venv/check: .venv/made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[mkl,scipy,mpi,test,gpu-test,dev]'
	@touch $@

.venv/made: pyproject.toml setup.py deepbench/native/callloop.c
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "DeepBench needs Python 3.11 or newer, found $$($(PYTHON) --version 2>&1); try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv --clear .venv || { echo "python3 -m venv failed; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@touch $@
