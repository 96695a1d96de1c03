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


def implementations(case: Case) -> dict[str, str]:
    """Return oneDNN's name of what runs each kernel."""
    loaded = load(compile_region(case.region()))
    found = {row[0]: row[2] for row in loaded.steps()}
    loaded.close()
    return found


BEHIND_A_CONVOLUTION = {
    "MaxPool": "y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(c)",
    "AveragePool": "y = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(c)",
    "GlobalAveragePool": "y = GlobalAveragePool(c)",
    "LRN": "y = LRN<size = 5>(c)",
    "BatchNormalization": "y = BatchNormalization(c, v, v, v, s)",
    "Softmax": "y = Softmax<axis = 1>(c)",
    "Mul": "y = Mul(c, v2)",
}


@pytest.mark.parametrize("operator", BEHIND_A_CONVOLUTION)
@pytest.mark.parametrize("image", [(1, 64, 12, 12), (1, 64, 12, 4), (2, 64, 12, 12)], ids=str)
def test_no_operator_behind_a_convolution_falls_to_a_reference_implementation(operator, image):
    """oneDNN chooses layouts for convolutions; with a batch of one, its fast kernels knew them no longer."""
    channels = np.linspace(0.5, 2, 64, dtype=np.float32)
    constants = {"w": (64, 64, 3, 3), "v": channels, "s": channels, "v2": channels.reshape(64, 1, 1)}
    case = Case(
        f"c = Conv<pads = [1, 1, 1, 1]>(x, w) {BEHIND_A_CONVOLUTION[operator]}",
        {"x": image},
        {name: given for name, given in constants.items() if name == "w" or name in BEHIND_A_CONVOLUTION[operator]},
    )
    chosen = implementations(case)
    assert not [name for name in chosen.values() if name.startswith("ref")], chosen


def assert_fast_and_right(case: Case) -> None:
    region = case.region()
    loaded = load(compile_region(region))
    chosen = {row[0]: row[2] for row in loaded.steps()}
    got = run(loaded, region, case.feeds())
    loaded.close()
    assert not [name for name in chosen.values() if name.startswith("ref")], chosen
    for name, expected in zip(case.outputs, case.expected(), strict=True):
        np.testing.assert_allclose(got[name], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "operator",
    [
        "y = Mul(t, w)",
        "a, b = Split<axis = 3, num_outputs = 2>(t) y = Neg(b)",
        "a, b = Split<axis = 3, num_outputs = 2>(t) n = Neg(a) y = Concat<axis = 3>(b, n)",
        "y = Softmax<axis = 1>(t)",
    ],
)
def test_what_has_only_a_reference_implementation_as_it_lies_is_copied_first(operator):
    constants = {"w": (1, 1, 64, 64)} if "w)" in operator else {}
    assert_fast_and_right(Case(f"t = Transpose<perm = [0, 2, 1, 3]>(x) {operator}", {"x": (1, 64, 8, 64)}, constants))


@pytest.mark.parametrize("operator", ["Mul", "Sub"])
@pytest.mark.parametrize(
    ("whole", "other"),
    [
        ((1, 8, 6, 4), (1, 8, 6, 1)),
        ((2, 8, 6, 4), (2, 8, 6, 1)),
        ((2, 8, 6, 4), (8, 6, 1)),
        ((2, 8, 6, 4), (2, 1, 1, 4)),
        ((1, 8, 6, 4), (8, 1, 4)),
        ((2, 8, 6, 4), (1, 1, 6, 1)),
        ((8, 6, 4), (8, 1, 1)),
        ((2, 1, 6, 4), (2, 1, 1, 1)),
        ((2, 8, 1, 4), (2, 8, 1, 1)),
    ],
    ids=str,
)
def test_every_broadcast_runs_in_a_fast_kernel(operator, whole, other):
    assert_fast_and_right(Case(f"y = {operator}(x, z)", {"x": whole, "z": other}, {}))
