"""Every conversion between storage types rounds once, against exact integers and fractions."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graft
from graft.core.tensor_ir.scalar_math import Value
from graft.datatypes import via
from graft.datatypes.arrays import encode
from graft.datatypes.conversion import convert
from graft.datatypes.shipped import DATATYPES
from tests.datatypes.oracle import PositOracle
from tests.datatypes.proofs.running import format_of


def near_ties(bits: int) -> np.ndarray:
    """Return int64 of every length whose ``bits``-bit rounding is a tie, or just beside one, and random ones."""
    random = np.random.default_rng(bits)
    found = [random.integers(-(2**63), 2**63 - 1, 300), np.array([0, 1, -1, -(2**63), 2**63 - 1])]
    for length in range(bits + 1, 63):
        for top in random.integers(1 << (bits - 1), 1 << bits, 3):
            tie = (int(top) * 2 + 1) << (length - bits - 1)
            found.append(np.array([tie - 1, tie, tie + 1, -tie - 1, -tie, 1 - tie]))
    return np.concatenate(found).astype(np.int64)


def rounded(number: int, bits: int) -> float:
    """Return an integer to nearest even in so many significant bits, by integers alone."""
    size, excess = abs(number), max(abs(number).bit_length() - bits, 0)
    whole, rest = size >> excess, size & ((1 << excess) - 1)
    half = (1 << excess) >> 1
    whole += int(excess > 0 and (rest > half or (rest == half and whole & 1 == 1)))
    return float(whole << excess) * (-1 if number < 0 else 1)


def cast_program(source: int, target: int, size: int, cpu: str) -> graft.runtime.program.Program:
    given, result = (helper.make_tensor_value_info(name, kind, [size]) for name, kind in (("x", source), ("y", target)))
    node = helper.make_node("Cast", ["x"], ["y"], to=target)
    graph = helper.make_graph([node], "cast", [given], [result])
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return graft.compile(model, ["llvm"], strict=True, threads=1, cpu=cpu)


TARGETS = {
    TensorProto.BFLOAT16: (8, ml_dtypes.bfloat16),
    TensorProto.FLOAT: (24, np.float32),
    TensorProto.DOUBLE: (53, np.float64),
}


@pytest.mark.parametrize("cpu", ["native", "x86-64"])
@pytest.mark.parametrize("target", TARGETS)
def test_integers_of_64_bits_become_floats_with_one_rounding(target: int, cpu: str) -> None:
    bits, kind = TARGETS[target]
    x = near_ties(bits)
    for source, numbers in ((TensorProto.INT64, x), (TensorProto.UINT64, x.view(np.uint64))):
        result = np.asarray(cast_program(source, target, x.size, cpu)(numbers))
        actual = (result if result.dtype == kind else result.view(kind)).astype(np.float64)
        np.testing.assert_array_equal(actual, [rounded(int(number), bits) for number in numbers])


def converting(dtype: str, source: int, size: int) -> graft.runtime.program.Program:
    """Return a program that casts integers to a custom type; its results are float64."""
    given = helper.make_tensor_value_info("x", source, [size])
    result = helper.make_tensor_value_info("y", TensorProto.DOUBLE, [size])
    nodes = [
        helper.make_node("Cast", ["x"], ["c"], to=TensorProto.DOUBLE, name="cast"),
        helper.make_node("Identity", ["c"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "cast", [given], [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return graft.compile(convert(model, dtype), ["llvm"], threads=1)


@pytest.mark.parametrize("bits", [8, 16])
def test_int64_becomes_a_posit_with_one_rounding(bits: int) -> None:
    oracle, format = PositOracle(bits), format_of(f"custom[posit]{bits}")
    x = np.concatenate([near_ties(places) for places in (3, 5, 8, 10, 12)])
    expected = [oracle.numbers[oracle.round(Fraction(int(number)))] for number in x]
    np.testing.assert_array_equal(converting(f"custom[posit]{bits}", TensorProto.INT64, x.size)(x), expected)
    np.testing.assert_array_equal(format.to_numbers(encode(x, f"custom[posit]{bits}")), expected)


def test_int64_becomes_a_bfloat_with_one_rounding() -> None:
    x = near_ties(8)
    expected = [rounded(int(number), 8) for number in x]
    np.testing.assert_array_equal(converting("custom[bfloat]16", TensorProto.INT64, x.size)(x), expected)


def register_rounding(name: str) -> str:
    """Register a bfloat16 of expressions that rounds to nearest even, known to Graft by its casts alone."""

    def shorten(x: object) -> Value:
        bits = Value(x).bits("uint32")  # type: ignore[arg-type]
        return ((bits + ((bits >> 16) & 1) + 0x7FFF) >> 16).cast("uint16")

    if name not in DATATYPES:
        DATATYPES.register(name, widths=(16,))
        lengthen = lambda x: (Value(x).cast("uint32") << 16).bits("float32")  # noqa: E731
        DATATYPES.register_op(shorten, "Cast", "llvm", name, "float32")
        DATATYPES.register_op(lengthen, "Cast", "llvm", "float32", name)
        for operation in ("Add", "Mul", "LT", "EQ"):
            DATATYPES.register_op(via("float32"), operation, "llvm", name)
    return f"custom[{name}]16"


def test_float64_and_int64_become_a_format_of_lowerings_with_one_rounding() -> None:
    dtype = register_rounding("roundingbf")
    x = near_ties(8)
    expected = np.array([rounded(int(number), 8) for number in x])
    np.testing.assert_array_equal(converting(dtype, TensorProto.INT64, x.size)(x), expected)
    doubles = np.array([1 + 2.0**-8, 1 + 2.0**-8 + 2.0**-40, 1 + 3 * 2.0**-8 - 2.0**-45, -(1 + 2.0**-8 + 2.0**-50)])
    nearest = np.array([1.0, 1 + 2.0**-7, 1 + 2.0**-7, -(1 + 2.0**-7)])
    np.testing.assert_array_equal(converting(dtype, TensorProto.DOUBLE, 4)(doubles), nearest)


@pytest.mark.parametrize("name", ["float8e4m3fnuz", "float8e5m2fnuz"])
def test_formats_without_negative_zero_have_one_zero(name: str) -> None:
    dtype = f"custom[{name}]8"
    nodes = [
        helper.make_node("Neg", ["x"], ["neg"]),
        helper.make_node("Abs", ["x"], ["abs"]),
        helper.make_node("Mul", ["x", "y"], ["mul"]),
        helper.make_node("Reciprocal", ["neg"], ["reciprocal"]),
        helper.make_node("Sign", ["neg"], ["sign"]),
        helper.make_node("IsNaN", ["neg"], ["nan"]),
    ]
    outputs = ["neg", "abs", "mul", "reciprocal", "sign"]
    results = [helper.make_tensor_value_info(one, TensorProto.FLOAT, [3]) for one in outputs]
    results.append(helper.make_tensor_value_info("nan", TensorProto.BOOL, [3]))
    given = [helper.make_tensor_value_info(one, TensorProto.FLOAT, [3]) for one in "xy"]
    graph = helper.make_graph(nodes, "zeros", given, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x, y = np.array([0.0, -0.0, 1.0], np.float32), np.array([-1.0, 2.0, -0.0], np.float32)
    found = graft.compile(convert(model, dtype), ["llvm"], threads=1).run({"x": x, "y": y})
    np.testing.assert_array_equal(found["neg"], [0.0, 0.0, -1.0])
    np.testing.assert_array_equal(found["abs"], [0.0, 0.0, 1.0])
    np.testing.assert_array_equal(found["mul"], [0.0, 0.0, 0.0])
    largest = format_of(dtype).largest
    np.testing.assert_array_equal(found["reciprocal"], [largest, largest, -1.0])
    np.testing.assert_array_equal(found["sign"], [0.0, 0.0, -1.0])
    assert not found["nan"].any()
