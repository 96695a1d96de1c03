# Everything sets itself up in .venv from nothing but Python 3.11+, make and a C compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NATIVE := $(wildcard runtime/native/src/*/*.[ch] runtime/native/include/graft/*.h runtime/native/python/*.[ch] plugins/onednn/native/*.[ch] plugins/irregular/native/*.[ch] plugins/accelerator/native/*.[ch] plugins/cuda/native/*.[ch] plugins/cuda/native/cublas/*.[ch])

.PHONY: setup release demo test test-slow test-conformance test-kit test-torch test-plugins test-vendors test-targets docs check ratchets format bench native-check clean

setup: $(STAMP)

$(STAMP): pyproject.toml setup.py $(NATIVE)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/python examples/demo.py

# The source distribution and the wheels of each Python here, in dist/, each tried in a clean environment.
release:
	.ci/release

# A wheel of an older NumPy is for the tests of interpreters of their own, which skip and say so without it.
test: $(STAMP)
	@ls build/wheels/numpy-1.26.4-*.whl >/dev/null 2>&1 || $(BIN)/python -m pip download --quiet --no-deps \
	  --only-binary :all: --dest build/wheels numpy==1.26.4 || echo "not to be had: numpy 1.26.4"
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations 60

test-slow: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow

# The whole of ONNX's own test suite, with default backends and with the built-in compiler alone, and 1,000 random
# models, each in a way that its seed draws, and bugs planted for the kit, of which `test` has a sample; random programs
# of the accelerator against what its page says; thousands of random schedules; and a sample of the kit's levels for each
# backend in the tree.
test-conformance: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "conformance and not whole" tests/conformance \
	  tests/testkit/models/test_random_models.py tests/testkit/test_planted_bugs.py \
	  tests/plugins/accelerator/page tests/end_to_end/disagreeing tests/end_to_end/open_shapes \
	  tests/datatypes/proofs/test_random_formats.py tests/datatypes/scaled tests/datatypes/test_rounding.py \
	  tests/core/schedule/primitives/test_polybench.py tests/core/schedule/templates tests/core/differentiation

# What takes longer: all of the kit's levels for each backend in the tree, damaged input.
test-kit: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m conformance tests/conformance/test_backends.py tests/testkit \
	  --ignore=tests/testkit/models/test_random_models.py --ignore=tests/testkit/test_planted_bugs.py

# PyTorch's own database of operators under torch.compile, five types, two samples each with gradients: about two hours.
test-torch: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "slow or not slow" tests/torch
	for dtype in float32 float64 int64 bool bfloat16; do \
	  $(BIN)/python -W ignore -m tests.torch.operator_database --dtype $$dtype --samples 2 || exit 1; done

# Plugins as users have them, each in a clean environment: those of examples/plugins, and what the scaffold writes.
test-plugins: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow tests/examples/test_plugins.py tests/testkit/scaffold/test_project.py

# Plugins over vendors' own compilers, which it installs; the pins of tosa-tools contradict onnx, and newer ones work.
# Rockchip's takes 5 GB, in an environment of its own in the user's cache directory.
test-vendors: $(STAMP)
	$(BIN)/python -m pip install --quiet 'ethos-u-vela>=5.2' 'flatbuffers>=25.2.10' semver jsonschema
	$(BIN)/python -m pip install --quiet --no-deps tosa-tools==2026.8.0
	$(BIN)/python -m pip install --quiet 'openvino>=2025.0'
	GRAFT_RKNN_PYTHON=$$($(BIN)/python -m tests.testkit.vendor_environment examples/plugins/rknn/graft_rknn/toolkit.lock) \
	  $(BIN)/python -m pytest -m slow tests/examples/test_plugins.py -k 'ethosu or openvino or rknn'
	PYTHONPATH=examples/plugins/ethosu $(BIN)/python -W ignore examples/plugins/ethosu/tests/tosa_cases.py build/tosa

# Other machines, emulated: installs emulators and compilers where it may, tests skip and say what is missing otherwise.
test-targets: $(STAMP)
	.ci/install_targets
	$(BIN)/python -m pip install --quiet --editable '.[wasmtime]' || echo "not to be had: wasmtime"
	$(BIN)/python -m pytest -m "slow or not slow" tests/end_to_end/test_aarch64.py \
	  tests/end_to_end/test_riscv64.py tests/end_to_end/test_wasm.py tests/end_to_end/test_wasm_shapes.py \
	  tests/end_to_end/test_wasmtime.py tests/examples/test_cortex_m.py \
	  tests/end_to_end/test_wasm_threads.py tests/runtime/export/test_c_built.py tests/report/test_sign_off.py

# The documentation site, build/docs/html; a warning or a link that leads nowhere is an error. All code of the pages is run.
docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	$(BIN)/python -m sphinx -b html -q -W --keep-going -d build/docs/doctrees docs build/docs/html
	$(BIN)/python -m pytest -n 2 -m "slow or not slow" tests/docs

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tests.ratchets
	$(BIN)/python -m pytest -q -n 0 tests/docs/test_words.py tests/docs/test_rooms.py
	$(MAKE) native-check

ratchets: $(STAMP)
	$(BIN)/python -m tests.ratchets --write
	$(BIN)/python -m pytest -q -n 0 tests/docs/test_rooms.py --update-golden

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)
	$(BIN)/python -m benchmarks

native-check:
	$(MAKE) -C runtime/native check
	$(MAKE) -C plugins/onednn/native check
	$(MAKE) -C plugins/irregular/native check
	$(MAKE) -C plugins/accelerator/native check
	$(MAKE) -C plugins/cuda/native check

clean:
	rm -rf $(VENV) build dist *.egg-info src/*.egg-info runtime/native/build plugins/*/native/build
	find . -name '*.so' -not -path './$(VENV)/*' -delete
