# Every target sets up what it needs in .venv; only Python 3.11 or newer and make must be installed.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# $(call tests,which,options) runs tests. What fails is run once more, alone: other programs may have disturbed it.
PYTEST = $(BIN)/python -m pytest -o cache_dir=.pytest_cache/$@
tests = $(PYTEST) $(1) $(2) || $(PYTEST) $(1) --last-failed --last-failed-no-failures none

.PHONY: run check test test-all test-long test-wheel test-hosts test-torch test-applications test-paddle \
	test-aarch64 test-aarch64-setup test-runtimes test-simulators test-sycl test-browser test-browser-setup test-slurm \
	test-slurm-setup pictures gpu clean

run: .venv/run
	$(BIN)/deepbench run

# Before a commit, a minute: format, lint, strict types, the rules of the architecture, and the tests of the core.
check: .venv/test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 tests/test_architecture.py tests/core

# All tests except the opt-in ones below, under 5 minutes on 2 cores. The first lane runs tests beside each other, the
# second one by one: those that assert on times.
# `make test LEFT_OUT=--ignore=tests/core` leaves out what another target has run.
LEFT_OUT :=
test: .venv/test
	$(call tests,-m 'not alone' $(LEFT_OUT),-n 3 --dist worksteal)
	$(call tests,-m alone)

# Everything. `.ci/run` leaves out what takes long: test-long, test-torch, applications and PaddlePaddle.
test-all: check test test-long test-wheel test-hosts test-slurm test-torch test-browser test-paddle test-runtimes \
	test-simulators test-sycl test-aarch64 test-applications

# Tests that take long: comparisons and budgets with real libraries, runs killed at many moments.
test-long: .venv/test
	$(call tests,-m 'long and not hosts')
	$(call tests,-m 'long and hosts')

# Build a wheel, install it in a new environment, and measure a case outside the checkout.
test-wheel: .venv/test
	$(call tests,-m wheel)

# Collectives and fleets over several hosts, simulated by network namespaces. Skipped without root and iproute2.
test-hosts: .venv/test
	$(call tests,-m hosts)

# Fleets on a Slurm cluster of four simulated hosts, 100 s. Installs Debian's Slurm if it is missing and we are root.
# Skipped without root, iproute2, or a kernel with control groups of version 1.
test-slurm: test-slurm-setup
	$(call tests,-m slurm)

test-slurm-setup: .venv/test
	@command -v slurmctld >/dev/null || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null || { \
	apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurmctld slurmd slurm-client munge \
	iproute2 >/dev/null; } || echo "Debian's Slurm cannot be installed here"

# Kernels of PyTorch, as they are and compiled, and traces of networks in PyTorch, JAX and ONNX. Its build for CPUs is
# used where the package index has one; others are several gigabytes.
TORCH := 2.13.0
test-torch: .venv/test
	$(PIP) 'torch==$(TORCH)'
	$(PIP) jax onnx onnxruntime mlperf-logging mlcommons-loadgen
	$(BIN)/python -m pytest -m torch

# Every application is trained once in its smallest size and judged by its reference, 15 minutes. Downloads 70 MB of data.
test-applications: .venv/test
	$(PIP) 'torch==$(TORCH)'
	$(PIP) --editable '.[applications]'
	$(BIN)/deepbench data all
	$(BIN)/python -m pytest -m applications

# Kernels of PaddlePaddle, a download of 200 MB.
PADDLE := 3.3.1
test-paddle: .venv/test
	$(PIP) 'paddlepaddle==$(PADDLE)'
	$(BIN)/python -m pytest tests/backends -k paddle

# Kernels of OpenVINO and IREE, and models of ONNX Runtime against `onnx`, a download of 170 MB.
test-runtimes: .venv/test
	$(PIP) openvino iree-base-compiler iree-base-runtime onnx
	$(BIN)/python -m pytest tests/backends -k 'openvino or iree or onnxruntime'

# Kernels of oneDNN on SYCL, through Intel's OpenCL runtime for CPUs: a download of 600 MB.
test-sycl: .venv/test
	$(PIP) 'onednn>=2026.1'
	$(call tests,tests/backends -k onednn_sycl)

# Problems and cycles in the real SCALE-Sim and ZigZag, each in an environment of its own, and models in LiteRT.
test-simulators: .venv/test .venv/scalesim .venv/zigzag
	$(PIP) ai-edge-litert
	$(call tests,tests/simulators tests/formats -m 'simulators or not simulators' -k 'simulators or tflite')

