"""Products in bfloat16, against a NumPy model: rounded factors, exact products, sums in float32."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.machine.target import Target, target_named
from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.primitives.vectorize import instantiate
from graft.core.schedule.selection.select import schedule
from graft.core.schedule.strategies.contractions.blocked_product import schedule_contraction
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.interpreting.machine_arithmetic import run_function
from graft.core.tensor_ir.verifying.verifier import verify
from graft.runtime.dtypes import numpy_dtype
from tests.core.schedule.convolutions import convolution
from tests.core.schedule.strategies.contractions.test_blocked_product import matmul

WIDE = replace(target_named("x86-64-v4+avx512bf16"), precision="bf16")
PLAIN = replace(target_named("x86-64-v3"), precision="bf16")
BFLOAT16 = numpy_dtype("bfloat16")


def rounded(array: np.ndarray) -> np.ndarray:
    return array.astype(BFLOAT16).astype(np.float32)


def check(
    kernel: Kernel, arrays: list[np.ndarray], factors: str, target: Target, schedule=schedule_contraction
) -> None:
    """The function computes the kernel of the rounded ``factors``, to the order of its sums."""
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(array.shape).astype(np.float32) for array in arrays]
    given = dict(zip(kernel.inputs, arrays, strict=True))
    kernel = replace(kernel, constants={item: given[item] for item in kernel.constants})
    scheduled = schedule(kernel, target)
    function = scheduled.function
    verify(replace(function, body=instantiate(function.body, {})))
    assert "dot2_bf16" in str(function)
    model = {item: rounded(array) if item.name in factors else array for item, array in given.items()}
    expected = run_stages(kernel.stages, model)[kernel.outputs[0]]
    inputs = [
        scheduled.packed.get(item, given[item]).reshape(b.dims(parameter))
        for item, parameter in zip(kernel.inputs, function.input_buffers, strict=True)
    ]
    (output,) = run_function(function, inputs)
    np.testing.assert_allclose(output.reshape(expected.shape), expected, rtol=2e-5, atol=2e-5)


extents = st.integers(2, 37)


@settings(max_examples=25, deadline=None)
@given(m=extents, k=st.integers(1, 40), n=extents, constant=st.booleans(), wide=st.booleans())
def test_matrix_products_of_any_shape(m: int, k: int, n: int, constant: bool, wide: bool) -> None:
    check(*matmul((m, k), (k, n), constant=constant), "xy", WIDE if wide else PLAIN)


@pytest.mark.parametrize("epilogue", ["bias", "heavy"])
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(
    "shapes",
    [((3, 5, 9), (3, 9, 20)), ((2, 3, 5, 4), (4, 19)), pytest.param(((16, 2600), (2600, 20)), marks=pytest.mark.slow)],
)
def test_batches_long_sums_and_epilogues(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], constant: bool, epilogue: str
) -> None:
    check(*matmul(*shapes, constant=constant, epilogue=epilogue), "xy", WIDE)


def test_a_row_times_constant_columns() -> None:
    check(*matmul((1, 70), (70, 150), constant=True), "xy", WIDE)


def test_a_row_times_computed_columns_stays_in_float32() -> None:
    kernel, _ = matmul((1, 70), (70, 150))
    assert "dot2_bf16" not in str(schedule_contraction(kernel, WIDE).function)


CONVOLUTIONS = {
    "1x1": ((1, 8, 5, 7), (6, 8, 1, 1), {}),
    "3x3, no Winograd": ((1, 16, 16, 16), (16, 16, 3, 3), {"pads": [1, 1, 1, 1]}),
    "strided, three channels": ((1, 3, 11, 13), (4, 3, 5, 5), {"pads": [2, 2, 2, 2], "strides": [2, 2]}),
    "grouped": ((1, 16, 6, 6), (12, 8, 3, 3), {"pads": [1, 1, 1, 1], "group": 2}),
    "few pixels": ((1, 32, 3, 3), (16, 32, 3, 3), {"pads": [1, 1, 1, 1]}),
}


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("case", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_convolutions(case: tuple, constant: bool) -> None:
    source, weights, attributes = case
    kernel, arrays = convolution(source, weights, constant=constant, **attributes)
    check(kernel, arrays, "xw", WIDE, schedule)


def test_float64_stays_as_it_is() -> None:
    kernel, _ = matmul((5, 6), (6, 21), "float64")
    assert "bf16" not in str(schedule_contraction(kernel, WIDE).function)
