import math

import numpy as np
import pytest

from graft.core.tensor_ir import numerics
from graft.core.tensor_ir.arithmetic.vector_math import EXPANSIONS, expand, expansion
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from graft.core.tensor_ir.ir import Buffer, Constant, Function, Intrinsic, Load, Ramp, Stage, Store, Variable
from graft.core.tensor_ir.visit import walk_expressions, walk_statements
from graft.core.types import INT64, Type
from graft.runtime.dtypes import dtype_name

FLOAT32_LIMITS = {
    "exp": 1.1, "exp2": 0.9, "expm1": 1.5, "log": 0.9, "log2": 1.2, "log1p": 1.0, "tanh": 2.7, "sigmoid": 2.5,
    "erf": 1.1, "sin": 1.6, "cos": 1.6, "tan": 3.8, "asin": 2.3, "acos": 1.3, "atan": 2.6, "sinh": 2.4, "cosh": 1.5,
    "asinh": 1.8, "acosh": 2.5, "atanh": 2.0, "rsqrt": 1.5,
}  # fmt: skip


def evaluate(name, *arguments):
    dtype = dtype_name(arguments[0].dtype)
    extent = (Constant(arguments[0].size, INT64),)
    buffers = [Buffer(f"x{number}", dtype, extent) for number in range(len(arguments))]
    y, i = Buffer("y", dtype, extent), Variable("i")
    value = Intrinsic(name, tuple(Load(buffer, (i,)) for buffer in buffers), Type(dtype))
    stage = Stage(y, (i,), expansion()(value))
    return run_stages([stage], dict(zip(buffers, arguments, strict=True)))[y]


def all_exponents():
    """Return float32 numbers of both signs in every binade, the denormals included."""
    random = np.random.default_rng(0)
    bits = (np.arange(255, dtype=np.uint32)[:, None] << 23) | random.integers(0, 1 << 23, (255, 120), np.uint32)
    near = np.concatenate([random.normal(0, scale, 4000) for scale in (0.1, 1, 10, 100)]).astype(np.float32)
    positive = np.concatenate([bits.ravel().astype(np.uint32).view(np.float32), np.abs(near)])
    special = np.array([0.0, 1.0, 0.5, 2.0, np.inf, np.nan, 88.72283, 1e-45, 3.4028235e38], np.float32)
    return np.concatenate([positive, -positive, special, -special])


def exact(name, x):
    with np.errstate(all="ignore"):
        if name == "acosh":
            return np.arccosh(x.astype(np.longdouble))
        return numerics.intrinsic(name, (x.astype(np.float64),), "float64")


def ulps(result, expected):
    """Return the errors in units in the last place of the result's type; equal infinities and NaN count as zero."""
    kind = result.dtype
    with np.errstate(all="ignore"):
        rounded = expected.astype(kind)
        unit = np.spacing(np.abs(np.where(np.isfinite(rounded), rounded, np.finfo(kind).max)).astype(kind))
        difference = np.abs(result.astype(np.longdouble) - expected.astype(np.longdouble)) / unit.astype(np.longdouble)
    same = (result == rounded) | (np.isnan(result) & np.isnan(rounded))
    return np.where(
        same,
        np.minimum(np.nan_to_num(difference, nan=0.0, posinf=0.0), 0.5),
        np.nan_to_num(difference, nan=np.inf, posinf=np.inf),
    )


@pytest.mark.parametrize("name", FLOAT32_LIMITS)
def test_float32_functions_are_accurate_at_every_exponent(name):
    x = all_exponents()
    errors = ulps(evaluate(name, x), exact(name, x))
    worst = int(errors.argmax())
    assert errors[worst] <= FLOAT32_LIMITS[name], (name, x[worst], errors[worst])


FLOAT64_LIMITS = {
    "exp": 1, "exp2": 1, "expm1": 2, "log": 1, "log2": 1, "log1p": 1, "tanh": 2, "sigmoid": 2, "erf": 2, "sin": 1,
    "cos": 1, "tan": 3, "asin": 2, "acos": 2, "atan": 2, "sinh": 2, "cosh": 2, "asinh": 2, "acosh": 2, "atanh": 2,
    "rsqrt": 1,
}  # fmt: skip


@pytest.mark.parametrize("name", FLOAT64_LIMITS)
def test_float64_functions_are_accurate(name):
    random = np.random.default_rng(1)
    x = np.concatenate([random.normal(0, scale, 3000) for scale in (1e-9, 0.1, 1, 10, 300)])
    x = np.concatenate([x, [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0]])
    errors = ulps(evaluate(name, x), exact(name, x))
    worst = int(errors.argmax())
    assert errors[worst] <= FLOAT64_LIMITS[name], (name, x[worst], errors[worst])


@pytest.mark.parametrize(
    "name", ["expm1", "log1p", "tanh", "erf", "sin", "tan", "asin", "atan", "sinh", "asinh", "atanh"]
)
def test_odd_functions_keep_the_sign_of_zero(name):
    result = evaluate(name, np.array([0.0, -0.0], np.float32))
    np.testing.assert_array_equal(np.signbit(result), [False, True])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_small_floats_go_through_float32(dtype):
    kind = numerics.storage(dtype)
    x = np.linspace(-4, 4, 101).astype(kind)
    result = evaluate("tanh", x)
    assert result.dtype == kind
    np.testing.assert_array_equal(result, np.tanh(x.astype(np.float64)).astype(kind))


def test_an_expanded_function_names_what_is_shared_and_calls_nothing():
    extent = (Constant(16, INT64),)
    x, y = Buffer("x", "float32", extent), Buffer("y", "float32", extent)
    ramp = (Ramp(Constant(0, INT64), 1, 16),)
    store = Store(y, ramp, Intrinsic("tanh", (Load(x, ramp),), Type("float32", 16)))
    function = expand(Function("tanh", (x, y), 1, store))
    for statement in walk_statements(function.body):
        if isinstance(statement, Store):
            nodes = list(walk_expressions(*statement.indices, statement.value))
            assert not {node.name for node in nodes if isinstance(node, Intrinsic)} & set(EXPANSIONS)
    data = np.linspace(-3, 3, 16).astype(np.float32)
    result = run_function(function, [data])[0]
    np.testing.assert_allclose(result, np.tanh(data), rtol=3e-7)
    assert math.isclose(result[0], math.tanh(-3), rel_tol=3e-7)
