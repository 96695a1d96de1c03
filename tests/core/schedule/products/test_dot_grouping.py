"""Integer sums of products in groups, against the plain stages and the interpreter."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.graph.view import NodeView
from graft.core.machine.target import Target, target_named
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Lowering, Trait
from graft.core.operators.products.contraction import centred, product
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.primitives.vectorize import instantiate
from graft.core.schedule.products.dot_grouping import group_bytes
from graft.core.schedule.selection.select import schedule
from graft.core.schedule.strategies.contractions.blocked_product import schedule_contraction
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.interpreting.machine_arithmetic import run_function
from graft.core.tensor_ir.ir import Buffer
from graft.core.tensor_ir.verifying.verifier import verify, verify_stages

VNNI = target_named("x86-64-v4+avx512vnni")
PLAIN = target_named("x86-64-v3")
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


def check(
    kernel: Kernel,
    arrays: list[np.ndarray],
    target: Target,
    schedule: Callable[[Kernel, Target], Scheduled] = schedule_contraction,
) -> None:
    """The scheduled function uses dot products, and computes exactly what the stages say."""
    scheduled = schedule(kernel, target)
    function = scheduled.function
    verify(replace(function, body=instantiate(function.body, {})))
    assert ("dot4_u8s8" if target.machine.has("dot4_u8s8") else "dot2_s16") in str(function)
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
    m=extents, k=st.integers(1, 9), n=extents, dtypes=st.tuples(kinds, kinds),
    points=st.tuples(zero_points, zero_points), widens=st.booleans(),
)  # fmt: skip
def test_a_grouped_stage_means_the_same(
    m: int, k: int, n: int, dtypes: tuple[str, str], points: tuple[str, str], widens: bool
) -> None:
    kernel, arrays = matmul_integer((m, k), (k, n), dtypes, points, "")
    grouped = group_bytes(kernel.stages[0], kernel.constants, widens=widens)
    assert grouped is not None
    stages = [stage for one in grouped.sums for stage in one.stages]
    verify_stages([*stages, grouped.anchor, kernel.stages[1]])
    contents = dict(zip(kernel.inputs, arrays, strict=True))
    found = run_stages([*stages, grouped.anchor], contents)[grouped.anchor.buffer]
    np.testing.assert_array_equal(found, run_stages(kernel.stages, contents)[grouped.anchor.buffer])


@pytest.mark.parametrize("constant", ["y", ""])
@pytest.mark.parametrize("shapes", [((3, 5, 9), (3, 9, 20)), ((2, 3, 5, 4), (4, 19)), ((2, 1, 5, 4), (2, 3, 4, 19))])
def test_batches_are_computed(shapes: tuple[tuple[int, ...], tuple[int, ...]], constant: str) -> None:
    check(*matmul_integer(*shapes, points=("scalar", "scalar"), constant=constant), VNNI)


def test_a_row_times_constant_columns_is_computed() -> None:
    check(*matmul_integer((1, 70), (70, 150), points=("scalar", "")), VNNI)


@pytest.mark.parametrize("constant", [pytest.param("y", marks=pytest.mark.slow), ""])
def test_long_sums_are_cut(constant: str) -> None:
    check(*matmul_integer((16, 5200), (5200, 20), points=("scalar", "each"), constant=constant), VNNI)


def conv_integer(
    source: tuple[int, ...],
    weights: tuple[int, ...],
    dtypes: tuple[str, str] = BYTES,
    points: tuple[str, str] = ("scalar", ""),
    constant: str = "w",
    **attributes: object,
) -> tuple[Kernel, list[np.ndarray]]:
    """A ConvInteger whose sums are scaled."""
    rank = len(source) - 2
    strides, dilations = attributes.get("strides", [1] * rank), attributes.get("dilations", [1] * rank)
    pads = attributes.get("pads", [0] * (2 * rank))
    spatial = [
        (n + pads[d] + pads[d + rank] - dilations[d] * (k - 1) - 1) // strides[d] + 1
        for d, (n, k) in enumerate(zip(source[2:], weights[2:], strict=True))
    ]
    shape = (source[0], weights[0], *spatial)
    names = ["x", "w", *(f"zero_{name}" for name, point in zip("xw", points, strict=True) if point)]
    given = ["x", "w", "zero_x" if points[0] else "", "zero_w" if points[1] else ""]
    node = NodeView(ir.from_proto(onnx.helper.make_node("ConvInteger", given, ["y"], name="conv", **attributes)))
    x, w = buffer("x", source, dtypes[0]), buffer("w", weights, dtypes[1])
    zeros = [
        buffer("zero_x", (), dtypes[0]) if points[0] else None,
        buffer("zero_w", weights[:1] if points[1] == "each" else (), dtypes[1]) if points[1] else None,
    ]
    sums, out = buffer("sums", shape, "int32"), buffer("out", shape, "float32")
    operator = OPERATORS.get("ConvInteger")
    assert operator is not None and operator.lower is not None
    stages = list(operator.lower(Lowering(node, (x, w, *zeros), (sums,))))
    stages.append(b.compute(out, lambda i: b.multiply(b.cast(b.load(sums, *i), "float32"), 0.5)))
    inputs = (x, w, *(zero for zero in zeros if zero is not None))
    assert [item.name for item in inputs] == names
    random = np.random.default_rng(math.prod(shape))
    arrays = [_bytes(random, b.dims(item), item.dtype) for item in inputs]
    constants = {item: array for item, array in zip(inputs, arrays, strict=True) if item.name[-1] in constant}
    return Kernel("kernel", inputs, (out,), tuple(stages), Trait.CONVOLUTION, node, 0, constants), arrays


CONVOLUTIONS = {
    "1x1": ((1, 8, 5, 7), (6, 8, 1, 1), {}),
    "3x3 padded": ((2, 6, 7, 9), (5, 6, 3, 3), {"pads": [1, 1, 1, 1]}),
    "strided, three channels": ((1, 3, 11, 13), (4, 3, 5, 5), {"pads": [2, 2, 2, 2], "strides": [2, 2]}),
    "dilated": ((1, 4, 9, 9), (4, 4, 3, 3), {"pads": [2, 2, 2, 2], "dilations": [2, 2]}),
    "grouped": ((1, 16, 6, 6), (12, 8, 3, 3), {"pads": [1, 1, 1, 1], "group": 2}),
    "few pixels": ((1, 32, 3, 3), (16, 32, 3, 3), {"pads": [1, 1, 1, 1]}),
    "one axis": ((1, 5, 40), (4, 5, 3), {"pads": [1, 1]}),
}


@pytest.mark.parametrize("case", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
@pytest.mark.parametrize("points", [("scalar", ""), ("scalar", "each"), ("", "scalar")])
@pytest.mark.parametrize("dtypes", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
def test_convolutions_of_bytes_are_exact(case: tuple, points: tuple[str, str], dtypes: tuple[str, str]) -> None:
    source, weights, attributes = case
    kernel, arrays = conv_integer(source, weights, dtypes, points, **attributes)
    check(kernel, arrays, VNNI, schedule)
