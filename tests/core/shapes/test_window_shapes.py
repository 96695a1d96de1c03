"""How often windows fit into images of any size: as often as onnx says of images of that size."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import graft
from graft.core.affine.expressions import ANY, Range
from graft.core.graph.dimensions import ranges_of
from graft.core.importer.load import load
from graft.core.shapes.symbolic_shapes import dimensions_of
from graft.runtime.extents import Symbol, evaluate

POOLS = ("MaxPool", "AveragePool", "LpPool")


def model_of(operator: str, extents: tuple[int | str, ...], attributes: dict[str, object]) -> onnx.ModelProto:
    kernel = attributes["kernel_shape"]
    assert isinstance(kernel, list)
    node = helper.make_node(operator, ["x", "w"] if operator == "Conv" else ["x"], ["y"], **attributes)
    image = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 1, *extents])
    weights = helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [1, 1, *kernel])
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    given_to = [image, weights] if operator == "Conv" else [image]
    graph = helper.make_graph([node], "window", given_to, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


@pytest.mark.parametrize("operator", ["Conv", *POOLS])
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_windows_fit_into_images_of_any_size_as_often_as_onnx_says(operator: str, data: st.DataObject) -> None:
    kernel = [data.draw(st.integers(1, 4)) for _ in range(2)]
    attributes: dict[str, object] = {
        "kernel_shape": kernel,
        "strides": [data.draw(st.integers(1, 4)) for _ in range(2)],
        "dilations": [data.draw(st.integers(1, 2)) for _ in range(2)],
    }
    automatic = data.draw(st.sampled_from(("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")))
    if automatic == "NOTSET":
        attributes["pads"] = [data.draw(st.integers(0, size - 1)) for size in kernel * 2]
    else:
        attributes |= {"auto_pad": automatic, "dilations": [1, 1]}
    if operator in POOLS and automatic == "NOTSET":
        attributes["ceil_mode"] = data.draw(st.integers(0, 1))
    model = load(model_of(operator, ("h", "w"), attributes))
    shape, ranges = dimensions_of(model.graph.outputs[0]), ranges_of(model)
    assert shape is not None
    for extents in ((0, 1), (1, 2), (2, 3), (3, 7), (8, 5), (12, 15)):
        least = [ranges.get(Symbol(name), ANY).low for name in ("h", "w")]
        if any(extent < low for extent, low in zip(extents, least, strict=True)):
            continue  # no window fits, and the program says so
        inferred = onnx.shape_inference.infer_shapes(model_of(operator, extents, attributes))
        expected = [one.dim_value for one in inferred.graph.output[0].type.tensor_type.shape.dim]
        binding = dict(zip(("h", "w"), extents, strict=True))
        assert [evaluate(one or 0, binding) for one in shape] == expected


def test_a_name_for_an_images_channels_is_the_number_that_the_weights_say() -> None:
    text = "(float[1,c,h,5] x, float[4,3,2,2] w) => (float[1,4,p,q] y) { y = Conv<group = 2>(x, w) }"
    ranges = ranges_of(load(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> g {text}')))
    assert ranges[Symbol("c")] == Range(6, 6)


@pytest.mark.parametrize("onesided", [0, 1])
def test_frames_of_a_signal_of_any_length_are_counted_and_transformed_natively(onesided: int) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 20]>
    g (float[n, t, 1] x) => (float[?, ?, ?, ?] y) <int64 step = {{3}}, int64 length = {{8}}> {{
        y = STFT <onesided = {onesided}> (x, step, , length)
    }}"""
    signal = np.random.default_rng(0).standard_normal((2, 21, 1)).astype(np.float32)
    found = graft.compile(onnx.parser.parse_model(text), ["llvm"], threads=1)(signal)
    frames = np.lib.stride_tricks.sliding_window_view(signal[..., 0], 8, axis=1)[:, ::3]
    expected = np.fft.rfft(frames) if onesided else np.fft.fft(frames)
    assert found.shape == (*expected.shape, 2)
    np.testing.assert_allclose(found, np.stack([expected.real, expected.imag], -1), atol=1e-5)


@pytest.mark.parametrize("said", [None, "constant", "computed"])
def test_an_unpooled_image_has_a_shape(said: str | None) -> None:
    """What the windows are of at the least, what an input says, or the rank where it is computed."""
    header = '<ir_version: 10, opset_import: ["" : 22]> g (float[n,2,h,5] x, int64[n,2,h,5] i, int64[4] s) => (float y)'
    size = {None: "", "constant": ", c", "computed": ", s"}[said]
    model = onnx.parser.parse_model(
        f"{header} <int64[4] c = {{3, 2, 9, 11}}> "
        f"{{ y = MaxUnpool <kernel_shape = [3, 2], strides = [2, 2], pads = [1, 0, 0, 0]> (x, i{size}) }}"
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    shape = dimensions_of(load(model).graph.outputs[0])
    assert shape is not None
    if said is None:
        assert [evaluate(one, {"n": 3, "h": 4}) for one in shape if one is not None] == [3, 2, 8, 10]
    else:
        assert shape == (3, 2, 9, 11) if said == "constant" else len(shape) == 4
