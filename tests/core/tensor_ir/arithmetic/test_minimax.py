import math

import numpy as np

from graft.core.tensor_ir.arithmetic.minimax import FITS, fit, scaled_complement


def test_a_polynomial_is_found_again() -> None:
    found, error = fit(lambda x: 1 + 2 * x - 4 * x**2, np.ones_like, -1.0, 1.0, 2)
    assert np.allclose(found, [1, 2, -4], atol=1e-6)
    assert error < 1e-6


def test_coefficients_are_numbers_of_float32() -> None:
    found, _ = fit(np.exp, np.ones_like, 0.0, 1.0, 3)
    assert found == [float(np.float32(one)) for one in found]


def test_one_more_power_makes_the_largest_error_smaller() -> None:
    errors = [fit(np.exp, lambda x: 1 / np.exp(x), -0.5, 0.5, degree)[1] for degree in (1, 2, 3)]
    assert errors[0] > 5 * errors[1] > 25 * errors[2]


def test_a_weight_moves_the_error_to_where_it_counts_less() -> None:
    x = np.linspace(0, 1, 200)

    def errors(weight: float) -> np.ndarray:
        found, _ = fit(np.exp, lambda x: 1 + weight * (x > 0.5), 0.0, 1.0, 1)
        return np.abs(found[0] + found[1] * x - np.exp(x))

    assert errors(9)[x > 0.5].max() < errors(0)[x > 0.5].max()


def test_every_table_stays_below_a_unit_in_the_last_place_of_float32() -> None:
    target, weight, low, high, degree = FITS["exp2"]
    _, error = fit(target, weight, low, high, degree)
    assert error < 2**-24


def test_the_scaled_complement_is_that_of_the_error_function() -> None:
    coefficients = scaled_complement(12)
    for x in (1.5, 3.0, 6.0):
        place = (x - 3) / (x + 3)
        value = sum(one * place**power for power, one in enumerate(coefficients))
        assert math.isclose(value, math.exp(x * x) * math.erfc(x), rel_tol=1e-9)
