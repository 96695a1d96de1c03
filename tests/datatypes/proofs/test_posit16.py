"""posit16: every code through unary operations, a stratified million pairs and all specials through the others."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from tests.datatypes.proofs.oracle import OPERATIONS, posit_code, posit_numbers, posit_value, same
from tests.datatypes.proofs.running import (
    BINARY,
    FUNCTIONS,
    ORDER,
    UNARY,
    all_codes,
    compiled,
    format_of,
    in_numpy,
    special_pairs,
    stratified_codes,
)

TYPES = [("custom[posit]16", 2), ("custom[posit_es1]16", 1)]
MILLION = 1 << 20


def expected_of(operation: str, x: np.ndarray, y: np.ndarray, es: int) -> np.ndarray:
    """Results for numbers; NaR where an operand is NaR or a divisor zero."""
    if operation in ("Min", "Max"):
        return np.minimum(x, y) if operation == "Min" else np.maximum(x, y)
    near, error = OPERATIONS[operation](x, y)
    invalid = (y == 0) if operation in ("Div", "Mod") else np.zeros(x.shape, bool)
    return posit_numbers(16, es).round(np.where(invalid, np.nan, near), error)


def comparison_of(operation: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    left, right = x.view(np.int16), y.view(np.int16)
    table = {"EQ": np.equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal}
    return table[operation](left, right)


@pytest.mark.parametrize(("dtype", "es"), TYPES)
def test_every_code_decodes_to_its_number_and_encodes_back(dtype, es):
    codes = all_codes(format_of(dtype))
    numbers = format_of(dtype).to_numbers(codes)
    exact = [posit_value(code, 16, es) for code in codes.tolist()]
    assert all(np.isnan(a) if b is None else Fraction(a) == b for a, b in zip(numbers.tolist(), exact, strict=True))
    assert np.array_equal(format_of(dtype).to_bits(numbers), codes)


@pytest.mark.parametrize(("dtype", "es"), TYPES)
def test_every_code_through_unary_operations(dtype, es):
    format, codes = format_of(dtype), all_codes(format_of(dtype))
    numbers = format.to_numbers(codes)
    expected = {
        "Neg": -numbers,
        "Abs": np.abs(numbers),
        "Sqrt": posit_numbers(16, es).round(*OPERATIONS["Sqrt"](numbers)),
    }
    for operation in UNARY:
        assert same(in_numpy(format, operation, codes), expected[operation]).all(), operation


@pytest.mark.parametrize(("dtype", "es"), TYPES)
def test_a_stratified_million_pairs_compiled_round_once(dtype, es):
    format = format_of(dtype)
    x, y = (stratified_codes(format, MILLION, seed) for seed in (1, 2))
    left, right = format.to_numbers(x), format.to_numbers(y)
    results = compiled(dtype, x, y)
    for operation in BINARY:
        assert same(results[operation], expected_of(operation, left, right, es)).all(), operation
    for operation in ORDER:
        assert np.array_equal(results[operation], comparison_of(operation, x, y)), operation


@pytest.mark.parametrize(("dtype", "es"), TYPES)
def test_all_pairs_of_specials_round_once_in_numpy_and_compiled(dtype, es):
    format = format_of(dtype)
    x, y = special_pairs(format)
    left, right = format.to_numbers(x), format.to_numbers(y)
    results = compiled(dtype, x, y)
    for operation in BINARY:
        expected = expected_of(operation, left, right, es)
        assert same(in_numpy(format, operation, x, y), expected).all(), operation
        assert same(results[operation], expected).all(), operation


def test_neighbours_of_every_number_and_every_midpoint_round_to_the_nearest_encoding():
    format, oracle = format_of("custom[posit]16"), posit_numbers(16)
    numbers = oracle.values[np.isfinite(oracle.values)]
    points = np.concatenate([numbers, oracle.middles])
    for given in (points, np.nextafter(points, np.inf), np.nextafter(points, -np.inf)):
        assert same(format.to_numbers(format.to_bits(given)), oracle.round(given)).all()
        narrow = given.astype(np.float32)
        assert same(format.to_numbers(format.to_bits(narrow)), oracle.round(narrow.astype(np.float64))).all()


def test_nothing_but_zero_rounds_to_zero_and_nothing_finite_to_nar():
    format = format_of("custom[posit]16")
    given = np.array([5e-324, -1e-300, 1e300, -1.7976931348623157e308, np.inf, -np.inf, np.nan, 0.0, -0.0])
    assert format.to_bits(given).tolist() == [1, 0xFFFF, 0x7FFF, 0x8001, 0x8000, 0x8000, 0x8000, 0, 0]


def test_fused_multiply_add_of_stratified_triples_is_the_rational_rounded_once():
    format = format_of("custom[posit]16")
    codes = [stratified_codes(format, 20_000, seed) for seed in (4, 5, 6)]
    # Addends next to the negative product: cancellation.
    products = format.to_numbers(codes[0]) * format.to_numbers(codes[1])
    codes[2][::2] = format.to_bits(-products)[::2]
    actual = in_numpy(format, "Fma", *codes)
    table = [posit_value(code, 16) for code in range(1 << 16)]
    expected = []
    for place in zip(*(code.tolist() for code in codes), strict=True):
        x, y, z = (table[code] for code in place)
        expected.append(posit_code(None if x is None or y is None or z is None else x * y + z, 16))
    assert same(actual, format.to_numbers(np.array(expected, np.uint16))).all()


def test_the_vectorised_oracle_agrees_with_rationals_on_a_sample():
    format = format_of("custom[posit]16")
    x, y = (stratified_codes(format, 6_000, seed) for seed in (7, 8))
    for operation in ("Add", "Mul", "Div"):
        expected = []
        for a, b in zip(x.tolist(), y.tolist(), strict=True):
            left, right = posit_value(a, 16), posit_value(b, 16)
            invalid = left is None or right is None or (operation == "Div" and right == 0)
            functions = {"Add": Fraction.__add__, "Mul": Fraction.__mul__, "Div": Fraction.__truediv__}
            expected.append(posit_code(None if invalid else functions[operation](left, right), 16))
        actual = expected_of(operation, format.to_numbers(x), format.to_numbers(y), 2)
        assert same(actual, format.to_numbers(np.array(expected, np.uint16))).all(), operation


@pytest.mark.parametrize("operation", FUNCTIONS)
def test_functions_are_the_float64_result_rounded_within_one_unit(operation):
    """The result's code is that of the float64 function, or its neighbour where that lies next to a midpoint."""
    format = format_of("custom[posit]16")
    codes = all_codes(format)[::7]
    numbers = format.to_numbers(codes)
    actual = format.to_bits(in_numpy(format, operation, codes))
    table = {"Exp": np.exp, "Log": np.log, "Tanh": np.tanh, "Erf": np.vectorize(math.erf)}
    if operation in ("Exp", "Sigmoid"):
        numbers = np.clip(numbers, -700, 700)  # beyond it maxpos and minpos, never NaR or zero
    with np.errstate(all="ignore"):
        wanted = 1 / (1 + np.exp(-numbers)) if operation == "Sigmoid" else table[operation](numbers)
    distance = actual.view(np.int16).astype(int) - format.to_bits(wanted).view(np.int16)
    assert np.max(np.abs(distance)) <= 1
    assert np.mean(distance != 0) < 0.001
