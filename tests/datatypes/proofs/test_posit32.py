"""posit32 on stratified pairs against exact rationals."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.datatypes.proofs.oracle import posit_code, posit_value, same
from tests.datatypes.proofs.running import ORDER, compiled, format_of, in_numpy, special_pairs, stratified_codes

TYPE = "custom[posit]32"


def number(code: int) -> Fraction | None:
    return posit_value(code, 32)


def pairs(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Stratified codes; a quarter of the second ones are near the first, so that differences cancel."""
    format = format_of(TYPE)
    x, y = stratified_codes(format, count, seed), stratified_codes(format, count, seed + 1)
    step = np.random.default_rng(seed).integers(-40, 40, count)
    near = ((x.astype(np.int64) + step) % (1 << 32)).astype(np.uint32)
    return x, np.where(np.arange(count) % 4 == 0, near, y)


def expected_of(operation: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    functions = {"Add": Fraction.__add__, "Sub": Fraction.__sub__, "Mul": Fraction.__mul__, "Div": Fraction.__truediv__}
    result = []
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        left, right = number(a), number(b)
        invalid = left is None or right is None or (operation == "Div" and right == 0)
        result.append(posit_code(None if invalid else functions[operation](left, right), 32))
    return format_of(TYPE).to_numbers(np.array(result, np.uint32))


def test_codes_decode_to_their_numbers_and_encode_back():
    format = format_of(TYPE)
    codes = stratified_codes(format, 60_000, 3)
    numbers = format.to_numbers(codes)
    for code, actual in zip(codes.tolist(), numbers.tolist(), strict=True):
        wanted = number(code)
        assert np.isnan(actual) if wanted is None else Fraction(actual) == wanted, hex(code)
    assert np.array_equal(format.to_bits(numbers), codes)


@pytest.mark.parametrize("operation", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("count", [12_000, pytest.param(400_000, marks=pytest.mark.slow)])
def test_stratified_pairs_round_once_in_numpy_and_compiled(operation, count):
    x, y = pairs(count, 11)
    expected = expected_of(operation, x, y)
    assert same(in_numpy(format_of(TYPE), operation, x, y), expected).all()
    assert same(compiled(TYPE, x, y)[operation], expected).all()


@pytest.mark.parametrize("operation", ["Add", "Mul", "Div"])
def test_pairs_of_specials_round_once(operation):
    x, y = (codes[::5] for codes in special_pairs(format_of(TYPE)))
    assert same(in_numpy(format_of(TYPE), operation, x, y), expected_of(operation, x, y)).all()


def test_midpoints_and_their_neighbours_in_float64_round_to_the_nearest_encoding():
    format = format_of(TYPE)
    codes = stratified_codes(format, 8_000, 5)
    codes = codes[(codes != 1 << 31) & (codes != (1 << 31) - 1)]
    middles = np.array([float(posit_value((2 * code + 1) % (1 << 33), 33) or 0) for code in codes.tolist()])
    for given in (middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf)):
        expected = np.array([posit_code(Fraction(value), 32) for value in given.tolist()], np.uint32)
        assert np.array_equal(format.to_bits(given), expected)


def test_square_roots_round_once():
    format = format_of(TYPE)
    codes = stratified_codes(format, 10_000, 7)
    actual = format.to_bits(in_numpy(format, "Sqrt", codes))
    for code, result in zip(codes.tolist(), actual.tolist(), strict=True):
        value = number(code)
        if value is None or value < 0:
            assert result == 1 << 31
        elif value == 0:
            assert result == 0
        else:
            below, above = (posit_value(2 * result + step, 33) for step in (-1, 1))
            assert below**2 <= value <= above**2, hex(code)
            tie = value in (below**2, above**2)
            assert not tie or result % 2 == 0, hex(code)


def test_fused_multiply_add_of_stratified_triples_rounds_once():
    format = format_of(TYPE)
    x, y = pairs(8_000, 21)
    z = stratified_codes(format, x.size, 23)
    with np.errstate(invalid="ignore", over="ignore"):
        z[::2] = format.to_bits(-(format.to_numbers(x) * format.to_numbers(y)))[::2]
    expected = []
    for place in zip(x.tolist(), y.tolist(), z.tolist(), strict=True):
        terms = [number(code) for code in place]
        expected.append(posit_code(None if None in terms else terms[0] * terms[1] + terms[2], 32))
    wanted = format.to_numbers(np.array(expected, np.uint32))
    assert same(in_numpy(format, "Fma", x, y, z), wanted).all()


def test_comparisons_are_those_of_the_bits_as_signed_integers():
    x, y = pairs(20_000, 31)
    results = compiled(TYPE, x, y)
    table = {"EQ": np.equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal}
    for operation in ORDER:
        assert np.array_equal(results[operation], table[operation](x.view(np.int32), y.view(np.int32))), operation
