"""Dot products with exact accumulation against exact rationals."""

from __future__ import annotations

import operator
from fractions import Fraction

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graft
from graft.datatypes.conversion import convert
from graft.datatypes.shipped import DATATYPES, register_float
from graft.errors import DatatypeError
from graft.runtime.program import Program
from tests.datatypes.oracle import PositOracle
from tests.datatypes.proofs.oracle import posit_code, posit_value, same
from tests.datatypes.proofs.running import format_of, stratified_codes


def dot_products(dtype: str, left: np.ndarray, right: np.ndarray, accumulate: str) -> np.ndarray:
    """Return ``left @ right`` of codes [m, k] and [k, n], as numbers."""
    format = format_of(dtype)
    program = graft.compile(convert(matrix_product(left, right), dtype, accumulate=accumulate), ["llvm"], threads=1)
    return np.asarray(program(format.to_numbers(left), format.to_numbers(right)))


def matrix_product(left: np.ndarray, right: np.ndarray) -> onnx.ModelProto:
    kind = TensorProto.DOUBLE
    given = [helper.make_tensor_value_info(name, kind, codes.shape) for name, codes in (("x", left), ("y", right))]
    result = helper.make_tensor_value_info("z", kind, (left.shape[0], right.shape[1]))
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "y"], ["z"])], "dot", given, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def rational_dots(left: np.ndarray, right: np.ndarray, bits: int) -> np.ndarray:
    values = [posit_value(code, bits) for code in range(1 << bits)]
    result = np.empty((left.shape[0], right.shape[1]), np.int64)
    for row in range(left.shape[0]):
        for column in range(right.shape[1]):
            terms = [(values[a], values[b]) for a, b in zip(left[row].tolist(), right[:, column].tolist(), strict=True)]
            invalid = any(None in term for term in terms)
            total = None if invalid else sum((a * b for a, b in terms), Fraction(0))
            result[row, column] = posit_code(total, bits)
    return result


def without_nar(codes: np.ndarray, bits: int) -> np.ndarray:
    return np.where(codes == 1 << (bits - 1), 1, codes)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("terms", [1, 5, 64])
def test_a_quire_dot_product_is_the_rational_sum_rounded_once(bits, terms):
    format = format_of(f"custom[posit]{bits}")
    left = without_nar(stratified_codes(format, 24 * terms, terms).reshape(24, terms), bits)
    right = without_nar(stratified_codes(format, 16 * terms, 100 + terms).reshape(terms, 16), bits)
    actual = dot_products(f"custom[posit]{bits}", left, right, "quire")
    expected = format.to_numbers(rational_dots(left, right, bits).astype(format.storage))
    assert same(actual, expected).all()


@pytest.mark.parametrize("bits", [8, 16])
def test_terms_that_cancel_exactly_leave_the_small_one(bits):
    format = format_of(f"custom[posit]{bits}")
    random = np.random.default_rng(5)
    codes = without_nar(random.integers(0, 1 << bits, (32, 20)).astype(format.storage), bits)
    least = np.full((32, 1), 1, format.storage)
    negative = (-codes.astype(np.int64) % (1 << bits)).astype(format.storage)
    left = np.concatenate([codes, least, negative], axis=1)
    factors = without_nar(random.integers(0, 1 << bits, (20, 3)).astype(format.storage), bits)
    right = np.concatenate([factors, np.full((1, 3), 1, format.storage), factors])
    actual = dot_products(f"custom[posit]{bits}", left, right, "quire")
    assert (actual == format.smallest).all()  # the square of minpos is above zero, so it is minpos


def test_a_nar_operand_makes_its_sums_nar():
    left = np.array([[0x4000, 0x8000], [0x4000, 0x4000]], np.uint16)
    right = np.array([[0x4000], [0x4000]], np.uint16)
    assert same(dot_products("custom[posit]16", left, right, "quire"), np.array([[np.nan], [2.0]])).all()


def test_rounding_each_operation_differs_from_the_quire_and_is_its_own_rational_chain():
    format = format_of("custom[posit]16")
    random = np.random.default_rng(6)
    left, right = (format.to_bits(random.standard_normal(shape)) for shape in ((6, 40), (40, 5)))
    actual = dot_products("custom[posit]16", left, right, "each")
    for row in range(6):
        for column in range(5):
            total = Fraction(0)
            for a, b in zip(left[row].tolist(), right[:, column].tolist(), strict=True):
                product = posit_value(posit_code(posit_value(a, 16) * posit_value(b, 16), 16), 16)
                total = posit_value(posit_code(total + product, 16), 16)
            assert actual[row, column] == float(total)
    assert (actual != dot_products("custom[posit]16", left, right, "quire")).any()


