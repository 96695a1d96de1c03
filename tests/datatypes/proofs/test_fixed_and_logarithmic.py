"""Fixed point and the logarithmic number system against exact rationals and high-precision decimals."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from tests.datatypes.proofs.oracle import same
from tests.datatypes.proofs.running import all_codes, all_pairs, format_of, in_numpy, stratified_codes


def fixed_result(operation: str, x: int, y: int, fraction: int, bits: int) -> int:
    """Return the code of the exact result, to nearest even, saturated; a division by zero saturates, 0/0 is 0."""
    left, right = Fraction(x, 1 << fraction), Fraction(y, 1 << fraction)
    top = (1 << (bits - 1)) - 1
    if operation == "Div" and y == 0:
        return 0 if x == 0 else top if x > 0 else -top - 1
    functions = {"Add": Fraction.__add__, "Sub": Fraction.__sub__, "Mul": Fraction.__mul__, "Div": Fraction.__truediv__}
    whole = round(functions[operation](left, right) * (1 << fraction))
    return max(-top - 1, min(top, whole))


@pytest.mark.parametrize(("bits", "fraction"), [(8, 4), (16, 8), (32, 16)])
@pytest.mark.parametrize("operation", ["Add", "Sub", "Mul", "Div"])
def test_fixed_point_rounds_the_rational_once_and_saturates(operation, bits, fraction):
    format = format_of(f"custom[fixed]{bits}")
    if bits == 8:
        x, y = all_pairs(format)
    else:
        # Random codes, and products of about every size.
        random = np.random.default_rng(bits)
        shift = random.integers(0, bits - 1, (2, 20_000))
        x, y = (random.integers(0, 1 << bits, (2, 20_000)) >> shift).astype(format.storage)
        y[::2] = (-y[::2].astype(np.int64) % (1 << bits)).astype(format.storage)
    signed = [codes.view(f"int{bits}").tolist() for codes in (x, y)]
    expected = [fixed_result(operation, a, b, fraction, bits) for a, b in zip(*signed, strict=True)]
    actual = np.rint(in_numpy(format, operation, x, y) * 2.0**fraction).astype(np.int64)
    wrong = np.flatnonzero(actual != np.array(expected))[:3]
    assert not wrong.size, (x[wrong], y[wrong], actual[wrong], np.array(expected)[wrong])


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_the_negative_of_the_least_fixed_point_number_saturates(bits):
    format = format_of(f"custom[fixed]{bits}")
    least = np.array([1 << (bits - 1), 1], format.storage)
    for operation in ("Neg", "Abs"):
        sign = -1 if operation == "Neg" else 1
        assert in_numpy(format, operation, least).tolist() == [format.largest, sign * format.smallest]


def test_nan_becomes_zero_and_infinities_saturate_in_fixed_point():
    bits = format_of("custom[fixed]16").to_bits(np.array([np.nan, np.inf, -np.inf, 127.998046875, 1e300]))
    assert bits.tolist() == [0, 0x7FFF, 0x8000, 0x7FFF, 0x7FFF]


# ---- Logarithms ----


LOGARITHMIC = [(8, 3), (16, 10)]


def parts(code: int, bits: int) -> tuple[int, int | None]:
    """Sign and logarithm of a code; zero has no logarithm, NaN sign 0."""
    sign, low = code >> (bits - 1), code & ((1 << (bits - 1)) - 1)
    logarithm = low - (1 << (bits - 1)) if low >> (bits - 2) else low
    if logarithm == -(1 << (bits - 2)):
        return (0, None) if sign else (1, None)
    return (-1 if sign else 1), logarithm


def exact_logarithm(x: tuple[int, int], y: tuple[int, int], bits: int, fraction: int) -> tuple[int, int] | None:
    """Sign and rounded logarithm of a sum by 60 decimal digits; None for zero."""
    with localcontext() as context:
        context.prec = 60
        scale, two = Decimal(1 << fraction), Decimal(2)
        total = sum((sign * two ** (Decimal(log) / scale) for sign, log in (x, y)), Decimal(0))
        if x[1] == y[1] and x[0] != y[0]:
            return None
        log = int((abs(total).ln() / two.ln() * scale).to_integral_value())
    top = (1 << (bits - 2)) - 1
    return (1 if total > 0 else -1), max(-top, min(top, log))


def number(sign: int, log: int, fraction: int) -> float:
    return sign * 2.0 ** (log / (1 << fraction))


@pytest.mark.parametrize(("bits", "fraction"), LOGARITHMIC)
def test_every_logarithmic_code_decodes_and_encodes_back(bits, fraction):
    format = format_of(f"custom[lns]{bits}")
    codes = all_codes(format)
    numbers = format.to_numbers(codes)
    for code, actual in zip(codes.tolist(), numbers.tolist(), strict=True):
        sign, log = parts(code, bits)
        if log is None:
            assert actual == 0 if sign else np.isnan(actual)
        else:
            assert actual == pytest.approx(number(sign, log, fraction), rel=1e-14)
    assert np.array_equal(format.to_bits(numbers), codes)


@pytest.mark.parametrize(("bits", "fraction"), LOGARITHMIC)
@pytest.mark.parametrize("operation", ["Mul", "Div"])
def test_logarithmic_products_and_quotients_add_and_subtract_logarithms(operation, bits, fraction):
    format = format_of(f"custom[lns]{bits}")
    x, y = all_pairs(format) if bits == 8 else (stratified_codes(format, 50_000, seed) for seed in (1, 2))
    top = (1 << (bits - 2)) - 1
    expected = []
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        left, right = parts(a, bits), parts(b, bits)
        nan = left == (0, None) or right == (0, None) or (operation == "Div" and right[1] is None)
        if nan:
            expected.append(1 << (bits - 1) | 1 << (bits - 2))
        elif left[1] is None or right[1] is None:
            expected.append(1 << (bits - 2))
        else:
            log = max(-top, min(top, left[1] + (right[1] if operation == "Mul" else -right[1])))
            expected.append((log & ((1 << (bits - 1)) - 1)) | (1 << (bits - 1) if left[0] != right[0] else 0))
    actual = format.to_bits(in_numpy(format, operation, x, y))
    assert np.array_equal(actual, np.array(expected, format.storage))


@pytest.mark.parametrize(("bits", "fraction"), LOGARITHMIC)
@pytest.mark.parametrize("operation", ["Add", "Sub"])
def test_logarithmic_sums_are_the_nearest_logarithm(operation, bits, fraction):
    format = format_of(f"custom[lns]{bits}")
    x, y = (stratified_codes(format, 4_000, seed) for seed in (1, 2))
    y[::3] = (x[::3] ^ (1 << (bits - 1))) + np.random.default_rng(1).integers(0, 9, x[::3].size).astype(format.storage)
    actual = in_numpy(format, operation, x, y)
    expected = []
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        left, right = parts(a, bits), parts(b, bits)
        if operation == "Sub":
            right = (-right[0], right[1])
        if (0, None) in (left, right):
            expected.append(np.nan)
        elif left[1] is None or right[1] is None:
            known = right if left[1] is None else left
            expected.append(0.0 if known[1] is None else number(known[0], known[1], fraction))
        else:
            total = exact_logarithm(left, right, bits, fraction)
            expected.append(0.0 if total is None else number(*total, fraction))
    codes = format.to_bits(np.array(expected))
    assert same(actual, format.to_numbers(codes)).all()
