"""The kernels of PolyBench compute what NumPy says, and any list of steps that are taken keeps it, to the bit."""

from functools import cache

import numpy as np
import pytest

from graft.core.tensor_ir.interpreting.interpreter import run_function
from tests.core.schedule.primitives.polybench import inputs, kernel
from tests.core.schedule.primitives.random_lists import CASES, STATIC, VARIANTS, check_list, plain

LISTS = {"static": 40, "symbolic": 14}
"""Lists of ten steps for each variant in ``make test-conformance``; ``make test`` has two and one."""


def check_lists(name, dtype, seeds, symbolic=False):
    for seed in seeds:
        check_list(name, dtype, seed, symbolic)


@pytest.mark.parametrize(("name", "dtype"), VARIANTS)
def test_any_list_of_steps_keeps_the_result(name, dtype):
    check_lists(name, dtype, range(2))


@pytest.mark.parametrize(("name", "dtype"), VARIANTS)
def test_any_list_of_steps_keeps_the_result_where_extents_are_variables(name, dtype):
    check_lists(name, dtype, range(1), symbolic=True)


@pytest.mark.conformance
@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize(("name", "dtype"), VARIANTS + CASES)
def test_thousands_of_lists_of_steps_keep_the_result(name, dtype, kind):
    check_lists(name, dtype, range(2, LISTS[kind]), symbolic=kind == "symbolic")


def correlations(x):
    return np.corrcoef(x, rowvar=False)


def floyd_warshall(w):
    d = w.copy()
    for k in range(len(d)):
        d = np.minimum(d, d[:, k : k + 1] + d[k])
    return d


def jacobi(x):
    a, b = x.copy(), x.copy()
    for _ in range(3):
        b[1:-1] = 0.375 * (a[:-2] + a[1:-1] + a[2:])
        a[1:-1] = 0.375 * (b[:-2] + b[1:-1] + b[2:])
    return a


def pairs(s):
    """The most pairs of bases in a sequence (Nussinov), by the recurrence on intervals."""

    @cache
    def best(i, j):
        if i >= j:
            return 0
        inner = best(i + 1, j - 1) + (i < j - 1 and s[i] + s[j] == 3)
        return max(inner, best(i + 1, j), best(i, j - 1), *(best(i, k) + best(k + 1, j) for k in range(i + 1, j)))

    return np.array([[best(i, j) for j in range(len(s))] for i in range(len(s))])


TRUTHS = {
    "correlation": correlations,
    "covariance": lambda x: np.cov(x, rowvar=False),
    "gemm": lambda a, b, d: 1.5 * a @ b + 1.25 * d,
    "symm": lambda a, b, d: 1.5 * (np.tril(a) + np.tril(a, -1).T) @ b + 1.25 * d,
    "syrk": lambda a, d: np.where(np.tri(len(a), dtype=bool), 1.5 * a @ a.T + 1.25 * d, d),
    "trmm": lambda a, d: 1.5 * (np.tril(a, -1).T + np.eye(len(a))) @ d,
    "2mm": lambda a, b, c, e: 1.5 * a @ b @ c + 1.25 * e,
    "3mm": lambda a, b, c, d: a @ b @ (c @ d),
    "atax": lambda a, x: a.T @ (a @ x),
    "doitgen": lambda x, w: x @ w,
    "cholesky": lambda x: np.tril(np.linalg.cholesky(np.tril(x) + np.tril(x, -1).T + 9 * np.eye(len(x))))
    + np.triu(x, 1),
    "gramschmidt": lambda x: np.abs(np.linalg.qr(x)[0]),
    "trisolv": lambda m, b: np.linalg.solve(np.tril(m), b),
    "floyd_warshall": floyd_warshall,
    "nussinov": pairs,
    "jacobi_1d": jacobi,
}  # fmt: skip


@pytest.mark.parametrize("name", TRUTHS)
def test_a_kernel_computes_what_numpy_says(name):
    extents = STATIC[2] if name == "gramschmidt" else STATIC[0]  # as many rows as columns, or more
    function = kernel(name, extents)
    given = [np.abs(one) for one in inputs(function, extents)]  # no path is shorter the longer it is
    result = run_function(function, given)[0]
    wide = [one.astype(np.float64) if one.dtype == np.float32 else one for one in given]
    got = np.abs(result) if name == "gramschmidt" else result
    np.testing.assert_allclose(got, TRUTHS[name](*wide), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", ["lu", "ludcmp"])
def test_factors_of_a_matrix_multiply_to_it(name):
    given, results, _ = plain(name, "float32", 0)[1][0]
    made, matrix = results[-1], given[0] + 9 * np.eye(len(given[0]))
    np.testing.assert_allclose((np.tril(made, -1) + np.eye(len(made))) @ np.triu(made), matrix, rtol=1e-4)
    if name == "ludcmp":
        np.testing.assert_allclose(matrix @ results[0], given[1], rtol=1e-3)
