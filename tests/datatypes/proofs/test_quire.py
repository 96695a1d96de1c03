"""Dot products with exact accumulation against exact rationals."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from onnx import TensorProto, helper

import graft
from graft.datatypes.conversion import convert
from graft.datatypes.quire import Quire
from graft.errors import DatatypeError
from tests.datatypes.proofs.oracle import posit_code, posit_value, same
from tests.datatypes.proofs.running import format_of, stratified_codes


def dot_products(dtype: str, left: np.ndarray, right: np.ndarray, accumulate: str) -> np.ndarray:
    """Return ``left @ right`` of codes [m, k] and [k, n], as numbers."""
    format = format_of(dtype)
    kind = TensorProto.DOUBLE
    given = [helper.make_tensor_value_info(name, kind, codes.shape) for name, codes in (("x", left), ("y", right))]
    result = helper.make_tensor_value_info("z", kind, (left.shape[0], right.shape[1]))
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "y"], ["z"])], "dot", given, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    program = graft.compile(convert(model, dtype, accumulate=accumulate), ["llvm"], threads=1)
    return np.asarray(program(format.to_numbers(left), format.to_numbers(right)))


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


def test_a_format_with_products_beyond_float64_has_no_quire_and_says_what_to_do():
    with pytest.raises(DatatypeError) as caught:
        Quire.of(format_of("custom[posit]32"), 8)
    assert caught.value.message == (
        "a quire of 32-bit numbers needs products of more than 53 bits; accumulate in custom[posit]32 or float64"
    )
