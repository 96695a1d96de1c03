"""Posits against exact rationals: all of posit8, all unary operations and a stratified sample of pairs of posit16."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from graft.core.tensor_ir.scalar_math import Value
from graft.datatypes.formats import Format, evaluate
from graft.datatypes.operations import operate
from graft.datatypes.posit import Posit
from tests.datatypes.oracle import PositOracle, divide, posit_value, root

POSIT8, POSIT16 = Posit(8), Posit(16)
ORACLE8, ORACLE16 = PositOracle(8), PositOracle(16)
SMALL = [(3, 0), (5, 1), (6, 1), (7, 2), (8, 0), (8, 1), (8, 2), (8, 3), (11, 2), (16, 1), (16, 2)]


def computed(format: Format, operation: str, *operands: np.ndarray) -> np.ndarray:
    """Return an operation of storage bits as a kernel computes it."""

    def function(*values: Value) -> Value:
        result = operate(format, operation, tuple(map(format.decode, values)))
        return result if operation in ("EQ", "NE", "LT", "LE", "GT", "GE") else format.encode(result)

    with np.errstate(all="ignore"):
        return evaluate(function, *operands)


def pairs8() -> tuple[np.ndarray, np.ndarray]:
    codes = np.arange(256, dtype=np.uint8)
    return np.repeat(codes, 256), np.tile(codes, 256)


def pairs16(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of which every class is frequent: specials, neighbours of powers of two, cancellations, anything."""
    rng = np.random.default_rng(0)
    special = np.array([0, 1, 2, 3, 0x4000, 0x3FFF, 0x4001, 0x7FFF, 0x7FFE, 0x8000, 0x8001, 0xC000, 0xFFFF], np.uint16)
    x, y = (rng.integers(0, 1 << 16, count).astype(np.uint16) for _ in range(2))
    quarter = count // 4
    x[:quarter] = rng.integers(0x2000, 0x6000, quarter)
    y[:quarter] = x[:quarter] + rng.integers(-8, 8, quarter).astype(np.uint16)
    y[quarter : 2 * quarter] = -y[:quarter]
    x[2 * quarter :: 16] = rng.choice(special, len(x[2 * quarter :: 16]))
    grid = np.meshgrid(special, special)
    return np.concatenate([x, grid[0].ravel()]), np.concatenate([y, grid[1].ravel()])


@pytest.mark.parametrize(("bits", "es"), SMALL)
def test_every_code_stands_for_the_number_that_its_digits_say(bits: int, es: int) -> None:
    format, oracle = Posit(bits, es), PositOracle(bits, es)
    codes = np.arange(1 << bits).astype(format.storage)
    np.testing.assert_array_equal(format.to_numbers(codes), oracle.numbers)
    np.testing.assert_array_equal(format.to_bits(oracle.numbers), codes)


@pytest.mark.parametrize(("bits", "es"), SMALL)
def test_numbers_between_two_codes_round_to_the_nearer_one_and_ties_to_the_even_one(bits: int, es: int) -> None:
    format, oracle = Posit(bits, es), PositOracle(bits, es)
    middles = oracle.middle_numbers
    for numbers in (middles, np.nextafter(middles, np.inf), np.nextafter(middles, 0)):
        np.testing.assert_array_equal(format.to_bits(numbers), oracle.round_floats(numbers))
        np.testing.assert_array_equal(format.to_bits(-numbers), oracle.round_floats(-numbers))


def test_nothing_rounds_to_zero_or_nar_but_zero_and_what_is_no_number() -> None:
    numbers = np.array([1e300, -1e300, 1e-300, -1e-300, 0.0, -0.0, np.inf, -np.inf, np.nan])
    codes = [0x7FFF, 0x8001, 0x0001, 0xFFFF, 0, 0, 0x8000, 0x8000, 0x8000]
    np.testing.assert_array_equal(POSIT16.to_bits(numbers), codes)


ARITHMETIC: dict[str, Callable[..., Fraction | None]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": divide,
    "Min": min,
    "Max": max,
}
COMPARISONS = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}


@pytest.mark.parametrize("operation", ARITHMETIC)
def test_posit8_arithmetic_is_rounded_once_for_all_pairs(operation: str) -> None:
    x, y = pairs8()
    expected = [ORACLE8.apply(ARITHMETIC[operation], *pair) for pair in zip(x.tolist(), y.tolist(), strict=True)]
    np.testing.assert_array_equal(computed(POSIT8, operation, x, y), expected)