def test_a_wider_accumulator_rounds_each_step_to_it_and_once_at_the_end():
    format = format_of("custom[posit]8")
    random = np.random.default_rng(7)
    left, right = (format.to_bits(random.standard_normal(shape)) for shape in ((5, 30), (30, 4)))
    actual = dot_products("custom[posit]8", left, right, "custom[posit]16")
    for row in range(5):
        for column in range(4):
            total = Fraction(0)
            for a, b in zip(left[row].tolist(), right[:, column].tolist(), strict=True):
                product = posit_value(posit_code(posit_value(a, 8) * posit_value(b, 8), 16), 16)
                total = posit_value(posit_code(total + product, 16), 16)
            assert actual[row, column] == float(posit_value(posit_code(total, 8), 8))


def near(codes: np.ndarray) -> np.ndarray:
    """Return the negatives of numbers' neighbours: sums with them cancel but for the last bits of products."""
    return without_nar((-(codes.astype(np.int64) ^ 1) % (1 << 32)).astype(np.uint32), 32)


def assert_posit32_quire(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Compare with rational sums; return the numbers."""
    actual = dot_products("custom[posit]32", left, right, "quire")
    rows, columns = ([[posit_value(code, 32) for code in row] for row in codes.tolist()] for codes in (left, right.T))
    codes = [[posit_code(sum(map(operator.mul, row, column), Fraction(0)), 32) for column in columns] for row in rows]
    assert same(actual, format_of("custom[posit]32").to_numbers(np.array(codes, np.uint32))).all()
    return actual


@pytest.mark.parametrize("terms", [1, 40])
def test_a_quire_of_posit32_sums_products_of_every_size(terms):
    format = format_of("custom[posit]32")
    left = without_nar(stratified_codes(format, 12 * terms, 7).reshape(12, terms), 32)
    right = without_nar(stratified_codes(format, 8 * terms, 8).reshape(terms, 8), 32)
    assert_posit32_quire(left, right)
    assert_posit32_quire(np.concatenate([left, near(left)], axis=1), np.concatenate([right, right]))


def test_a_quire_of_posit32_keeps_what_float64_loses():
    format, random = format_of("custom[posit]32"), np.random.default_rng(9)
    left, right = (format.to_bits(random.standard_normal(shape)) for shape in ((12, 30), (30, 8)))
    wide = np.concatenate([left, near(left)], axis=1), np.concatenate([right, right])
    exact = assert_posit32_quire(*wide)
    assert (exact != dot_products("custom[posit]32", *wide, "float64")).any()


def test_a_float_without_subnormals_sums_its_last_places():
    register_float("flushed", 3, 2, infinities=False, subnormals=False)
    format = format_of("custom[flushed]6")
    numbers = np.array([[0.3125, 0.3125, -0.25, -0.25]])  # 1.25 and 1 times the least normal number
    actual = dot_products("custom[flushed]6", format.to_bits(numbers), format.to_bits(np.full((4, 1), 2.0)), "quire")
    assert actual.tolist() == [[0.25]]


def test_a_logarithm_has_no_quire_and_the_error_says_what_to_do():
    codes = np.zeros((1, 1), np.uint16)
    with pytest.raises(DatatypeError) as caught:
        dot_products("custom[lns]16", codes, codes, "quire")
    assert caught.value.message == (
        "custom[lns]16 has no quire: its numbers are no multiples of one number; accumulate in 'float64'"
    )


def test_a_type_of_lowerings_alone_has_no_quire():
    DATATYPES.register("formless", widths=(16,))
    codes = np.zeros((1, 1), np.uint16)
    with pytest.raises(DatatypeError) as caught:
        convert(matrix_product(codes, codes), "custom[formless]16", accumulate="quire")
    assert caught.value.message == (
        "a quire needs a format, and custom[formless]16 has only lowerings; accumulate in 'each' operation or in a type"
    )


def test_a_bias_is_added_before_a_quire_is_rounded():
    format, oracle = format_of("custom[posit]16"), PositOracle(16)
    random = np.random.default_rng(7)
    x, w, bias = (format.to_numbers(format.to_bits(random.normal(0, 1, shape))) for shape in ((9, 20), (20, 8), (8,)))
    kind = TensorProto.DOUBLE
    given = [helper.make_tensor_value_info(name, kind, one.shape) for name, one in (("x", x), ("w", w), ("b", bias))]
    result = [helper.make_tensor_value_info("z", kind, (9, 8))]
    graph = helper.make_graph([helper.make_node("Gemm", ["x", "w", "b"], ["z"])], "biased", given, result)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    actual = graft.compile(convert(model, "custom[posit]16", accumulate="quire"), ["llvm"], threads=1)(x, w, bias)
    for row in range(9):
        for column in range(8):
            products = (Fraction(p) * Fraction(q) for p, q in zip(x[row], w[:, column], strict=True))
            exact = sum(products, Fraction(bias[column]))
            assert actual[row, column] == oracle.numbers[oracle.round(exact)]


def test_a_convolution_adds_its_bias_in_the_quire():
    format, oracle = format_of("custom[posit]8"), PositOracle(8)
    random = np.random.default_rng(8)
    x, w, bias = (
        format.to_numbers(format.to_bits(random.normal(0, 1, shape))) for shape in ((1, 3, 5, 5), (4, 3, 3, 3), (4,))
    )
    kind = TensorProto.DOUBLE
    given = [helper.make_tensor_value_info(name, kind, one.shape) for name, one in (("x", x), ("w", w), ("b", bias))]
    result = [helper.make_tensor_value_info("z", kind, (1, 4, 3, 3))]
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"]), helper.make_node("Relu", ["c"], ["z"])]
    graph = helper.make_graph(nodes, "biased", given, result)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    actual = graft.compile(convert(model, "custom[posit]8", accumulate="quire"), ["llvm"], threads=1)(x, w, bias)
    for o, i, j in np.ndindex(4, 3, 3):
        window = x[0, :, i : i + 3, j : j + 3]
        exact = Fraction(bias[o]) + sum(Fraction(p) * Fraction(q) for p, q in zip(window.flat, w[o].flat, strict=True))
        assert actual[0, o, i, j] == max(oracle.numbers[oracle.round(exact)], 0.0)


@pytest.mark.parametrize("dtype", ["custom[float]16", "custom[bfloat]16", "custom[float8e5m2]8"])
def test_infinities_in_a_quire_are_the_sums(dtype):
    format = format_of(dtype)
    left = format.to_bits(np.array([[np.inf, 1, 1], [1, -np.inf, 2], [np.inf, -np.inf, 1], [np.nan, 1, 1], [1, 1, 1]]))
    right = format.to_bits(np.array([[1.0], [1.0], [3.0]]))
    expected = np.array([[np.inf], [-np.inf], [np.nan], [np.nan], [5.0]])
    np.testing.assert_array_equal(dot_products(dtype, left, right, "quire"), expected)


@pytest.mark.parametrize(("alpha", "beta"), [(0.5, 1.0), (1.0, -3.0), (0.1, 0.3), (-1000.0, 1e-3), (0.7, 0.0)])
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_factors_of_a_product_and_of_its_bias_are_in_the_quire(bits, alpha, beta):
    """``alpha`` and ``beta``, which ONNX has as float32, are numbers of the format themselves."""
    dtype, shapes = f"custom[posit]{bits}", ((6, 20), (20, 4), (6, 4))
    format, random = format_of(dtype), np.random.default_rng(bits)
    x, w, bias = (format.to_numbers(format.to_bits(random.normal(0, 1, shape))) for shape in shapes)
    x[:, 10:], w[10:] = x[:, :10], -w[:10]  # what is left of the sum is of the size of the smallest products
    x[:, 0] = format.to_numbers(format.to_bits(x[:, 0] * 1.01))
    actual = gemm(dtype, alpha, beta)(x, w, bias)
    factors = [Fraction(float(one)) for one in format.to_numbers(format.to_bits(np.array([alpha, beta], np.float32)))]
    for row, column in np.ndindex(6, 4):
        total = sum(Fraction(p) * Fraction(q) for p, q in zip(x[row], w[:, column], strict=True))
        exact = factors[0] * total + factors[1] * Fraction(bias[row, column])
        expected = format.to_numbers(np.array([posit_code(exact, bits)], format.storage))
        assert actual[row, column] == expected[0], (row, column)


def gemm(dtype: str, alpha: float, beta: float) -> Program:
    """Return a program of ``alpha * x @ w + beta * b`` of [6, 20], [20, 4] and [6, 4], summed in a quire."""
    kind, shapes = TensorProto.DOUBLE, {"x": (6, 20), "w": (20, 4), "b": (6, 4)}
    given = [helper.make_tensor_value_info(name, kind, shape) for name, shape in shapes.items()]
    result = [helper.make_tensor_value_info("z", kind, (6, 4))]
    node = helper.make_node("Gemm", list(shapes), ["z"], alpha=alpha, beta=beta)
    graph = helper.make_graph([node], "scaled", given, result)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return graft.compile(convert(model, dtype, accumulate="quire"), ["llvm"], threads=1)


def test_infinities_times_a_factor_are_the_sums():
    x, w, bias = np.ones((6, 20)), np.ones((20, 4)), np.zeros((6, 4))
    x[0, 3], x[1, 3], bias[1, 0], bias[2, 1] = np.inf, np.inf, np.inf, -np.inf
    actual = gemm("custom[bfloat]16", -2.0, 0.5)(x, w, bias)
    expected = np.full((6, 4), -40.0)
    expected[:2], expected[1, 0], expected[2, 1] = -np.inf, np.nan, -np.inf
    np.testing.assert_array_equal(actual, expected)
