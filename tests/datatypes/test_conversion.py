"""Whole networks in custom datatypes: converted models, and every way of computing them bit for bit."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import graft
from graft.core.graph.view import ValueView
from graft.datatypes.conversion import convert
from graft.datatypes.posit import Posit
from graft.datatypes.shipped import DATATYPES
from graft.errors import GraftError
from tests.datatypes.networks import DIGITS, ReferenceNetwork, image, model_of, residual_block, rounded, run
from tests.datatypes.oracle import PositOracle

ORACLE16 = PositOracle(16)


def test_a_converted_model_is_valid_onnx_of_storage_types_with_denotations(tmp_path: Path) -> None:
    model = convert(DIGITS, "custom[posit]16")
    path = tmp_path / "posit.onnx"
    ir.save(model, path)
    onnx.checker.check_model(str(path), full_check=True)
    loaded = graft.load(path)
    (first, *_) = [node for node in loaded.graph if node.op_type == "Conv"]
    assert first.domain == "graft.custom"
    assert first.inputs[1] is not None
    assert first.inputs[1].dtype == ir.DataType.UINT16
    assert ValueView(first.inputs[1]).dtype == "custom[posit]16"
    np.testing.assert_array_equal(run(loaded, image()), run(model, image()))


def test_a_converted_program_saves_and_runs_elsewhere(tmp_path: Path) -> None:
    program = graft.compile(convert(DIGITS, "custom[posit]8"), backends=["llvm"])
    program.save(tmp_path / "digits.graft")
    np.testing.assert_array_equal(graft.runtime.load(tmp_path / "digits.graft")(image()), program(image()))


@pytest.mark.parametrize("bits", [8, 16])
def test_the_digits_model_equals_numpy_bit_for_bit(bits: int) -> None:
    model = convert(DIGITS, f"custom[posit]{bits}")
    expected = ReferenceNetwork(model, PositOracle(bits)).run(image())
    np.testing.assert_array_equal(run(model, image()), expected.astype(np.float32))


def test_a_residual_block_equals_numpy_bit_for_bit() -> None:
    model = convert(residual_block(), "custom[posit]16")
    x = image((1, 8, 10, 10)) - np.float32(0.5)
    np.testing.assert_array_equal(run(model, x), ReferenceNetwork(model, ORACLE16).run(x).astype(np.float32))


@pytest.mark.parametrize("dtype", ["custom[posit]8", "custom[posit]16", "custom[posit_es1]16", "custom[fixed]16"])
def test_a_quire_rounds_a_dot_product_once(dtype: str) -> None:
    format = DATATYPES.format(dtype)
    assert format is not None
    rng = np.random.default_rng(4)
    x, w = rng.normal(0, 1, (5, 300)), rng.normal(0, 1, (300, 40))
    x[:, 1::2], w[1::2] = x[:, ::2] * 4, -w[::2] / 4  # sums that cancel
    scale = 2.0 ** rng.integers(-20, 20, (5, 1)) if "posit" in dtype else 1.0
    x, w = (x * scale).astype(np.float32), (w + rng.normal(0, 1e-3, w.shape)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = convert(model_of(nodes, {"x": [5, 300]}, {"y": [5, 40]}, {"w": w}), dtype, accumulate="quire")
    a, b = (format.to_numbers(format.to_bits(array)) for array in (x, w))
    exact = [[sum(Fraction(p) * Fraction(q) for p, q in zip(row, column, strict=True)) for column in b.T] for row in a]
    if isinstance(format, Posit):
        oracle = PositOracle(format.bits, format.es)
        expected = np.array([[oracle.numbers[oracle.round(value)] for value in row] for row in exact])
    else:
        expected = np.array([[round(value * 256) / 256 for value in row] for row in exact])
    np.testing.assert_array_equal(run(model, x), expected.astype(np.float32))


def test_accumulating_in_a_wider_posit_is_as_exact_as_it_says() -> None:
    rng = np.random.default_rng(5)
    x, w = (rng.normal(0, 1, shape).astype(np.float32) for shape in ((3, 64), (64, 20)))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    proto = model_of(nodes, {"x": [3, 64]}, {"y": [3, 20]}, {"w": w})
    oracle8, format8, format16 = PositOracle(8), DATATYPES.format("custom[posit]8"), ORACLE16
    assert format8 is not None
    a, b = (rounded(oracle8, array.astype(np.float64)) for array in (x, w))
    total = np.zeros((3, 20))
    for k in range(64):
        total = rounded(format16, total + rounded(format16, a[:, k, None] * b[k]))
    model = convert(proto, "custom[posit]8", accumulate="custom[posit]16")
    np.testing.assert_array_equal(run(model, x), rounded(oracle8, total).astype(np.float32))


def test_a_convolution_with_channels_on_the_lanes_sums_in_float32() -> None:
    rng = np.random.default_rng(8)
    x, w = (rng.normal(0, 1, shape).astype(np.float32) for shape in ((1, 32, 14, 14), (32, 32, 3, 3)))
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1])]
    proto = model_of(nodes, {"x": [1, 32, 14, 14]}, {"y": [1, 32, 7, 7]}, {"w": w})
    a, b = (rounded(ORACLE16, array.astype(np.float64)) for array in (x, w))
    padded = np.pad(a[0], ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))[:, ::2, ::2]
    expected = np.einsum("chwij,ocij->ohw", windows, b)[None]
    actual = run(convert(proto, "custom[posit]16", accumulate="float32"), x)
    np.testing.assert_allclose(actual, expected, rtol=2.0**-11, atol=1e-3)


def recurrent(operator: str, **attributes: object) -> onnx.ModelProto:
    """Return one recurrent layer of 5 steps, 2 rows, 6 inputs and 9 hidden units."""
    rng, gates = np.random.default_rng(0), {"LSTM": 4, "GRU": 3, "RNN": 1}[operator]
    shapes = {"w": (1, gates * 9, 6), "r": (1, gates * 9, 9), "b": (1, gates * 18)}
    weights = {name: rng.normal(0, 0.3, shape) for name, shape in shapes.items()}
    nodes = [helper.make_node(operator, ["x", "w", "r", "b"], ["y"], hidden_size=9, name="layer", **attributes)]
    return model_of(nodes, {"x": [5, 2, 6]}, {"y": [5, 1, 2, 9]}, weights)


def test_a_recurrent_layer_rounds_each_operation() -> None:
    proto, x = recurrent("RNN", activations=["Relu"]), image((5, 2, 6)) - np.float32(0.5)
    given, w, r, bias = (
        rounded(ORACLE16, array.astype(np.float64))
        for array in (x, *map(onnx.numpy_helper.to_array, proto.graph.initializer))
    )
    state, expected = np.zeros((2, 9)), []
    for step in given:
        total = np.broadcast_to(rounded(ORACLE16, bias[0, :9] + bias[0, 9:]), (2, 9))
        for factors, weight in ((step, w[0]), (state, r[0])):
            for k in range(factors.shape[1]):
                total = rounded(ORACLE16, total + rounded(ORACLE16, factors[:, k, None] * weight[:, k]))
        state = np.maximum(total, 0.0)
        expected.append(state)
    actual = run(convert(proto, "custom[posit]16"), x)
    np.testing.assert_array_equal(actual, np.array(expected, np.float32)[:, None])


@pytest.mark.parametrize("dtype", ["custom[posit]16", "custom[bfloat]16", "custom[fixed]16"])
@pytest.mark.parametrize("operator", ["LSTM", "GRU"])
def test_recurrent_layers_are_computed(operator: str, dtype: str) -> None:
    proto, x = recurrent(operator), image((5, 2, 6)) - np.float32(0.5)
    expected = graft.compile(proto, backends=["llvm"])(x)
    np.testing.assert_allclose(run(convert(proto, dtype), x), expected, atol=0.02)


def test_a_recurrent_layer_has_no_other_accumulator() -> None:
    assert message(recurrent("LSTM"), "custom[posit]16", accumulate="quire") == (
        "LSTM (node 'layer') rounds each operation, not accumulate='quire'; keep it in its own type with keep=['LSTM']"
    )


def test_nodes_may_stay_or_take_another_type() -> None:
    model = convert(DIGITS, "custom[posit]16", keep=["Gemm"], types={"conv*": "custom[posit]8"})
    kinds = {node.op_type: ValueView(node.outputs[0]).dtype for node in model.graph if node.op_type != "Cast"}
    assert kinds["Gemm"] == "float32"
    assert kinds["MaxPool"] == "custom[posit]16"
    first = next(node for node in model.graph if node.op_type == "Conv")
    assert ValueView(first.outputs[0]).dtype == "custom[posit]8"
    assert run(model, image()).shape == (1, 10)


TRANSFORMER = {
    "Softmax": helper.make_node("Softmax", ["x"], ["y"], axis=-1),
    "LayerNormalization": helper.make_node("LayerNormalization", ["x", "scale", "bias"], ["y"], axis=-1),
    "Gelu": helper.make_node("Gelu", ["x"], ["y"]),
    "Sigmoid": helper.make_node("Sigmoid", ["x"], ["y"]),
    "Tanh": helper.make_node("Tanh", ["x"], ["y"]),
    "ReduceMean": helper.make_node("ReduceMean", ["x"], ["y"], keepdims=1),
    "Transpose": helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0]),
    "Pow": helper.make_node("Pow", ["x", "two"], ["y"]),
    "Sqrt": helper.make_node("Sqrt", ["x"], ["y"]),
    "Clip": helper.make_node("Clip", ["x", "quarter", "two"], ["y"]),
}


@pytest.mark.parametrize("dtype", ["custom[posit]16", "custom[bfloat]16", "custom[fixed]16", "custom[lns]16"])
@pytest.mark.parametrize("name", TRANSFORMER)
def test_operators_of_transformers_are_computed(name: str, dtype: str) -> None:
    x = image((2, 40)) * np.float32(0.4) + np.float32(0.1)
    weights = {"scale": np.ones(40), "bias": np.zeros(40), "two": np.array(2.0), "quarter": np.array(0.25)}
    used = {key: array for key, array in weights.items() if key in TRANSFORMER[name].input}
    shape = {"ReduceMean": [1, 1], "Transpose": [40, 2]}.get(name, [2, 40])
    proto = model_of([TRANSFORMER[name]], {"x": [2, 40]}, {"y": shape}, used)
    expected = graft.compile(proto, backends=["llvm"])(x)
    np.testing.assert_allclose(run(convert(proto, dtype), x), expected, rtol=0.04, atol=0.02)


def message(*arguments: object, **options: object) -> str:
    with pytest.raises(GraftError) as caught:
        convert(*arguments, **options)  # type: ignore[arg-type]
    return caught.value.message


def test_a_type_that_is_not_custom_is_refused() -> None:
    assert message(DIGITS, "float16") == (
        "'float16' is not a custom datatype; write custom[name]bits, as in custom[posit]16"
    )


@pytest.mark.parametrize("dtype", ["custom[posit]", "custom[posit]16x4", "custom[]16"])
def test_a_type_string_that_is_none_is_refused(dtype: object) -> None:
    assert (
        message(DIGITS, dtype) == f"'{dtype}' is not a custom datatype; write custom[name]bits, as in custom[posit]16"
    )


def test_arguments_of_other_types_are_refused() -> None:
    assert message(DIGITS, None) == "convert: dtype is None; give a text"
    assert message(DIGITS, 5) == "convert: dtype is int 5; give a text"
    assert message(DIGITS, "custom[posit]16", keep="Conv") == (
        'convert: keep is str \'Conv\'; give a list of texts, as in ["one", "two"]'
    )


def test_an_unknown_accumulation_is_refused() -> None:
    assert message(DIGITS, "custom[posit]16", accumulate="exact") == (
        "sums are rounded in no way called 'exact'; did you mean 'each'; or write custom[name]bits"
    )


def test_a_pattern_that_fits_no_node_is_refused() -> None:
    assert message(DIGITS, "custom[posit]16", keep=["LSTM"]) == (
        "no node's name or operator matches 'LSTM'; graft plan lists the nodes"
    )


def test_nodes_and_values_that_conversion_adds_have_names_of_their_own() -> None:
    """The model has them already: a node called as the Cast of its result, a value called as the result itself."""
    nodes = [
        helper.make_node("Neg", ["x"], ["y_posit16"], name="cast_y"),
        helper.make_node("Abs", ["y_posit16"], ["y"], name="cast_x_posit16"),
    ]
    converted = convert(model_of(nodes, {"x": [3]}, {"y": [3]}, {}), "custom[posit]16")
    names = [node.name for node in converted.graph]
    values = [value.name for node in converted.graph for value in node.outputs]
    assert len(set(names)) == len(names) == len(set(values))
    np.testing.assert_array_equal(graft.compile(converted, ["llvm"], threads=1)(np.array([1, -2, 3], "f")), [1, 2, 3])


def test_all_missing_lowerings_are_named_in_one_error() -> None:
    if "bare" not in DATATYPES:
        DATATYPES.register("bare", widths=(16,))
    assert message(DIGITS, "custom[bare]16") == (
        "model 'digits': there is no lowering of Add of custom[bare]16, Cast from custom[bare]16 to float32, "
        "Cast from float32 to custom[bare]16, Max of custom[bare]16, Mul of custom[bare]16; register each with "
        "graft.datatypes.register_op"
    )