@pytest.mark.parametrize("operation", COMPARISONS)
def test_posit8_compares_as_signed_integers_for_all_pairs(operation: str) -> None:
    x, y = pairs8()
    expected = COMPARISONS[operation](x.view(np.int8), y.view(np.int8))
    np.testing.assert_array_equal(computed(POSIT8, operation, x, y), expected)


@pytest.mark.parametrize(("format", "oracle"), [(POSIT8, ORACLE8), (POSIT16, ORACLE16)])
def test_unary_operations_are_exact_for_all_codes(format: Posit, oracle: PositOracle) -> None:
    codes = np.arange(1 << format.bits).astype(format.storage)
    np.testing.assert_array_equal(computed(format, "Neg", codes), -codes)
    size = np.where(codes >> (format.bits - 1), -codes, codes)
    np.testing.assert_array_equal(computed(format, "Abs", codes), size)
    np.testing.assert_array_equal(computed(format, "Sqrt", codes), [root(oracle, code) for code in codes.tolist()])


@pytest.mark.parametrize("operation", ["Add", "Sub", "Mul", "Div"])
def test_posit16_arithmetic_is_rounded_once_for_a_stratified_million(operation: str) -> None:
    # float64 has more than twice posit16's bits: rounding there first does no harm (Figueroa, 1995).
    x, y = pairs16(1_000_000)
    left, right = ORACLE16.numbers[x], ORACLE16.numbers[y]
    functions = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
    with np.errstate(all="ignore"):
        expected = ORACLE16.round_floats(functions[operation](left, right))
    np.testing.assert_array_equal(computed(POSIT16, operation, x, y), expected)


@pytest.mark.parametrize("operation", ["Add", "Sub", "Mul", "Div"])
def test_posit16_arithmetic_equals_exact_rationals(operation: str) -> None:
    x, y = pairs16(20_000)
    expected = [ORACLE16.apply(ARITHMETIC[operation], *pair) for pair in zip(x.tolist(), y.tolist(), strict=True)]
    np.testing.assert_array_equal(computed(POSIT16, operation, x, y), expected)


def rounded32(value: Fraction | None) -> int:
    """Round to posit32 by searching its codes for the nearest."""
    if value is None:
        return 1 << 31
    if value == 0:
        return 0
    low, high = 1, (1 << 31) - 1
    while low < high:
        place = (low + high + 1) // 2
        if posit_value(32, 2, place) <= abs(value):  # type: ignore[operator]
            low = place
        else:
            high = place - 1
    middle = posit_value(33, 2, 2 * low + 1)
    assert middle is not None
    if low < (1 << 31) - 1 and (abs(value) > middle or (abs(value) == middle and low % 2)):
        low += 1
    return low if value > 0 else (1 << 32) - low


@pytest.mark.parametrize("operation", ["Add", "Sub", "Mul", "Div"])
def test_posit32_arithmetic_equals_exact_rationals(operation: str) -> None:
    rng = np.random.default_rng(1)
    format = Posit(32)
    x, y = (rng.integers(0, 1 << 32, 600).astype(np.uint32) for _ in range(2))
    x[:200], y[:200] = rng.integers(0x38000000, 0x48000000, (2, 200))
    y[200:300] = (-x[200:300].astype(np.int64) + rng.integers(-4, 4, 100)).astype(np.uint32)
    x[300:310], y[305:315] = 0x80000000, 0
    x[315:330], y[330:345] = 0x7FFFFFFF, 1
    expected = []
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        values = posit_value(32, 2, a), posit_value(32, 2, b)
        expected.append(rounded32(None if None in values else ARITHMETIC[operation](*values)))
    np.testing.assert_array_equal(computed(format, operation, x, y), np.array(expected, np.uint32))


@pytest.mark.parametrize("format", [POSIT8, POSIT16])
def test_a_fused_multiply_add_is_rounded_once(format: Posit) -> None:
    oracle = ORACLE8 if format is POSIT8 else ORACLE16
    rng = np.random.default_rng(2)
    codes = [rng.integers(0, 1 << format.bits, 20_000).astype(format.storage) for _ in range(3)]
    expected = [
        oracle.apply(lambda a, b, c: a * b + c, *three) for three in zip(*map(np.ndarray.tolist, codes), strict=True)
    ]
    np.testing.assert_array_equal(computed(format, "Fma", *codes), expected)
