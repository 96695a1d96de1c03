"""Whole networks in custom datatypes: converted models, and every way of computing them bit for bit."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import graft
from graft.core.view import ValueView
from graft.datatypes.conversion import convert
from graft.datatypes.lowering import create_lower_func
from graft.datatypes.posit import Posit
from graft.datatypes.shipped import DATATYPES
from graft.errors import GraftError
from tests.datatypes.networks import ReferenceNetwork, posit_library, rounded
from tests.datatypes.oracle import PositOracle

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
ORACLE16 = PositOracle(16)


def image(shape: tuple[int, ...] = (1, 1, 8, 8), seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, 1, shape).astype(np.float32)


def run(model: ir.Model, *inputs: np.ndarray) -> np.ndarray:
    result = graft.compile(model, backends=["llvm"], threads=2, strict=True)(*inputs)
    assert isinstance(result, np.ndarray)
    return result


def residual_block() -> onnx.ModelProto:
    """Two 3x3 convolutions with seeded weights and a shortcut, as in a ResNet."""
    rng = np.random.default_rng(3)
    weights = {
        "w1": rng.normal(0, 0.2, (12, 8, 3, 3)), "b1": rng.normal(0, 0.1, 12),
        "w2": rng.normal(0, 0.2, (8, 12, 3, 3)), "b2": rng.normal(0, 0.1, 8),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c2", "x"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    return model_of(nodes, {"x": [1, 8, 10, 10]}, {"y": [1, 8, 10, 10]}, weights)


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[int]],
    outputs: dict[str, list[int]],
    weights: dict[str, np.ndarray],
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


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


def test_c_functions_called_per_scalar_give_the_same_bits(tmp_path: Path) -> None:
    if "cposit" not in DATATYPES:
        library = posit_library(tmp_path)
        DATATYPES.register("cposit")
        for operation, symbol in {"Add": "add", "Mul": "mul", "LT": "less", "Lowest": "lowest"}.items():
            DATATYPES.register_op(create_lower_func({16: f"posit16_{symbol}"}, library), operation, "llvm", "cposit")
        casts = {(32, 16): "posit16_from_float"}, {(16, 32): "posit16_to_float"}
        DATATYPES.register_op(create_lower_func(casts[0], library), "Cast", "llvm", "cposit", "float32")
        DATATYPES.register_op(create_lower_func(casts[1], library), "Cast", "llvm", "float32", "cposit")
    for source, x in ((DIGITS, image()), (residual_block(), image((1, 8, 10, 10)) - np.float32(0.5))):
        vectors, scalars = (run(convert(source, f"custom[{name}]16"), x) for name in ("posit", "cposit"))
        np.testing.assert_array_equal(vectors, scalars)


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


def test_an_unknown_accumulation_is_refused() -> None:
    assert message(DIGITS, "custom[posit]16", accumulate="exact") == (
        "accumulate='exact' is neither 'each' nor 'quire', and 'exact' is not a custom datatype; write "
        "custom[name]bits, as in custom[posit]16"
    )


def test_a_pattern_that_fits_no_node_is_refused() -> None:
    assert message(DIGITS, "custom[posit]16", keep=["LSTM"]) == (
        "no node's name or operator matches 'LSTM'; graft plan lists the nodes"
    )


def test_all_missing_lowerings_are_named_in_one_error() -> None:
    if "bare" not in DATATYPES:
        DATATYPES.register("bare")
    assert message(DIGITS, "custom[bare]16") == (
        "model 'digits': backend 'llvm' has no lowering of Add of custom[bare]16, Cast from custom[bare]16 to float32, "
        "Cast from float32 to custom[bare]16, Max of custom[bare]16, Mul of custom[bare]16; register each with "
        "graft.datatypes.register_op"
    )
