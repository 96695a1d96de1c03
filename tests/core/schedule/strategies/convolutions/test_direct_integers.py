"""Convolutions of bytes with their channels last, against the interpreter: results are whole numbers, and exact."""

from __future__ import annotations

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
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.collapse import collapse_rows
from graft.core.schedule.loops.inline import reordered
from graft.core.schedule.selection.select import schedule
from graft.core.tensor_ir.ir import Allocate, Buffer, Stage
from graft.core.tensor_ir.verifying.verifier import verify
from graft.core.tensor_ir.visit import walk_statements
from tests.core.schedule.convolutions import outputs_of

VNNI, BOARD = target_named("x86-64-v4+avx512vnni"), target_named("thumbv7em")
TARGETS = st.sampled_from((VNNI, target_named("x86-64-v3"), target_named("x86-64"), target_named("armv8-a"), BOARD))


def buffer(name: str, shape: tuple[int, ...], dtype: str) -> Buffer:
    return Buffer(name, dtype, tuple(map(b.index, shape)))


def quantized_to(out: Buffer, sums: Buffer) -> Stage:
    return b.compute(out, lambda i: b.unary("round_even", b.multiply(b.cast(b.load(sums, *i), "float32"), 0.01)))


def arrays_of(inputs: tuple[Buffer, ...]) -> list[np.ndarray]:
    random = np.random.default_rng(len(inputs) + sum(b.dims(inputs[0])))
    return [random.integers(0, 256, b.dims(one)).astype(one.dtype) for one in inputs]


def convolution(
    image: tuple[int, ...], weights: tuple[int, ...], *, channels_first: bool = False, **attributes: object
) -> tuple[Kernel, list[np.ndarray]]:
    """ConvInteger of transposed images, its result transposed back and quantised: ``image`` is ``[n, h, w, c]``.

    With ``channels_first`` the images are not transposed before.
    """
    n, height, width, channels = image
    strides, dilations = attributes.get("strides", [1, 1]), attributes.get("dilations", [1, 1])
    spatial = [
        (extent - dilation * (window - 1) - 1) // stride + 1
        for extent, window, stride, dilation in zip((height, width), weights[2:], strides, dilations, strict=True)
    ]
    proto = onnx.helper.make_node("ConvInteger", ["x", "w"], ["y"], name="conv", **attributes)
    first = ir.Value(name="w", shape=ir.Shape(weights), type=ir.TensorType(ir.DataType.INT8))
    node = ir.from_proto(proto)
    node.replace_input_with(1, first)
    view = NodeView(node)
    source, transposed = buffer("source", image, "uint8"), buffer("x", (n, channels, height, width), "uint8")
    w, y = buffer("w", weights, "int8"), buffer("y", (n, weights[0], *spatial), "int32")
    last, out = (buffer(name, (n, *spatial, weights[0]), kind) for name, kind in (("last", "int32"), ("out", "uint8")))
    operator = OPERATORS.get("ConvInteger")
    assert operator is not None
    assert operator.lower is not None
    stages = [
        b.compute(transposed, lambda i: b.load(source, i[0], i[2], i[3], i[1])),
        *operator.lower(Lowering(view, (transposed, w), (y,))),
        b.compute(last, lambda i: b.load(y, i[0], i[3], i[1], i[2])),
        quantized_to(out, last),
    ]
    if channels_first:
        source, stages = transposed, stages[1:]
    anchor, arrays = int(not channels_first), arrays_of((source, w))
    made = tuple(reordered(stages))
    kernel = Kernel("kernel", (source, w), (out,), made, Trait.CONVOLUTION, view, anchor, {w: arrays[1]})
    return kernel, arrays


def check(kernel: Kernel, arrays: list[np.ndarray], target: Target) -> str:
    """The scheduled function computes exactly what the stages say; returns its strategy."""
    scheduled = schedule(kernel, target)
    verify(scheduled.function)
    for found, expected in zip(*outputs_of(kernel, scheduled, arrays), strict=True):
        np.testing.assert_array_equal(found, expected)
    return scheduled.strategy


@settings(max_examples=15, deadline=None)
@given(
    channels=st.integers(1, 9), outputs=st.integers(2, 37), size=st.tuples(st.integers(5, 8), st.integers(5, 9)),
    window=st.tuples(st.integers(1, 3), st.integers(1, 3)), stride=st.integers(1, 2), dilation=st.integers(1, 2),
    batch=st.integers(1, 2), channels_first=st.booleans(), target=TARGETS,
)  # fmt: skip
def test_convolutions_of_any_shape_are_exact(
    channels: int, outputs: int, size: tuple[int, int], window: tuple[int, int], stride: int, dilation: int, batch: int,
    channels_first: bool, target: Target,
) -> None:  # fmt: skip
    attributes = {"strides": [stride] * 2, "dilations": [dilation] * 2, "channels_first": channels_first}
    kernel, arrays = convolution((batch, *size, 4 * channels), (outputs, 4 * channels, *window), **attributes)
    assert check(kernel, arrays, target) == "direct_nhwc"


