"""Fixtures of the whole suite."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How fast a machine is that others use, too, says nothing of a strategy.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

SHARES = {
    "plugins/accelerator/test_codegen.py": 2,
    "quantization/test_api.py": 4,
    "end_to_end/test_symbolic_shapes.py": 4,
    "datatypes/scaled/test_blocks.py": 3,
    "datatypes/scaled/test_shared_scale.py": 3,
    "datatypes/scaled/test_conversion.py": 2,
    "core/schedule/strategies/attention/test_attention_blocks.py": 5,
    "core/schedule/strategies/attention/test_fused_attention.py": 3,
    "core/schedule/strategies/convolutions/test_direct_integers.py": 3,
    "plugins/llvm/test_emit.py": 2,
    "core/schedule/strategies/convolutions/test_register_tiles.py": 6,
    "core/schedule/strategies/convolutions/test_depthwise.py": 4,
    "quantization/test_accumulators.py": 2,
    "core/operators/products/test_fourier.py": 3,
    "measure/test_format_sweep.py": 4,
    "plugins/isolation/test_plugins_apart.py": 4,
    "core/schedule/strategies/contractions/test_open_product.py": 6,
    "core/schedule/selection/test_by_image.py": 6,
    "core/schedule/templates/test_tiled_sum.py": 5,
    "end_to_end/test_decoders.py": 4,
    "examples/test_decoders.py": 4,
    "datatypes/test_permuted_codes.py": 2,
    "datatypes/scaled/test_matmul.py": 3,
    "datatypes/scaled/test_operators.py": 3,
    "datatypes/test_conversions_round_once.py": 6,
    "datatypes/test_integers_round_once.py": 3,
    "plugins/test_broken_plugins.py": 6,
    "plugins/test_hanging_plugins.py": 4,
    "plugins/accelerator/page/test_page.py": 6,
    "plugins/accelerator/proof/test_contents.py": 6,
    "plugins/accelerator/proof/test_dependences.py": 6,
    "plugins/cuda/test_device.py": 6,
    "report/test_sign_off.py": 6,
    "end_to_end/test_strict_warnings.py": 8,
    "partition/test_models.py": 3,
    "cli/test_json.py": 4,
    "core/operators/images/test_derivatives.py": 2,
    "quantization/test_assignment.py": 8,
    "core/schedule/strategies/contractions/test_narrow_weights.py": 8,
    "plugins/llvm/test_chains.py": 2,
    "core/schedule/products/test_packed_dot.py": 4,
    "datatypes/test_posit.py": 12,
    "end_to_end/test_integers.py": 32,
    "core/schedule/test_parameters.py": 4,
    "datatypes/proofs/test_fixed_and_logarithmic.py": 3,
    "plugins/llvm/test_recurrent.py": 3,
    "datatypes/test_scalar_calls.py": 5,
    "core/importer/test_import_models.py": 2,
    "core/schedule/products/test_dot_grouping.py": 5,
    "out_of_tree/test_fake_device.py": 8,
    "core/schedule/strategies/convolutions/test_direct_bf16.py": 6,
    "core/schedule/strategies/convolutions/test_winograd.py": 6,
    "cli/test_wrong_options.py": 4,
    "compiler/test_wrong_arguments.py": 3,
    "core/operators/functions/test_functions.py": 24,
    "core/operators/functions/test_microsoft_operators.py": 16,
    "core/operators/test_conformance.py": 6,
    "core/schedule/strategies/contractions/test_blocked_product.py": 6,
    "core/schedule/strategies/convolutions/test_direct_convolution.py": 8,
    "core/schedule/strategies/nests/test_machines.py": 12,
    "core/schedule/strategies/nests/test_open_extents.py": 12,
    "core/schedule/strategies/convolutions/test_direct_nhwc.py": 8,
    "core/schedule/strategies/convolutions/test_varying_depthwise.py": 8,
    "core/schedule/strategies/convolutions/test_winograd_open_images.py": 6,
    "datatypes/proofs/test_casts.py": 5,
    "datatypes/proofs/test_posit8.py": 16,
    "datatypes/proofs/test_posit16.py": 10,
    "datatypes/proofs/test_posit32.py": 5,
    "datatypes/proofs/test_quire.py": 6,
    "datatypes/proofs/test_small_floats.py": 5,
    "datatypes/test_any_shape.py": 2,
    "datatypes/test_conversion.py": 12,
    "datatypes/test_one_order_everywhere.py": 5,
    "datatypes/test_summation_order.py": 3,
    "end_to_end/test_exported_models.py": 6,
    "core/schedule/products/test_image_elements.py": 5,
    "end_to_end/test_aarch64.py": 8,
    "end_to_end/test_models.py": 10,
    "end_to_end/test_random_symbolic_models.py": 3,
    "end_to_end/test_riscv64.py": 32,
    "end_to_end/test_switches.py": 24,
    "end_to_end/test_symbolic_zoo.py": 8,
    "end_to_end/test_targets.py": 4,
    "end_to_end/test_wasm.py": 16,
    "plugins/c_source/test_arithmetic.py": 20,
    "plugins/c_source/test_models.py": 25,
    "plugins/c_source/test_operators.py": 8,
    "plugins/codegen/test_varying_extents.py": 16,
    "plugins/cuda/test_operators.py": 50,
    "plugins/cuda/test_ptx.py": 12,
    "plugins/cuda/test_strategies.py": 8,
    "plugins/cuda/test_tuning.py": 6,
    "plugins/cuda/test_warpgroups.py": 8,
    "plugins/llvm/test_conformance.py": 6,
    "runtime/export/test_c_control.py": 6,
    "testkit/test_broken_backends.py": 3,
    "torch/aten/test_images.py": 4,
    "torch/aten/test_products.py": 4,
    "torch/test_backend.py": 12,
    "torch/test_quantized.py": 2,
}
"""By file whose cases compile much, or run whole kernels in the interpreter: one of so many cases runs every time, the
same ones always; the rest is slow."""
FOLDERS = (
    "core/affine/",
    "core/schedule/",
    "datatypes/",
    "plugins/accelerator/",
    "plugins/codegen/",
    "plugins/cuda/",
    "plugins/llvm/",
)
"""Where one of eighteen cases runs every time in other files, too."""
ALWAYS_SLOW = ("c_source/test_operators.py::Attention", "c_source/test_models.py::gpt2")
SLOW_FILES = (
    "docs/test_cortex_m.py",
    "docs/test_datatypes.py",
    "docs/test_deploy.py",
    "docs/test_docstrings.py",
    "docs/test_pictures.py",
    "docs/test_plans.py",
    "docs/test_quantisation.py",
    "docs/test_readme.py",
    "docs/test_schedules.py",
    "docs/test_training.py",
    "docs/test_tutorials.py",
    "docs/test_tuning.py",
    "examples/test_deploy.py",
    "end_to_end/test_deployed_forms.py",
    "examples/test_cortex_m.py",
    "plugins/accelerator/test_random_layers.py",
    "plugins/cuda/test_models.py",
)
"""They build the runtime, or kernels for a board, anew, or compile many models; `make docs` runs those of the pages."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent
    for item in items:
        file, (_, _, case) = item.path.relative_to(tests).as_posix(), item.name.partition("[")
        share = SHARES.get(file, 18 if file.startswith(FOLDERS) else 1)
        takes_long = f"{file}::{case.removesuffix(']')}".endswith(ALWAYS_SLOW)
        if file in SLOW_FILES or (case and (takes_long or zlib.crc32(item.name.encode()) % share)):
            item.add_marker(pytest.mark.slow)


GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files with what the tests got")


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep compiled kernels in a directory of this run, and have no configuration, instead of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("GRAFT_CONFIG", str(tmp_path_factory.mktemp("configuration") / "config.toml"))
        patch.setenv("GRAFT_TRUSTED_KEYS", "")  # whatever keys the user has
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Return a check of a text against ``tests/golden/<name>``; ``--update-golden`` rewrites the file instead."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"there is no golden file {path.name}; make it with --update-golden"
        assert text == path.read_text(encoding="utf-8")

    return check
