"""What oneDNN does inside a region: layouts, constants, memory and threads, read from the loader's description."""

import numpy as np
import pytest

from tests.plugins.onednn.cases import CASES
from tests.plugins.onednn.models import Case, compile_region, kernel_names, load, needs_library, run

pytestmark = needs_library

CHAIN = Case(
    "c0 = Conv<pads = [1, 1, 1, 1]>(x, w0, b) r0 = Relu(c0) c1 = Conv<pads = [1, 1, 1, 1]>(r0, w1, b) r1 = Relu(c1)"
    "p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r1) c2 = Conv(p, w2, b) y = Relu(c2)",
    {"x": (1, 32, 12, 12)},
    {"w0": (32, 32, 3, 3), "w1": (32, 32, 3, 3), "w2": (32, 32, 1, 1), "b": (32,)},
)


def test_layouts_are_changed_at_the_ends_of_a_chain_only():
    loaded = load(compile_region(CHAIN.region()))
    kernels = kernel_names(loaded)
    loaded.close()
    assert "reorder" not in kernels[1:-1]
    assert [kernel for kernel in kernels if kernel != "reorder"] == [
        "onednn.conv_bias_relu",
        "onednn.conv_bias_relu",
        "MaxPool",
        "onednn.conv_bias_relu",
    ]


def test_constants_are_laid_out_at_load_and_not_by_the_steps():
    loaded = load(compile_region(CASES["matmul_bias"].region()))
    assert kernel_names(loaded) == ["onednn.matmul_bias"]
    loaded.close()


def test_a_dying_residual_is_summed_in_place():
    """Three convolutions and no copy of the residual: nothing is reordered between them."""
    loaded = load(compile_region(CASES["residual_in_place"].region()))
    kernels = kernel_names(loaded)
    loaded.close()
    assert "reorder" not in kernels[1:-1]


def test_intermediate_values_share_the_workspace():
    steps = 24
    chain = " ".join(f"v{i + 1} = Exp(v{i}) " for i in range(steps))
    case = Case(f"v0 = Neg(x) {chain} y = Neg(v{steps})", {"x": (64, 64)}, {})
    loaded = load(compile_region(case.region()))
    text = loaded.library.graft_onednn_describe(loaded.module).decode()
    loaded.close()
    assert text.splitlines()[0] == f"workspace {2 * 64 * 64 * 4}"


@pytest.mark.parametrize("threads", [1, 2])
def test_the_number_of_threads_does_not_change_the_result(threads):
    region = CHAIN.region()
    loaded = load(compile_region(region), threads)
    got = run(loaded, region, CHAIN.feeds())
    loaded.close()
    np.testing.assert_allclose(got["y"], CHAIN.expected()[0], rtol=1e-3, atol=1e-4)


def test_calls_at_the_same_time_do_not_disturb_each_other():
    from concurrent.futures import ThreadPoolExecutor

    region = CHAIN.region()
    loaded = load(compile_region(region))
    inputs = [np.random.default_rng(seed).normal(size=(1, 32, 12, 12)).astype(np.float32) for seed in range(8)]
    alone = [run(loaded, region, {"x": array})["y"] for array in inputs]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda array: run(loaded, region, {"x": array})["y"], inputs * 4))
    loaded.close()
    for one, other in zip(alone * 4, together, strict=True):
        np.testing.assert_array_equal(one, other)
