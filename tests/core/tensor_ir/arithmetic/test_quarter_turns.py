import math
from fractions import Fraction

import numpy as np
import pytest

from graft.core.tensor_ir.arithmetic.quarter_turns import half_pi, pi
from tests.core.tensor_ir.arithmetic.test_vector_math import evaluate

PLACES = 1400
PI = pi(PLACES)


def sine_and_cosine(x: float) -> tuple[Fraction, Fraction]:
    """Return sine and cosine of a float64 to 300 bits, by integers: pi to 1,400 bits and the Taylor series."""
    numerator, denominator = x.as_integer_ratio()
    turns, rest = divmod((numerator << PLACES) // denominator, PI // 2)
    angle, one = rest >> (PLACES - 400), 1 << 400
    sums, term, place = [0, 0], one, 0
    while term:
        sums[place % 2] += term if place % 4 < 2 else -term
        place += 1
        term = (term * angle >> 400) // place
    cosine, sine = (Fraction(total, one) for total in sums)
    return {0: (sine, cosine), 1: (cosine, -sine), 2: (-sine, -cosine), 3: (-cosine, sine)}[turns % 4]


def hard_angles() -> np.ndarray:
    """Return float64 numbers of every exponent, and those next to multiples of pi/2, the nearest of all included."""
    random = np.random.default_rng(5)
    exponents = np.arange(-30, 1024)
    spread = np.ldexp(random.uniform(1, 2, exponents.size), exponents) * random.choice([-1, 1], exponents.size)
    counts = np.unique(np.round(10 ** random.uniform(0, 18, 60))).astype(np.int64)
    near = [float(Fraction(int(count) * pi(200), 1 << 201)) for count in counts]
    # The float64 that is nearest to a multiple of pi/2 (Kahan): 2^-60.9 of it.
    return np.array([*spread, *near, 6381956970095103 * 2.0**797, 1e20, 1e22, np.finfo(np.float64).max])


def test_half_pi_is_the_sum_of_two_float64_and_pi_known_to_as_many_bits_as_asked() -> None:
    high, low = half_pi()
    assert high == math.pi / 2
    assert abs(Fraction(high) + Fraction(low) - Fraction(pi(400), 1 << 401)) < Fraction(1, 1 << 106)
    assert pi(60) == PI >> (PLACES - 60) and str(pi(0)) == "3"


@pytest.mark.parametrize(("name", "limit"), [("sin", 0.85), ("cos", 0.85), ("tan", 2.0)])
def test_float64_angles_of_every_exponent_are_reduced_exactly(name: str, limit: float) -> None:
    x = hard_angles()
    worst = 0.0
    for angle, result in zip(x.tolist(), evaluate(name, x).tolist(), strict=True):
        sine, cosine = sine_and_cosine(angle)
        expected = {"sin": sine, "cos": cosine, "tan": sine / cosine}[name]
        worst = max(worst, float(abs(Fraction(result) - expected) / Fraction(math.ulp(float(expected)))))
    assert worst <= limit


def test_infinite_angles_have_no_sine() -> None:
    for name in ("sin", "cos", "tan"):
        assert np.isnan(evaluate(name, np.array([np.inf, -np.inf, np.nan]))).all()
