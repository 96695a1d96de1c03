import numpy as np
import pytest

from tests.core.tensor_ir.arithmetic.test_vector_math import evaluate, ulps


@pytest.mark.parametrize(("dtype", "low", "limit"), [("float32", -86.0, 4.5), ("float64", -707.0, 1.0)])
def test_exponentials_of_nonpositive_numbers(dtype, low, limit):
    x = np.linspace(low, 0, 100_001).astype(dtype)
    errors = ulps(evaluate("exp_nonpositive", x), np.exp(x.astype(np.longdouble)))
    assert errors.max() <= limit
    assert errors[x > -18].max() <= 1.4
    far = np.array([-1e30, -np.inf, 20 * low, -np.finfo(dtype).max], dtype)
    np.testing.assert_array_equal(evaluate("exp_nonpositive", far), np.zeros_like(far))
    assert np.isnan(evaluate("exp_nonpositive", np.array([np.nan], dtype)))
    assert evaluate("exp_nonpositive", np.array([low - 2], dtype)) <= np.finfo(dtype).tiny


def test_float32_pow_is_accurate_and_special_cases_are_those_of_c():
    random = np.random.default_rng(2)
    x = np.exp(random.normal(0, 8, 20000)).astype(np.float32)
    y = random.normal(0, 5, 20000).astype(np.float32)
    with np.errstate(all="ignore"):
        errors = ulps(evaluate("pow", x, y), np.power(x.astype(np.float64), y.astype(np.float64)))
    assert errors.max() <= 0.6
    values = np.array([0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, np.inf, -np.inf, np.nan], np.float32)
    x, y = (grid.ravel() for grid in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    result = evaluate("pow", x, y)
    np.testing.assert_array_equal(result, expected)
    whole = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(result[whole]), np.signbit(expected[whole]))


def test_float64_pow_is_adequate():
    random = np.random.default_rng(3)
    x, y = np.exp(random.normal(0, 8, 20000)), random.normal(0, 5, 20000)
    np.testing.assert_allclose(evaluate("pow", x, y), np.power(x, y), rtol=1e-12)
