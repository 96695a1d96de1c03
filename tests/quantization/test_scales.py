"""Scales: codes against onnx.reference, layouts, and the least square error against a search of every share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from graft.errors import RecipeError
from graft.quantization.grids import GRIDS
from graft.quantization.recipe import Scaling
from graft.quantization.scales import Layout, parameters, scaled

RANDOM = np.random.default_rng(0)
LAYOUTS = [
    Layout((12, 10)),
    Layout((12, 10), 0),
    Layout((12, 10), 1),
    Layout((12, 10), 1, 4),
    Layout((6, 7, 3, 3), 1, 5),
]


def dequantized(array: np.ndarray, layout: Layout, scale: np.ndarray, zero: np.ndarray, dtype: int) -> np.ndarray:
    """What onnx.reference makes of a tensor that is quantised and dequantised again."""
    attributes = {} if layout.axis is None else {"axis": layout.axis, "block_size": layout.block}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **attributes),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **attributes),
    ]
    point = helper.make_tensor("z", dtype, zero.shape, zero.reshape(-1).astype(int).tolist())
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, array.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, array.shape)],
        [numpy_helper.from_array(scale, "s"), point],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    onnx.checker.check_model(model)
    return np.asarray(ReferenceEvaluator(model).run(None, {"x": array})[0])


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("symmetric", [True, False])
def test_codes_stand_for_what_the_reference_says(layout, symmetric):
    array = RANDOM.normal(0.3, 1, layout.shape).astype(np.float32)
    one = scaled(array, layout, Scaling(symmetric=symmetric), GRIDS["int8"], "w")
    scale, zero = layout.as_onnx(one.scale), layout.as_onnx(one.zero)
    assert scale.shape == layout.scale_shape
    np.testing.assert_allclose(one.numbers, dequantized(array, layout, scale, zero, TensorProto.INT8), rtol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("name", ["int8", "uint8", "int4", "uint4", "int16"])
def test_no_element_is_off_by_more_than_half_a_step(layout, name):
    array = RANDOM.normal(0.3, 1, layout.shape).astype(np.float32)
    one = scaled(array, layout, Scaling(type=name, symmetric=False), GRIDS[name], "w")
    steps = np.broadcast_to(layout.per_element(one.scale), array.shape)
    assert (np.abs(one.numbers - array) <= steps * 1.0001).all()
    assert np.mean(np.abs(one.numbers - array) <= steps * 0.5001) > 0.9  # but where the zero point was rounded


def test_each_block_is_scaled_by_its_own_largest_element():
    array = np.array([[1.0, -2.0, 30.0, 4.0, 500.0]], np.float32)
    one = scaled(array, Layout((1, 5), 1, 2), Scaling(), GRIDS["int8"], "w")
    np.testing.assert_allclose(one.scale, np.array([2, 30, 500]) / 127, rtol=1e-6)


def test_the_least_square_error_is_less_than_that_of_the_range():
    array = np.concatenate([RANDOM.normal(size=4000), [40.0]]).astype(np.float32).reshape(1, -1)
    errors = {}
    for rule in ("minmax", "mse"):
        one = scaled(array, Layout(array.shape, 0), Scaling(type="int4", calibration=rule), GRIDS["int4"], "w")
        errors[rule] = float(np.sum((one.numbers - array) ** 2))
    assert errors["mse"] < 0.7 * errors["minmax"]


def test_a_channel_of_zeros_has_the_least_scale_of_the_others():
    scale, zero = parameters(np.array([0.0, -1, -3]), np.array([0.0, 2, 1]), GRIDS["int8"], Scaling(symmetric=True))
    np.testing.assert_allclose(scale, np.array([2, 2, 3]) / 127, rtol=1e-6)
    assert not zero.any()
    assert parameters(np.zeros(1), np.zeros(1), GRIDS["int8"], Scaling(symmetric=False))[0] == 1


def test_the_scale_of_a_tiny_range_is_a_normal_number():
    scale, _ = parameters(np.array([-1e-44]), np.array([1e-44]), GRIDS["int8"], Scaling(symmetric=True))
    assert scale[0] == np.finfo(np.float32).tiny


def test_zero_is_on_every_grid():
    for low, high in ((-0.37, 1.91), (0.5, 2.0), (-3.0, -1.0)):
        for name in ("int8", "uint8", "uint4"):
            scale, zero = parameters(np.array([low]), np.array([high]), GRIDS[name], Scaling(symmetric=False))
            assert GRIDS[name].low <= zero[0] <= GRIDS[name].high
            assert (zero[0] - zero[0]) * scale[0] == 0


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_refused_by_name(wrong):
    array = np.array([[1, wrong]], np.float32)
    with pytest.raises(RecipeError) as caught:
        scaled(array, Layout(array.shape), Scaling(), GRIDS["int8"], "w")
    assert str(caught.value) == "weights 'w' hold NaN or infinity, which no scale maps to numbers; keep their node"


@pytest.mark.parametrize("symmetric", [True, False])
def test_scales_that_are_powers_of_two_hold_the_whole_range(symmetric):
    high = np.array([127.0, 127.1, 1e-3, 0.0, 3e38])
    scaling = Scaling(symmetric=symmetric, scale="power-of-two")
    scale, zero = parameters(-high, high, GRIDS["int8"], scaling)
    assert (np.frexp(scale)[0] == 0.5).all()
    exact, _ = parameters(-high, high, GRIDS["int8"], replace(scaling, scale="float32"))
    assert ((exact <= scale) & (scale < 2 * exact))[[0, 1, 2, 4]].all()
    if symmetric:
        assert (scale[0], scale[1], zero[0]) == (1, 2, 0)


def test_the_least_error_decides_between_powers_of_two():
    rows = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
    scaling = Scaling(type="int4", granularity="group", scale="power-of-two", calibration="mse")
    one = scaled(rows, Layout(rows.shape, 1, 32), scaling, GRIDS["int4"], "w")

    def error(scale):
        scale = scale.reshape(-1, 1)
        return np.sum((np.clip(np.rint(rows / scale), -8, 7) * scale - rows) ** 2, axis=1)

    assert (error(one.scale) <= np.minimum(error(one.scale * 2), error(one.scale / 2)) * (1 + 1e-6)).all()
