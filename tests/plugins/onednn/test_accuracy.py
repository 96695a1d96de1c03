"""The stated accuracy of oneDNN's primitives, held against float64 over the range of float32; and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import onnx
import pytest

import graft
from graft.errors import GraftError
from graft.partition.policy import Policy
from graft.plugins.onednn.accuracy import ELTWISE, FLUSHED, LIMIT, PRIMITIVES, Accuracy
from graft.runtime.program import Program
from tests.plugins.onednn.models import needs_library

pytestmark = needs_library

Reference = Callable[[np.ndarray], np.ndarray]


def sigmoid(z: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(z))
    return np.where(z >= 0, 1, e) / (1 + e)


def mish(z: np.ndarray) -> np.ndarray:
    e = np.exp(np.minimum(z, 40.0))
    return z * np.where(z > 40, 1.0, e * (e + 2) / (e * (e + 2) + 2))


def softplus(z: np.ndarray) -> np.ndarray:
    return np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))


def gelu(z: np.ndarray) -> np.ndarray:
    return 0.5 * z * np.array([math.erfc(-one / math.sqrt(2)) for one in z.ravel()]).reshape(z.shape)


def gelu_tanh(z: np.ndarray) -> np.ndarray:
    return z * sigmoid(2 * math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))


def single(value: float) -> float:
    return float(np.float32(value))


ROWS: Mapping[str, tuple[str, Reference]] = {
    "relu": ("LeakyRelu<alpha = 0.2>(x)", lambda z: np.where(z < 0, single(0.2) * z, z)),
    "clip": ("Clip(x, low, high)", lambda z: np.clip(z, -0.5, 2)),
    "abs": ("Abs(x)", np.abs),
    "round": ("Round(x)", np.rint),
    "linear": ("Neg(x)", np.negative),
    "square": ("Pow(x, two)", np.square),
    "sqrt": ("Sqrt(x)", np.sqrt),
    "pow": ("Pow(x, three)", lambda z: z**3),
    "exp": ("Exp(x)", np.exp),
    "logistic": ("Sigmoid(x)", sigmoid),
    "tanh": ("Tanh(x)", np.tanh),
    "elu": ("Elu<alpha = 0.7>(x)", lambda z: np.where(z < 0, single(0.7) * np.expm1(z), z)),
    "swish": ("Swish<alpha = 1.5>(x)", lambda z: z * sigmoid(1.5 * z)),
    "hardsigmoid": (
        "HardSigmoid<alpha = 0.3, beta = 0.4>(x)", lambda z: np.clip(single(0.3) * z + single(0.4), 0, 1)
    ),
    "hardswish": ("HardSwish(x)", lambda z: z * np.clip(z / 6 + 0.5, 0, 1)),
    "gelu_tanh": ('Gelu<approximate = "tanh">(x)', gelu_tanh),
    "gelu_erf": ("Gelu(x)", gelu),
    "log": ("Log(x)", np.log),
    "mish": ("Mish(x)", mish),
    "soft_relu": ("Softplus(x)", softplus),
}  # fmt: skip
CONSTANTS = {"low": -0.5, "high": 2.0, "two": 2.0, "three": 3.0}


def program(text: str, shape: tuple[int, ...], constants: Mapping[str, np.ndarray]) -> Program:
    """Return a program of one operator by oneDNN, whatever its accuracy."""
    sizes = ",".join(map(str, shape))
    made = ",".join(map(str, (*shape[:2], 1, 1) if text.startswith("Global") else shape))
    source = f'<ir_version: 10, opset_import: ["" : 24]> g (float[{sizes}] x) => (float[{made}] y) {{ y = {text} }}'
    model = onnx.parser.parse_model(source)
    for name, value in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value, np.float32), name))
    operator = model.graph.node[0].op_type
    return graft.compile(model, ["onednn"], policy=Policy(allow_inaccurate=(operator,)), threads=1, strict=True)


def numbers(largest: float) -> np.ndarray:
    """Return every exponent and both signs, and more where the functions bend."""
    mantissas = np.random.default_rng(0).uniform(1, 2, (277, 64))
    mantissas[:, 0], mantissas[:, 1] = 1, 2 - 2**-23
    spread = np.ldexp(mantissas, np.arange(-149, 128)[:, None]).ravel()
    dense = np.concatenate([np.linspace(-110, 110, 30_001), 1 + np.arange(-2000, 2000) * 2.0**-23])
    found = np.concatenate([spread, -spread, dense]).astype(np.float32)
    return found[np.abs(found) <= largest]


def excess(got: np.ndarray, exact: np.ndarray, stated: Accuracy, scale: float = 1.0) -> np.ndarray:
    """Return by how much results are off beyond the bound; what overflows in float32 must be infinite."""
    with np.errstate(over="ignore"):
        rounded = exact.astype(np.float32)
    known = np.isfinite(rounded)
    step = np.maximum(np.spacing(np.abs(rounded[known])).astype(np.float64), 2.0**-149)
    error = np.abs(got[known].astype(np.float64) - exact[known])
    assert np.array_equal(got[~known], rounded[~known], equal_nan=True)
    return error - stated.ulp * step - stated.absolute * scale - FLUSHED


@pytest.mark.parametrize("name", ROWS)
def test_elementwise_errors_stay_within_what_is_stated(name):
    text, reference = ROWS[name]
    x = numbers(ELTWISE[name].largest)
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64))
    got = program(text, x.shape, {key: np.float32(CONSTANTS[key]) for key in CONSTANTS if f" {key}" in text})(x)
    beyond = excess(got, exact, ELTWISE[name])
    if name == "log":  # of subnormal numbers it has no idea
        beyond = beyond[(x >= 2.0**-126)[np.isfinite(exact)]]
    assert beyond.max() <= 0, x[np.isfinite(exact.astype(np.float32))][beyond.argmax()]


def test_every_elementwise_algorithm_has_a_stated_error_and_a_test():
    from graft.plugins.onednn.operators import ROWS as OPERATORS

    assert set(ROWS) == set(ELTWISE)
    builds = [row.eltwise for row in OPERATORS.values() if row.eltwise is not None]
    made = [build({}, [None, np.float32(3), np.float32(4)]) for build in builds]
    assert {one.algorithm for one in made if one is not None} <= set(ELTWISE)


def test_binary_operators_round_once():
    x = numbers(2.0**60)
    other = np.roll(x, 12_345)
    for operator, reference in (("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply), ("Div", np.divide)):
        with np.errstate(all="ignore"):
            exact = reference(x.astype(np.float64), other.astype(np.float64))
        got = program(f"{operator}(x, other)", x.shape, {"other": other})(x)
        assert excess(got, exact, PRIMITIVES["binary"]).max() <= 0, operator


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def log_softmax(z: np.ndarray) -> np.ndarray:
    z = z - z.max(-1, keepdims=True)
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


SCALE, SHIFT = (np.random.default_rng(seed).uniform(0.5, 1.5, 16).astype(np.float32) for seed in (1, 2))


def layer_normalization(z: np.ndarray) -> np.ndarray:
    centred = z - z.mean(-1, keepdims=True)
    return centred / np.sqrt(z.var(-1, keepdims=True) + single(1e-5)) * SCALE.astype(np.float64) + SHIFT


def batch_normalization(z: np.ndarray) -> np.ndarray:
    scale, shift = (one.astype(np.float64).reshape(1, -1, 1, 1) for one in (SCALE, SHIFT))
    return (z - shift) / np.sqrt(scale + single(1e-5)) * scale + shift


def lrn(z: np.ndarray) -> np.ndarray:
    squares = np.pad(z**2, ((0, 0), (2, 2), (0, 0), (0, 0)))
    sums = sum(squares[:, place : place + z.shape[1]] for place in range(5))
    return z / (2 + single(0.01) / 5 * sums) ** single(0.6)


WIDE: Mapping[str, tuple[str, tuple[int, ...], Reference]] = {
    "softmax": ("Softmax(x)", (128, 37), softmax),
    "log_softmax": ("LogSoftmax(x)", (128, 37), log_softmax),
    "layer_normalization": ("LayerNormalization(x, scale, shift)", (128, 16), layer_normalization),
    "batch_normalization": ("BatchNormalization(x, scale, shift, shift, scale)", (2, 16, 9, 9), batch_normalization),
    "lrn": ("LRN<size = 5, alpha = 0.01, beta = 0.6, bias = 2.0>(x)", (2, 16, 9, 9), lrn),
    "average_pooling": ("GlobalAveragePool(x)", (2, 16, 31, 31), lambda z: z.mean((2, 3), keepdims=True)),
}


@pytest.mark.parametrize("magnitude", [0.01, 1, 10, 80])
@pytest.mark.parametrize("name", WIDE)
def test_errors_of_sums_and_normalisations_stay_within_what_is_stated(name, magnitude):
    text, shape, reference = WIDE[name]
    x = (magnitude * np.random.default_rng(3).normal(size=shape)).astype(np.float32)
    exact = reference(x.astype(np.float64))
    constants = {key: value for key, value in (("scale", SCALE), ("shift", SHIFT)) if f" {key}" in text}
    got = program(text, shape, constants)(x)
    assert excess(got, exact, PRIMITIVES[name], max(1.0, float(np.abs(exact).max()))).max() <= 0


NANS = (("relu", "Relu(x)"), *((name, text) for name, (text, _) in ROWS.items() if name != "relu"))


@pytest.mark.parametrize(("name", "text"), NANS)
def test_a_nan_stays_unless_the_table_says_that_it_may_be_lost(name, text):
    constants = {key: np.float32(CONSTANTS[key]) for key in CONSTANTS if f" {key}" in text}
    got = program(text, (16,), constants)(np.full(16, np.nan, np.float32))
    assert ELTWISE[name].loses_nan or np.isnan(got).all()


@pytest.mark.parametrize("operator", ["Log", "Softplus", "Mish", "LogSoftmax"])
def test_what_is_less_accurate_than_claimed_is_refused_and_taken_where_it_is_allowed(operator):
    text = (
        f'<ir_version: 10, opset_import: ["" : 24]> g (float[4] x) => (float[4] y) {{ n = Neg(x) y = {operator}(n) }}'
    )
    model = onnx.parser.parse_model(text)
    reason = graft.plan(model, ["onednn", "llvm"])["y"].reasons["onednn"]
    name = {"Log": "log", "Softplus": "soft_relu", "Mish": "mish", "LogSoftmax": "log_softmax"}[operator]
    stated = {**ELTWISE, **PRIMITIVES}[name]
    assert str(reason) == f"accuracy: {operator} is computed within {stated}, and {LIMIT} is asked for"
    allowed = graft.plan(model, ["onednn"], policy=Policy(allow_inaccurate=(f"onednn:{operator}",)))
    assert allowed["y"].backend == "onednn"


def test_the_logarithm_near_one_and_softplus_far_below_zero_are_right_by_default():
    text = '<ir_version: 10, opset_import: ["" : 24]> g (float[2] x) => (float[2] y) { s = Softplus(x) y = Sqrt(s) }'
    got = graft.compile(onnx.parser.parse_model(text))(np.array([-20, -60], np.float32))
    np.testing.assert_allclose(got, np.exp([-10.0, -30.0]), rtol=1e-5)


def test_an_inaccurate_activation_behind_a_product_is_refused_unless_it_is_allowed():
    text = """<ir_version: 10, opset_import: ["" : 24]> g (float[2,4] x) => (float[2,3] y)
    <float[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12}> { m = MatMul(x, w) y = Mish(m) }"""
    model = onnx.parser.parse_model(text)
    assert graft.plan(model, ["onednn", "llvm"])["y"].backend == "llvm"
    allowed = graft.plan(model, ["onednn", "llvm"], policy=Policy(allow_inaccurate=("Mish",)))
    assert allowed["y"].composite == "onednn.matmul_activation"


def test_allowing_an_unknown_operator_is_an_error():
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 24]> g (float[4] x) => (float[4] y) { y = Log(x) }'
    )
    with pytest.raises(GraftError) as caught:
        graft.plan(model, ["onednn", "llvm"], policy=Policy(allow_inaccurate=("onednn:Lok",)))
    assert caught.value.message == "the model has no operator 'Lok'; did you mean 'Log'?"