.venv/scalesim: .venv/created
	@$(PYTHON) -m venv --clear $@
	$@/bin/python -m pip install --quiet --disable-pip-version-check scalesim==3.0.0 'numpy<2.4'

.venv/zigzag: .venv/created
	@$(PYTHON) -m venv --clear $@
	$@/bin/python -m pip install --quiet --disable-pip-version-check zigzag-dse==3.9.1 six

# On emulated Arm processors, a simple one (as in a Raspberry Pi 4) and one with everything (SVE, SME, bf16, i8mm): tests
# of what depends on the machine, and every smoke problem of every library. Downloads 200 MB; needs Debian or Ubuntu.
ARM_EXTRAS := nvpl scipy mpi onnxruntime openvino xnnpack ggml
ARM_TESTS := tests/core tests/machine tests/native --ignore=tests/native/gpu
test-aarch64: test-aarch64-setup .venv/aarch64
	for cpu in cortex-a72 max,pauth-impdef=on,sme-default-vector-length=64; do echo "== $$cpu"; \
	CPU=$$cpu .venv/aarch64/bin/python -m pytest -n 2 --dist worksteal -p no:cacheprovider $(ARM_TESTS) \
	-m 'not (programs or process or alone or costly or torch or gpu)' && \
	CPU=$$cpu .venv/aarch64/bin/python -m pytest -n 2 --dist worksteal -p no:cacheprovider tests/backends/test_backends.py \
	-m 'not (torch or gpu)' || exit 1; done

# The cross compiler for our loops, if it is missing and we are root.
test-aarch64-setup: .venv/test
	@command -v aarch64-linux-gnu-gcc >/dev/null || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null || { \
	apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc-aarch64-linux-gnu \
	libc6-dev-arm64-cross >/dev/null; } || echo "the cross compiler cannot be installed here"

.venv/aarch64: .venv/created tests/help/aarch64.py $(wildcard deepbench/native/*.c deepbench/native/*.h)
	$(BIN)/python tests/help/aarch64.py $@ $(ARM_EXTRAS)
	$@/bin/python -m pip install --quiet --disable-pip-version-check --no-compile pytest pytest-xdist hypothesis
	@touch $@

# Pages in a real browser, with axe's accessibility rules. Installs Debian's Chromium without windows, which takes half
# the time, if no browser is installed and we are root.
test-browser: test-browser-setup
	$(call tests,-m browser,-n 2 --dist worksteal)

test-browser-setup: .venv/test
	@command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null || \
	command -v google-chrome >/dev/null || test "$$(id -u)" != 0 || { \
	apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium-headless-shell \
	fonts-dejavu-core >/dev/null; }

# Screenshots of terminals and pages in docs/pictures, from the files in results/. Needs what test-browser sets up.
pictures: .venv/test
	$(BIN)/python docs/make_pictures.py

# On a machine with an NVIDIA GPU, at most 8 minutes: checks and times every library. Results go to gpu-results.
gpu: .venv/gpu
	$(BIN)/python benchmarks/gpu.py gpu-results

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find deepbench -name '*.so' -delete

.venv/run: .venv/created
	$(PIP) --editable '.[mkl,aocl,scipy,mpi,report,history]'
	@touch $@

# The oldest and the newest PJRT plug-in for CPUs of the package index, and the wheel with XNNPACK. What they depend on is
# not needed.
NO_DEPENDENCIES := xla-cpu-pjrt==0.0.1 executorch==1.5.1 "lammps-jax-pjrt-cpu==0.11.2; platform_machine == 'x86_64'"

.venv/test: .venv/created
	$(PIP) --editable '.[mkl,aocl,scipy,mpi,onnxruntime,test,browser-test,gpu-test,dev]'
	$(PIP) --no-deps $(NO_DEPENDENCIES)
	@touch $@

.venv/gpu: .venv/created
	$(PIP) --editable '.[cuda13,test]'
	@touch $@

.venv/created: pyproject.toml setup.py deepbench/native/callloop.c
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "DeepBench needs Python 3.11 or newer, found $$($(PYTHON) --version 2>&1);" \
	"try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv --clear .venv || { \
	echo "python3 -m venv failed; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@touch $@
