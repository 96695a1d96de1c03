"""Formats of drawn parameters against exact rationals: every operation is rounded once, every cast both ways.

``GRAFT_FORMATS`` says how many formats the full run (``-m conformance``) draws.
"""

from __future__ import annotations

import os
import random
from fractions import Fraction

import numpy as np
import pytest

from graft.datatypes.formats import Format, evaluate
from graft.datatypes.operations import operate
from graft.datatypes.posit import Posit
from graft.datatypes.small_float import SmallFloat
from tests.datatypes.oracle import PositOracle, divide, root
from tests.datatypes.proofs.float_oracle import INFINITY, NAN, FloatOracle

FORMATS = int(os.environ.get("GRAFT_FORMATS", "400"))
SAMPLE = 6
PAIRS = 60
GROUP = 100
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")


def drawn(seed: int) -> tuple[SmallFloat, FloatOracle]:
    """Return a float of drawn parameters, all of whose numbers are normal in float32, and what it means."""
    draw = random.Random(seed)
    exponent, mantissa = draw.randint(2, 6), draw.randint(1, 7)
    nan = draw.choice(["ieee", "ieee", "top", "zero", "none"])
    infinities = nan in ("ieee", "zero") and draw.random() < 0.6
    parameters = (
        1 + exponent + mantissa, mantissa, infinities, draw.random() < 0.7, nan, draw.random() < 0.4,
        draw.randint(-20, 20),
    )  # fmt: skip
    return SmallFloat(*parameters), FloatOracle(*parameters)  # type: ignore[arg-type]


def shown(numbers: np.ndarray) -> list[Fraction | str]:
    """Return numbers as the oracle has them."""
    return [NAN if one != one else INFINITY if abs(one) == np.inf else Fraction(float(one)) for one in numbers]


def results(format: Format, operation: str, *codes: np.ndarray) -> np.ndarray:
    """Return what a kernel computes of codes, as numbers."""

    def computed(*bits: object) -> object:
        return format.encode(operate(format, operation, tuple(format.decode(one) for one in bits)))  # type: ignore[arg-type]

    return format.to_numbers(evaluate(computed, *codes))  # type: ignore[arg-type]


def check_float(seed: int) -> None:
    """Compare one drawn float in everything."""
    format, oracle = drawn(seed)
    codes = np.arange(1 << format.bits).astype(format.storage)
    values = [oracle.value(code) for code in range(1 << format.bits)]
    assert shown(format.to_numbers(codes)) == values, (seed, format)
    known = np.array([code for code, one in enumerate(values) if isinstance(one, Fraction)], format.storage)
    draw = np.random.default_rng(seed)
    x, y, z = (draw.choice(known, PAIRS) for _ in range(3))
    y = np.where([values[one] == 0 for one in y], known[-1], y).astype(format.storage)
    a, b, c = ([values[one] for one in operand] for operand in (x, y, z))
    exact = {
        "Add": [one + other for one, other in zip(a, b, strict=True)],
        "Sub": [one - other for one, other in zip(a, b, strict=True)],
        "Mul": [one * other for one, other in zip(a, b, strict=True)],
        "Div": [one / other for one, other in zip(a, b, strict=True)],
    }
    for operation, numbers in exact.items():
        assert shown(results(format, operation, x, y)) == [*map(oracle.round, numbers)], (seed, format, operation)
    roots = [(0 if format.nan == "none" else NAN) if one < 0 else oracle.root(one) for one in a]
    assert shown(results(format, "Sqrt", x)) == roots, (seed, format, "Sqrt")
    fused = format.to_numbers(evaluate(
        lambda p, q, r: format.encode(format.multiply_add(*map(format.decode, (p, q, r)))), x, y, z
    ))  # fmt: skip
    sums = [oracle.round(p * q + r) for p, q, r in zip(a, b, c, strict=True)]
    assert shown(fused) == sums, (seed, format, "multiply_add")
    middles = [(p + q) / 2 for p, q in zip(oracle.sizes, oracle.sizes[1:], strict=False)]
    numbers = np.array([float(one) for one in middles])[draw.integers(0, len(middles), PAIRS)]
    beside = np.concatenate([numbers, np.nextafter(numbers, np.inf), np.nextafter(numbers, 0), -numbers])
    assert shown(format.to_numbers(format.to_bits(beside))) == [oracle.round(Fraction(float(one))) for one in beside], (
        seed,
        format,
        "cast",
    )
    other, others = drawn(seed + 1)
    cast = other.to_numbers(other.to_bits(format.to_numbers(x)))
    assert shown(cast) == [*map(others.round, a)], (seed, format, other, "cast between formats")


def check_posit(seed: int) -> None:
    """Compare one drawn posit."""
    draw = random.Random(seed)
    bits, es = draw.randint(3, 12), draw.randint(0, 3)
    format, oracle = Posit(bits, es), PositOracle(bits, es)
    codes = np.random.default_rng(seed).integers(0, 1 << bits, (2, PAIRS)).astype(format.storage)
    functions = {"Add": lambda p, q: p + q, "Sub": lambda p, q: p - q, "Mul": lambda p, q: p * q, "Div": divide}
    x, y = codes
    for operation, function in functions.items():
        bits_found = evaluate(
            lambda p, q, name=operation: format.encode(operate(format, name, (format.decode(p), format.decode(q)))),
            x,
            y,
        )
        wanted = [oracle.apply(function, int(one), int(other)) for one, other in zip(x, y, strict=True)]
        assert bits_found.tolist() == wanted, (seed, format, operation)
    found = evaluate(lambda p: format.encode(operate(format, "Sqrt", (format.decode(p),))), x)
    assert found.tolist() == [root(oracle, int(one)) for one in x], (seed, format, "Sqrt")
    numbers = np.random.default_rng(seed).standard_normal(PAIRS) * 2.0 ** np.random.default_rng(seed).integers(
        -9, 9, PAIRS
    )
    assert format.to_bits(numbers).tolist() == [oracle.round(Fraction(float(one))) for one in numbers], (seed, format)


@pytest.mark.parametrize("seed", range(SAMPLE))
def test_a_float_of_any_parameters_rounds_each_operation_once(seed: int) -> None:
    check_float(seed)


@pytest.mark.parametrize("seed", range(SAMPLE))
def test_a_posit_of_any_width_and_exponent_rounds_each_operation_once(seed: int) -> None:
    check_posit(seed)


@pytest.mark.conformance
@pytest.mark.parametrize("group", range(-(-FORMATS // GROUP)))
def test_many_formats_round_each_operation_once(group: int) -> None:
    for seed in range(group * GROUP, min(FORMATS, (group + 1) * GROUP)):
        check_float(seed)
        check_posit(seed)
