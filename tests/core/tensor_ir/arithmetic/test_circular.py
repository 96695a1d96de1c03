"""Circular functions as expressions: their symmetries, and what they are where others are undefined."""

import math

import numpy as np
import pytest

from tests.core.tensor_ir.arithmetic.test_vector_math import evaluate

PLACES = np.concatenate([np.linspace(-20, 20, 401), [1e-30, 1e-3, 1e5, 3e8]])
RATIOS = np.linspace(-1, 1, 201)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-6), ("float64", 1e-14)])
def test_the_squares_of_sine_and_cosine_add_to_one(dtype: str, tolerance: float) -> None:
    sine, cosine = (evaluate(name, PLACES.astype(dtype)).astype(np.float64) for name in ("sin", "cos"))
    np.testing.assert_allclose(sine**2 + cosine**2, 1, atol=tolerance)
    np.testing.assert_allclose(evaluate("tan", PLACES.astype(dtype)) * cosine, sine, atol=tolerance)


@pytest.mark.parametrize("name", ["sin", "tan", "asin", "atan"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_odd_functions_change_their_sign_with_that_of_the_angle(name: str, dtype: str) -> None:
    x = (RATIOS if name == "asin" else PLACES).astype(dtype)
    np.testing.assert_array_equal(evaluate(name, -x), -evaluate(name, x))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inverses_lead_back(dtype: str) -> None:
    x, tolerance = RATIOS.astype(dtype), 8 * np.finfo(dtype).eps
    np.testing.assert_allclose(evaluate("sin", evaluate("asin", x)), x, atol=tolerance)
    np.testing.assert_allclose(evaluate("cos", evaluate("acos", x)), x, atol=tolerance)
    np.testing.assert_allclose(evaluate("asin", x) + evaluate("acos", x), math.pi / 2, atol=tolerance)
    np.testing.assert_allclose(evaluate("tan", evaluate("atan", x)), x, atol=tolerance)


@pytest.mark.parametrize("name", ["asin", "acos"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_angle_has_a_sine_above_one(name: str, dtype: str) -> None:
    assert np.isnan(evaluate(name, np.array([1.5, -1.5, np.inf, np.nan], dtype))).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_tangent_of_a_right_angle_is_endless(dtype: str) -> None:
    found = evaluate("atan", np.array([np.inf, -np.inf], dtype)).astype(np.float64)
    np.testing.assert_allclose(found, [math.pi / 2, -math.pi / 2], rtol=np.finfo(dtype).eps)
