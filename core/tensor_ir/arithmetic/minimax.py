"""Where the coefficients of `vector_math` come from: near-minimax polynomials for float32.

`fit` finds the polynomial whose largest weighted error is smallest (Lawson's algorithm: least squares, reweighted by
the error until it is level) and rounds its coefficients to float32 one after another, lowest first, fitting the rest
again each time. ``python -m graft.core.tensor_ir.arithmetic.minimax`` prints the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Function: TypeAlias = Callable[[Array], Array]


def fit(target: Function, weight: Function, low: float, high: float, degree: int) -> tuple[list[float], float]:
    """Return float32 coefficients, lowest power first, of a polynomial near ``target`` on ``[low, high]``.

    The second result is the largest ``|polynomial - target| * weight`` that remains.
    """
    nodes = np.cos(np.linspace(0, np.pi, 1500))
    x = low + (high - low) * (nodes + 1) / 2
    x = x[np.abs(x) > 1e-4]
    values, weights = target(x), weight(x)
    coefficients: list[float] = []
    for power in range(degree + 1):
        known = sum((c * x**p for p, c in enumerate(coefficients)), np.zeros_like(x))
        rest = _lawson(x, values - known, weights, power, degree)
        coefficients.append(float(np.float32(rest[0])))
    error = np.abs(sum((c * x**p for p, c in enumerate(coefficients)), np.zeros_like(x)) - values) * weights
    return coefficients, float(error.max())


def _lawson(x: Array, values: Array, weights: Array, first: int, last: int) -> Array:
    basis = np.stack([x**power for power in range(first, last + 1)], 1) * weights[:, None]
    goal = values * weights
    levels = np.full(len(x), 1 / len(x))
    best, result = math.inf, np.zeros(last - first + 1)
    for _ in range(120):
        root = np.sqrt(levels)
        solution = np.linalg.lstsq(basis * root[:, None], goal * root, rcond=None)[0]
        error = np.abs(basis @ solution - goal)
        if error.max() < best:
            best, result = error.max(), solution
        levels *= error
        if not levels.any():  # no error anywhere: the polynomial is the function
            break
        levels /= levels.sum()
    return result


def _erf(x: Array) -> Array:
    return np.array([math.erf(value) for value in x])


def _erfc(x: Array) -> Array:
    return np.array([math.erfc(value) for value in x])


def _of_square(function: Function) -> Function:
    return lambda square: function(np.sqrt(square))


LN2, QUARTER_PI = math.log(2), math.pi / 4

FITS: dict[str, tuple[Function, Function, float, float, int]] = {
    # exp(r) = 1 + r + r^2 p(r)
    "exp": (lambda r: (np.expm1(r) - r) / r**2, lambda r: r**2 / np.exp(r), -LN2 / 2, LN2 / 2, 4),
    # 2^r = 1 + r p(r)
    "exp2": (lambda r: np.expm1(r * LN2) / r, lambda r: r / 2**r, -0.5, 0.5, 5),
    # log(1 + f) = f - f^2 / 2 + f^3 p(f)
    "log": (
        lambda f: (np.log1p(f) - f + f**2 / 2) / f**3,
        lambda f: f**3 / np.log1p(f),
        math.sqrt(0.5) - 1,
        math.sqrt(2) - 1,
        8,
    ),
    # erf(x) = x + x p(x^2) for |x| < 0.9375
    "erf_small": (_of_square(lambda x: _erf(x) / x - 1), _of_square(lambda x: x / _erf(x)), 0.0, 0.9375**2, 6),
    # erf(x) = 1 - exp(-x - x p(x)) for 0.9375 < x < 4
    "erf_large": (lambda x: -np.log(_erfc(x)) / x - 1, lambda x: x * _erfc(x), 0.9375, 4.0, 6),
    # sin(r) = r + r^3 p(r^2), cos(r) = 1 - r^2 / 2 + r^4 p(r^2)
    "sin": (
        _of_square(lambda r: (np.sin(r) / r - 1) / r**2),
        _of_square(lambda r: r**3 / np.sin(r)),
        0.0,
        (QUARTER_PI * 1.01) ** 2,
        3,
    ),
    "cos": (
        _of_square(lambda r: (np.cos(r) - 1 + r**2 / 2) / r**4),
        _of_square(lambda r: r**4 / np.cos(r)),
        0.0,
        (QUARTER_PI * 1.01) ** 2,
        3,
    ),
    # atan(x) = x + x^3 p(x^2) for |x| < tan(pi / 8)
    "atan": (
        _of_square(lambda x: (np.arctan(x) / x - 1) / x**2),
        _of_square(lambda x: x**3 / np.arctan(x)),
        0.0,
        0.4143**2,
        4,
    ),
    # asin(x) = x + x^3 p(x^2) for |x| < 1/2
    "asin": (
        _of_square(lambda x: (np.arcsin(x) / x - 1) / x**2),
        _of_square(lambda x: x**3 / np.arcsin(x)),
        0.0,
        0.25,
        5,
    ),
}


def scaled_complement(degree: int = 16) -> list[float]:
    """Return float64 coefficients of ``exp(x^2) erfc(x)`` for 1 < x < 6.5 in ``(x - 3) / (x + 3)``."""
    x = np.cos(np.linspace(0, np.pi, 4000)) * 2.76 + 3.76
    square = [Fraction(value) ** 2 for value in x]
    lost = np.array([float(exact - Fraction(float(exact))) for exact in square])
    values = _erfc(x) * np.exp(np.array([float(exact) for exact in square])) * (1 + lost)
    series = np.polynomial.Chebyshev.fit((x - 3) / (x + 3), values, degree)
    return [float(value) for value in series.convert(kind=np.polynomial.Polynomial).coef]


def main() -> None:
    """Print every table with its error in units of 2^-24."""
    print(f"SCALED_COMPLEMENT = {scaled_complement()}")
    for name, (target, weight, low, high, degree) in FITS.items():
        coefficients, error = fit(target, weight, low, high, degree)
        print(f"{name.upper()} = ({', '.join(f'{c!r}' for c in coefficients)})  # {error * 2**24:.3f}")


if __name__ == "__main__":
    main()
