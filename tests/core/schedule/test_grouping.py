"""Integer sums of products in groups, against the plain stages and the interpreter."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.operators import build as b
from graft.core.operators.contraction import centred, product
from graft.core.operators.table import Trait
from graft.core.schedule.contraction import schedule_contraction
from graft.core.schedule.grouping import group_bytes
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.vectorize import instantiate
from graft.core.target import LEVELS, Target
from graft.core.tensor_ir.interpreter import run_stages
from graft.core.tensor_ir.ir import Buffer
from graft.core.tensor_ir.machine import run_function
from graft.core.tensor_ir.verify import verify

VNNI = Target("x86_64", "icelake-server", LEVELS["x86-64-v4"].features | {"avx512vnni"})
PLAIN = LEVELS["x86-64-v3"]
BYTES = ("uint8", "int8")


def buffer(name: str, shape: tuple[int, ...], dtype: str) -> Buffer:
    return Buffer(name, dtype, tuple(map(b.index, shape)))


def matmul_integer(
    left: tuple[int, ...],
    right: tuple[int, ...],
    dtypes: tuple[str, str] = BYTES,
    points: tuple[str, str] = ("", ""),
    constant: str = "y",
) -> tuple[Kernel, list[np.ndarray]]:
    """A MatMulInteger whose sums are scaled; zero points are absent, ``scalar``s, or ``each`` row's or column's own."""
    shape = (*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1])
    x, y = buffer("x", left, dtypes[0]), buffer("y", right, dtypes[1])
    lengths = {"scalar": (), "each": (left[-2],)}, {"scalar": (), "each": (right[-1],)}
    zeros = [
        buffer(f"zero_{name}", lengths[side][points[side]], dtypes[side]) if points[side] else None
        for side, name in enumerate("xy")
    ]
    sums, out = buffer("sums", shape, "int32"), buffer("out", shape, "float32")
    factors = (left, centred(x, zeros[0], of_rows=True)), (right, centred(y, zeros[1]))
    stages = (
        product(sums, *factors, "int32"),
        b.compute(out, lambda i: b.multiply(b.cast(b.load(sums, *i), "float32"), 0.5)),
    )
    inputs = (x, y, *(zero for zero in zeros if zero is not None))
    random = np.random.default_rng(math.prod(shape) + left[-1])
    arrays = [_bytes(random, b.dims(item), item.dtype) for item in inputs]
    constants = {item: array for item, array in zip(inputs, arrays, strict=True) if item.name[-1] in constant}
    return Kernel("kernel", inputs, (out,), stages, Trait.CONTRACTION, None, 0, constants), arrays


def _bytes(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def check(kernel: Kernel, arrays: list[np.ndarray], target: Target) -> None:
    """The scheduled function uses dot products, and computes exactly what the stages say."""
    scheduled = schedule_contraction(kernel, target)
    function = scheduled.function
    verify(replace(function, body=instantiate(function.body, {})))
    assert "dot4_u8s8" in str(function)
    contents = dict(zip(kernel.inputs, arrays, strict=True))
    expected = run_stages(kernel.stages, contents)[kernel.outputs[0]]
    inputs = [
        scheduled.packed.get(item, contents[item]).reshape(b.dims(parameter))
        for item, parameter in zip(kernel.inputs, function.input_buffers, strict=True)
    ]
    (output,) = run_function(function, inputs)
    np.testing.assert_array_equal(output.reshape(expected.shape), expected)


extents = st.integers(2, 37)
kinds = st.sampled_from(BYTES)
zero_points = st.sampled_from(("", "scalar", "each"))


@settings(max_examples=40, deadline=None)
@given(
    m=extents, k=st.integers(1, 21), n=extents, dtypes=st.tuples(kinds, kinds),
    points=st.tuples(zero_points, zero_points), constant=st.sampled_from(("", "x", "y")), wide=st.booleans(),
)  # fmt: skip
def test_products_of_bytes_of_any_shape_sign_and_zero_point_are_exact(
    m: int, k: int, n: int, dtypes: tuple[str, str], points: tuple[str, str], constant: str, wide: bool
) -> None:
    check(*matmul_integer((m, k), (k, n), dtypes, points, constant), VNNI if wide else PLAIN)


@settings(max_examples=20, deadline=None)
@given(
    m=extents, k=st.integers(1, 9), n=extents, dtypes=st.tuples(kinds, kinds), points=st.tuples(zero_points, zero_points)
)  # fmt: skip
def test_a_grouped_stage_means_the_same(
    m: int, k: int, n: int, dtypes: tuple[str, str], points: tuple[str, str]
) -> None:
    kernel, arrays = matmul_integer((m, k), (k, n), dtypes, points, "")
    grouped = group_bytes(kernel.stages[0], kernel.constants)
    assert grouped is not None
    stages = [stage for one in grouped.sums for stage in one.stages]
    verify([*stages, grouped.anchor, kernel.stages[1]])
    contents = dict(zip(kernel.inputs, arrays, strict=True))
    found = run_stages([*stages, grouped.anchor], contents)[grouped.anchor.buffer]
    np.testing.assert_array_equal(found, run_stages(kernel.stages, contents)[grouped.anchor.buffer])


@pytest.mark.parametrize("constant", ["y", ""])
@pytest.mark.parametrize("shapes", [((3, 5, 9), (3, 9, 20)), ((2, 3, 5, 4), (4, 19)), ((2, 1, 5, 4), (2, 3, 4, 19))])
def test_batches_are_computed(shapes: tuple[tuple[int, ...], tuple[int, ...]], constant: str) -> None:
    check(*matmul_integer(*shapes, points=("scalar", "scalar"), constant=constant), VNNI)


def test_a_row_times_constant_columns_is_computed() -> None:
    check(*matmul_integer((1, 70), (70, 150), points=("scalar", "")), VNNI)


@pytest.mark.parametrize("constant", ["y", ""])
def test_long_sums_are_cut(constant: str) -> None:
    check(*matmul_integer((3, 5200), (5200, 20), points=("scalar", "each"), constant=constant), VNNI)
