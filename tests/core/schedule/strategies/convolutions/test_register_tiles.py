"""Convolutions by register tiles: which ones get them, and that they compute the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import graft
from graft.core.machine.target import Target, target_named
from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.parameters import ContractionParameters, ScheduleParameters
from graft.core.schedule.selection.select import schedule
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from graft.core.tensor_ir.verifying.verifier import verify
from tests.core.schedule.convolutions import NARROW, WIDE, convolution
from tests.core.schedule.strategies.convolutions.varying_images import Kind, computed, kernel_of

TILED = {
    "5x1, few channels": convolution((3, 3, 12, 32), (6, 3, 5, 1), pads=[2, 0, 2, 0]),
    "in groups": convolution((1, 8, 9, 32), (12, 4, 3, 3), pads=[1] * 4, group=2),
    "wide windows": convolution((1, 2, 16, 32), (4, 2, 7, 7), pads=[3] * 4),
    "one axis": convolution((1, 8, 100), (4, 8, 3), pads=[2, 2], dilations=[2]),
    "three axes": convolution((1, 3, 4, 6, 32), (8, 3, 3, 1, 3), pads=[1, 0, 1] * 2),
    "rows that vectors do not divide": convolution((1, 8, 9, 37), (2, 8, 3, 5), pads=[1, 2] * 2),
}
OVERLAPPING = target_named("x86-64-v3")


@pytest.mark.parametrize("target", [WIDE, OVERLAPPING], ids=["masks", "overlapping"])
@pytest.mark.parametrize(("kernel", "arrays"), TILED.values(), ids=TILED)
def test_convolutions_of_few_outputs_are_not_copied_first(
    kernel: Kernel, arrays: list[np.ndarray], target: Target
) -> None:
    made = schedule(kernel, target)
    assert made.strategy == "register_tiles"
    verify(made.function, target.machine)
    inputs = dict(zip(kernel.inputs, arrays, strict=True))
    expected = run_stages(kernel.stages, inputs)[kernel.outputs[0]]
    given = [made.packed.get(one, inputs[one]) for one in kernel.inputs]
    (found,) = run_function(
        made.function,
        [array.reshape(b.dims(one)) for array, one in zip(given, made.function.input_buffers, strict=True)],
    )
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (convolution((1, 8, 14, 14), (64, 8, 5, 5), pads=[2] * 4)[0], "cost"),
        (convolution((1, 8, 14, 14), (8, 8, 1, 1))[0], "shape"),
        (convolution((1, 8, 17, 17), (8, 8, 3, 3), strides=[3, 3])[0], "layout"),
    ],
    ids=["many outputs", "pointwise", "strided"],
)
def test_why_a_convolution_gets_none_is_said(kernel: Kernel, why: str) -> None:
    made = schedule(kernel, replace(WIDE, without=frozenset({"winograd"})))
    assert made.strategy != "register_tiles"
    assert made.refusals["register_tiles"].code == why


def test_without_masks_and_with_parameters_patches_are_copied() -> None:
    kernel, _ = TILED["wide windows"]
    assert schedule(kernel, NARROW).refusals["register_tiles"].code == "unavailable"
    narrow, _ = convolution((1, 8, 9, 7), (2, 8, 3, 3), pads=[1] * 4)
    without = replace(OVERLAPPING, without=frozenset({"winograd"}))
    assert str(schedule(narrow, without).refusals["register_tiles"]) == "size: a row has fewer pixels than a vector"
    assert schedule(kernel, WIDE, ContractionParameters()).strategy == "direct_convolution"
    rounded = schedule(kernel, replace(WIDE, precision="bf16"))
    assert rounded.strategy != "register_tiles"


FEW = {"window": ((3, 16, 3, 3), {"pads": [1] * 4}), "point": ((3, 5, 1, 1), {}),
       "groups": ((12, 3, 3, 3), {"pads": [1] * 4, "group": 4}),
       "stride": ((1, 4, 5, 3), {"strides": [2, 1], "pads": [2, 0, 1, 1]}),
       "few inputs": ((24, 3, 3, 3), {"pads": [1] * 4})}  # fmt: skip


@pytest.mark.parametrize("target", [WIDE, OVERLAPPING], ids=["masks", "overlapping"])
@pytest.mark.parametrize("kind", FEW.values(), ids=FEW)
def test_open_images_of_few_channels_have_pixels_in_their_vectors(kind: Kind, target: Target) -> None:
    kernel, constants = kernel_of(*kind)
    assert computed(kernel, constants, kind, target, [(1, 5, 37), (2, 9, 16), (1, 3, 2), (0, 4, 4)], 1e-4) == (
        "varying_register_tiles"
    )


def test_rows_of_few_pixels_are_left_to_vectors_of_channels() -> None:
    kernel, _ = kernel_of((8, 20, 1, 1), {}, (1, 1))
    scheduled = schedule(kernel, WIDE)
    assert str(scheduled.refusals["varying_register_tiles"]) == "size: a row has few pixels"


@pytest.mark.parametrize(("channels", "groups", "window", "attributes"), [
    ((20, 24), 1, 3, {"pads": [1, 1]}), ((33, 7), 1, 1, {}), ((6, 6), 6, 5, {"pads": [4, 0], "dilations": [2]}),
    ((9, 9), 9, 3, {"strides": [2], "pads": [1, 1]}), ((16, 32), 4, 4, {"pads": [0, 3]}),
])  # fmt: skip
def test_images_of_one_axis_are_not_transposed(
    channels: tuple[int, int], groups: int, window: int, attributes: dict[str, list[int]]
) -> None:
    inputs, outputs = channels
    weights = np.random.default_rng(0).integers(-3, 4, (outputs, inputs // groups, window)).astype(np.float32)
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], group=groups, **attributes)
    sizes = [
        onnx.helper.make_tensor_value_info(n, 1, (1, c, e)) for n, c, e in (("x", inputs, "n"), ("y", outputs, "m"))
    ]
    graph = onnx.helper.make_graph([node], "g", sizes[:1], sizes[1:], [onnx.numpy_helper.from_array(weights, "w")])
    model = onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 21)])
    program = graft.compile(graft.load(model), ["llvm"], threads=1, cache=False)
    (call,) = (one for procedure in program.description.procedures for one in procedure.calls)
    assert call.schedule is not None
    expected = ("pointwise_nchw",) if window == 1 else ("varying_register_tiles", "varying_depthwise_nchw")
    assert call.schedule["strategy"] in expected
    oracle = ReferenceEvaluator(model)
    for length in (window * 2 + 3, 40, 57):
        x = np.random.default_rng(1).integers(-3, 4, (1, inputs, length)).astype(np.float32)
        np.testing.assert_array_equal(program(x), oracle.run(None, {"x": x})[0])


@pytest.mark.parametrize(("outputs", "strategy"), [(12, "varying_register_tiles"), (16, "direct_nhwc")])
def test_open_volumes_have_rows_in_their_vectors_where_channels_do_not_fill_them(outputs: int, strategy: str) -> None:
    weights = np.random.default_rng(0).integers(-3, 4, (outputs, 12, 3, 3, 3)).astype(np.float32)
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 0, 1, 1, 2, 1])
    x, y = (
        onnx.helper.make_tensor_value_info(name, 1, (1, channels, *(f"{name}{axis}" for axis in "dhw")))
        for name, channels in (("x", 12), ("y", outputs))
    )
    graph = onnx.helper.make_graph([node], "g", [x], [y], [onnx.numpy_helper.from_array(weights, "w")])
    model = onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 21)])
    program = graft.compile(model, ["llvm"], threads=1, cache=False, target="x86-64-v4")
    (call,) = (one for procedure in program.description.procedures for one in procedure.calls)
    assert call.schedule is not None
    assert call.schedule["strategy"] == strategy
    oracle = ReferenceEvaluator(model)
    for size in ((3, 4, 5), (2, 3, 37)):
        image = np.random.default_rng(1).integers(-3, 4, (1, 12, *size)).astype(np.float32)
        (wanted,) = oracle.run(None, {"x": image})
        np.testing.assert_array_equal(program(image), wanted)


@pytest.mark.parametrize(("window", "pad", "vectors"), [(9, 0, 4), (3, 1, 3), (5, 2, 2)])
def test_tiles_of_open_rows_are_as_wide_as_their_masks_are_few(window: int, pad: int, vectors: int) -> None:
    kind: Kind = ((3, 16, window, window), {"pads": [pad] * 4})
    scheduled = schedule(kernel_of(*kind)[0], target_named("x86-64-v4"))
    assert (scheduled.strategy, scheduled.knobs["vectors"]) == ("varying_register_tiles", vectors)


@pytest.mark.parametrize("strides", [[1, 1], [1, 2]])
def test_short_open_rows_have_tiles_of_fewer_vectors(strides: list[int]) -> None:
    kind: Kind = ((16, 8, 3, 3), {"pads": [1] * 4, "strides": strides, "group": 2})
    kernel, constants = kernel_of(*kind)
    scheduled, lanes = schedule(kernel, WIDE), WIDE.machine.vector_bytes // 4
    vectors = scheduled.knobs["vectors"]
    assert isinstance(vectors, int)
    said = [line for line in scheduled.steps.splitlines() if line.startswith("# rows")]
    assert said == [f"# rows of up to {lanes * number}:" for number in range(1, vectors)]
    assert said
    own = schedule(kernel, WIDE, ScheduleParameters(scheduled.steps))  # what is said of others is no step
    assert f"split x {lanes * vectors} " in own.steps
    sizes = [(1, 2, lanes * strides[1] * number + more) for number in range(1, vectors + 1) for more in (0, 1)]
    assert computed(kernel, constants, kind, WIDE, sizes, 1e-4) == "varying_register_tiles"


@pytest.mark.parametrize(("stride", "strategy"), [(2, "varying_register_tiles"), (3, "direct_nhwc")])
def test_groups_of_few_channels_with_long_strides_along_a_row_are_not_transposed(stride: int, strategy: str) -> None:
    weights = {name: np.ones(shape, np.float32) for name, shape in (("v", (32, 32, 1, 1)), ("w", (32, 8, 3, 3)))}
    nodes = [
        onnx.helper.make_node("Conv", ["x", "v"], ["a"]),
        onnx.helper.make_node("Conv", ["a", "w"], ["b"], group=4, pads=[1] * 4, strides=[stride] * 2),
        onnx.helper.make_node("Conv", ["b", "v"], ["y"]),
    ]
    x, y = (onnx.helper.make_tensor_value_info(name, 1, [1, 32, None, None]) for name in ("x", "y"))
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [x], [y], tensors), ir_version=10)
    program = graft.compile(graft.load(model), ["llvm"], target="x86-64-v4", cache=False)
    calls = [call for procedure in program.description.procedures for call in procedure.calls]
    # of the image and the result of all, and of the groups
    assert sum("transpose" in call.function for call in calls) <= (2 if stride > 2 else 4)
    assert strategy in [call.schedule["strategy"] for call in calls if call.schedule]


def test_few_channels_that_others_read_are_computed_from_an_image_with_channels_first() -> None:
    weights = {name: np.ones(shape, np.float32) for name, shape in (("v", (48, 16, 3, 3)), ("w", (4, 48, 3, 3)))}
    nodes = [
        onnx.helper.make_node("Conv", ["x", "v"], ["p"], pads=[1] * 4),
        onnx.helper.make_node("Conv", ["p", "w"], ["q"], pads=[1] * 4),
        onnx.helper.make_node("DepthToSpace", ["q"], ["y"], blocksize=2),
    ]
    x, y = (onnx.helper.make_tensor_value_info(name, 1, [1, c, None, None]) for name, c in (("x", 16), ("y", 1)))
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [x], [y], tensors), ir_version=10)
    program = graft.compile(graft.load(model), ["llvm"], target="x86-64-v4", cache=False)
    taken = [call.schedule["strategy"] for one in program.description.procedures for call in one.calls if call.schedule]
    assert taken == ["winograd", "fused_elementwise", "varying_register_tiles", "fused_elementwise"]


@pytest.mark.parametrize("machine", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(
    "kind",
    [
        ((24, 7, 3, 3), {"pads": [1] * 4}),
        ((6, 5, 3, 3), {"pads": [1, 0, 2, 1], "group": 2, "dilations": [1, 2]}),
        ((9, 3, 2, 5), {"strides": [2, 2]}),
    ],
)
def test_computed_weights_of_open_images_are_read_where_they_lie(kind: Kind, machine: str) -> None:
    """As those of a hypernetwork are, or what a step trains."""
    kernel, arrays = kernel_of(*kind)
    sizes = [(1, 7, 9), (2, 9, 17), (1, 8, 40)]
    assert computed(replace(kernel, constants={}), arrays, kind, machine, sizes, 1e-4) == "varying_register_tiles"
