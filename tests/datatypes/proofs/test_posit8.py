"""posit8, all pairs: every operation and comparison against exact rationals."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from tests.datatypes.proofs.oracle import OPERATIONS, posit_code, posit_numbers, posit_value, same
from tests.datatypes.proofs.running import BINARY, ORDER, all_codes, all_pairs, compiled, format_of, in_numpy

TYPE = "custom[posit]8"


@cache
def values(es: int = 2) -> tuple[Fraction | None, ...]:
    return tuple(posit_value(code, 8, es) for code in range(256))


def exact_result(operation: str, x: Fraction | None, y: Fraction | None) -> Fraction | None:
    if x is None or y is None:
        return None
    match operation:
        case "Add":
            return x + y
        case "Sub":
            return x - y
        case "Mul":
            return x * y
        case "Div":
            return None if y == 0 else x / y
        case "Mod":
            return None if y == 0 else x - y * int(x / y)
        case "Min":
            return min(x, y)
        case "Max":
            return max(x, y)
    raise AssertionError(operation)


def ordered(operation: str, x: Fraction | None, y: Fraction | None) -> bool:
    """The standard: posits compare as the signed integers of their bits, so NaR is least and equals itself."""
    left = (x is not None, x if x is not None else Fraction(0))
    right = (y is not None, y if y is not None else Fraction(0))
    table = {"EQ": left == right, "NE": left != right, "LT": left < right, "LE": left <= right, "GT": left > right}
    return table.get(operation, left >= right)


def decoded(codes: list[int], es: int = 2) -> np.ndarray:
    return np.array([np.nan if values(es)[code] is None else float(values(es)[code]) for code in codes])


@pytest.mark.parametrize("es", [0, 2])
def test_every_code_decodes_to_its_number_and_encodes_back(es):
    format = format_of(TYPE if es == 2 else "custom[posit_es0]8")
    codes = all_codes(format)
    assert same(format.to_numbers(codes), decoded(list(range(256)), es)).all()
    assert np.array_equal(format.to_bits(format.to_numbers(codes)), codes)


@pytest.mark.parametrize("es", [0, 2])
@pytest.mark.parametrize("operation", BINARY)
def test_every_pair_gives_the_rational_rounded_once(operation, es):
    format = format_of(TYPE if es == 2 else "custom[posit_es0]8")
    x, y = all_pairs(format)
    pairs = zip(x.tolist(), y.tolist(), strict=True)
    table = values(es)
    expected = [posit_code(exact_result(operation, table[a], table[b]), 8, es) for a, b in pairs]
    assert same(in_numpy(format, operation, x, y), decoded(expected, es)).all()


@pytest.mark.parametrize("operation", [*ORDER, "NE"])
def test_every_pair_compares_as_signed_integers_do(operation):
    format = format_of(TYPE)
    x, y = all_pairs(format)
    expected = [ordered(operation, values()[a], values()[b]) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert np.array_equal(in_numpy(format, operation, x, y), np.array(expected))


def test_the_order_is_that_of_the_bits_as_signed_integers():
    x, y = all_pairs(format_of(TYPE))
    for operation, compare in {"LT": np.less, "EQ": np.equal, "GE": np.greater_equal}.items():
        assert np.array_equal(in_numpy(format_of(TYPE), operation, x, y), compare(x.view(np.int8), y.view(np.int8)))


@pytest.mark.parametrize("operation", ["Neg", "Abs", "Sqrt"])
def test_every_code_through_unary_operations(operation):
    format = format_of(TYPE)
    codes = all_codes(format)
    numbers = decoded(list(range(256)))
    if operation == "Sqrt":
        expected = posit_numbers(8).round(*OPERATIONS["Sqrt"](numbers))
    else:
        expected = -numbers if operation == "Neg" else np.abs(numbers)
    assert same(in_numpy(format, operation, codes), expected).all()


def test_fused_multiply_add_of_many_triples_rounds_once():
    format = format_of(TYPE)
    random = np.random.default_rng(3)
    x, y, z = random.integers(0, 256, (3, 40_000)).astype(np.uint8)
    table = values()
    expected = []
    for a, b, c in zip(x.tolist(), y.tolist(), z.tolist(), strict=True):
        terms = table[a], table[b], table[c]
        total = None if None in terms else terms[0] * terms[1] + terms[2]
        expected.append(posit_code(total, 8))
    assert same(in_numpy(format, "Fma", x, y, z), decoded(expected)).all()


def test_compiled_code_gives_for_every_pair_what_numpy_gives():
    format = format_of(TYPE)
    x, y = all_pairs(format)
    for operation, result in compiled(TYPE, x, y).items():
        operands = (x,) if operation in ("Neg", "Abs", "Sqrt") else (x, y)
        assert same(result, in_numpy(format, operation, *operands)).all(), operation


def test_the_vectorised_oracle_agrees_with_rationals():
    x, y = all_pairs(format_of(TYPE))
    oracle = posit_numbers(8)
    left, right = decoded(x.tolist()), decoded(y.tolist())
    for operation in ("Add", "Mul", "Div"):
        expected = [
            posit_code(exact_result(operation, values()[a], values()[b]), 8)
            for a, b in zip(x.tolist(), y.tolist(), strict=True)
        ]
        near, error = OPERATIONS[operation](left, right)
        invalid = (right == 0) if operation == "Div" else np.zeros(x.size, bool)
        assert same(oracle.round(np.where(invalid, np.nan, near), error), decoded(expected)).all(), operation