@settings(max_examples=15, deadline=None)
@given(
    channels=st.integers(1, 3), outputs=st.integers(2, 37), size=st.tuples(st.integers(5, 8), st.integers(8, 12)),
    window=st.tuples(st.integers(1, 4), st.sampled_from((2, 3, 4, 8))), stride=st.integers(1, 2),
    batch=st.integers(1, 2), target=TARGETS,
)  # fmt: skip
def test_few_channels_are_multiplied_in_groups_of_rows(
    channels: int, outputs: int, size: tuple[int, int], window: tuple[int, int], stride: int, batch: int, target: Target
) -> None:
    kernel, arrays = convolution((batch, *size, channels), (outputs, channels, *window), strides=[stride] * 2)
    assert check(kernel, arrays, target) == "direct_nhwc"


def test_one_channel_is_neither_copied_nor_filled_up() -> None:
    kernel, _ = convolution((1, 58, 12, 1), (64, 1, 10, 4), strides=[2, 2])
    scheduled = schedule(kernel, BOARD)
    (weights,) = scheduled.packed.values()
    assert weights.size == 64 * 10, "a word for a row of a window of an output channel"
    taken = [one.buffer for one in walk_statements(scheduled.function.body) if isinstance(one, Allocate)]
    assert all(one.memory == "register" or b.dims(one) == (1,) for one in taken), taken


@settings(max_examples=15, deadline=None)
@given(
    channels=st.integers(2, 70), size=st.tuples(st.integers(5, 8), st.integers(5, 20)),
    window=st.tuples(st.integers(1, 5), st.integers(1, 3)), stride=st.integers(1, 2), dilation=st.integers(1, 2),
    target=TARGETS,
)  # fmt: skip
def test_depthwise_convolutions_of_any_shape_are_vectors_of_channels(
    channels: int, size: tuple[int, int], window: tuple[int, int], stride: int, dilation: int, target: Target
) -> None:
    size = (size[0] + 4, size[1])
    attributes = {"strides": [stride] * 2, "dilations": [dilation, 1], "group": channels}
    kernel, arrays = convolution((1, *size, channels), (channels, 1, *window), **attributes)
    assert check(kernel, arrays, target) == "depthwise_nhwc"


@pytest.mark.parametrize("weights", [(8, 2, 3, 3), (4, 2, 1, 1), (6, 3, 3, 1), (40, 4, 3, 3)])
@pytest.mark.parametrize("target", [VNNI, target_named("x86-64-v3"), BOARD], ids=lambda one: one.machine.name)
def test_groups_of_several_channels_are_summed_directly(weights: tuple[int, ...], target: Target) -> None:
    kernel, arrays = convolution((1, 6, 7, 2 * weights[1]), weights, group=2)
    assert check(kernel, arrays, target) == "direct_nhwc"


def matmul(shape: tuple[int, ...], columns: int) -> tuple[Kernel, list[np.ndarray]]:
    """A MatMulInteger of an image, another image added to its sums."""
    x, w = buffer("x", shape, "uint8"), buffer("w", (shape[-1], columns), "int8")
    sums, other, out = (
        buffer(name, (*shape[:-1], columns), kind)
        for name, kind in (("sums", "int32"), ("other", "int32"), ("out", "int32"))
    )
    stages = (
        product(sums, (b.dims(x), centred(x, None)), (b.dims(w), centred(w, None)), "int32"),
        b.compute(out, lambda i: b.add(b.load(sums, *i), b.load(other, *i))),
    )
    arrays = arrays_of((x, w, other))
    return Kernel("kernel", (x, w, other), (out,), stages, Trait.CONTRACTION, None, 0, {w: arrays[1]}), arrays


@settings(max_examples=12, deadline=None)
@given(shape=st.lists(st.integers(1, 5), min_size=1, max_size=4), depth=st.integers(1, 20), columns=st.integers(1, 40))
def test_leading_axes_are_one_axis_of_rows(shape: list[int], depth: int, columns: int) -> None:
    kernel, arrays = matmul((*shape, depth), columns)
    check(kernel, arrays, VNNI)
    collapsed = collapse_rows(kernel)
    assert (collapsed is not None) == (len([extent for extent in shape if extent > 1]) > 1)
    if collapsed is not None:
        assert b.dims(collapsed[0].outputs[0]) == (int(np.prod(shape)), columns)


def test_stages_that_mix_rows_stay_apart() -> None:
    kernel, arrays = matmul((3, 4, 8), 5)
    x, w, other = kernel.inputs
    transposed = buffer("transposed", (3, 4, 5), "int32")
    mixed = b.compute(transposed, lambda i: b.load(kernel.outputs[0], b.subtract(2, i[0]), i[1], i[2]))
    changed = Kernel(
        "kernel", (x, w, other), (transposed,), (*kernel.stages, mixed), Trait.CONTRACTION, None, 0, kernel.constants
    )
    assert collapse_rows(changed) is None
    check(changed, arrays, VNNI)
