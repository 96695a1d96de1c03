"""Derivatives of analytic operators beside complex steps, which lose no digits to differences.

``Im f(x + i h d) / h`` is the derivative along ``d`` up to ``h^2`` (Squire and Trapp, SIAM Review 40, 1998): with h of
1e-20 it is exact to the last bits of float64. The functions are NumPy's, of complex numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

import graft

Function = Callable[..., np.ndarray]
STEP, BOUND = 1e-20, 1e-10
IN_SINGLES = {"Attention": 1e-7}
"""The bounds of operators whose functions by ONNX have constants in float32: here the root of the scale."""


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.real.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def _layer_norm(x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    return np.asarray(centred / deviation * scale + bias)


def _rms_norm(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return np.asarray(x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-5) * scale)


def _correlated(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(x, weights.shape[2:], axis=(2, 3))
    return np.asarray(np.einsum("nchwij,mcij->nmhw", windows, weights))


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.asarray(_softmax(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])) @ v)


UNARY: dict[str, Function] = {
    "Exp": np.exp, "Log": np.log, "Sqrt": np.sqrt, "Reciprocal": lambda x: 1 / x, "Neg": np.negative,
    "Sin": np.sin, "Cos": np.cos, "Tan": np.tan, "Asin": np.arcsin, "Acos": np.arccos, "Atan": np.arctan,
    "Sinh": np.sinh, "Cosh": np.cosh, "Tanh": np.tanh, "Asinh": np.arcsinh, "Acosh": np.arccosh,
    "Atanh": np.arctanh, "Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Softplus": lambda x: np.log(1 + np.exp(x)),
    "Swish": lambda x: x / (1 + np.exp(-x)), "Mish": lambda x: x * np.tanh(np.log(1 + np.exp(x))), "Softmax": _softmax,
    "LogSoftmax": lambda x: np.log(_softmax(x)), "ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceProd": np.prod,
    "ReduceSumSquare": lambda x: np.sum(x**2), "ReduceLogSum": lambda x: np.log(np.sum(x)),
    "ReduceLogSumExp": lambda x: np.log(np.sum(np.exp(x))), "ReduceL2": lambda x: np.sqrt(np.sum(x**2)),
}  # fmt: skip
ROWS, MATRIX, HEADS = (3, 5), (5, 4), (2, 2, 6, 4)
SEVERAL: dict[str, tuple[list[tuple[int, ...]], Function]] = {
    "Add": ([ROWS, (5,)], np.add), "Sub": ([ROWS, (3, 1)], np.subtract), "Mul": ([ROWS, (5,)], np.multiply),
    "Div": ([ROWS, (5,)], np.divide), "Pow": ([ROWS, ROWS], np.power), "MatMul": ([ROWS, MATRIX], np.matmul),
    "Gemm": ([ROWS, MATRIX, (4,)], lambda a, b, c: a @ b + c), "Sum": ([ROWS, (5,), ROWS], lambda a, b, c: a + b + c),
    "LayerNormalization": ([ROWS, (5,), (5,)], _layer_norm), "RMSNormalization": ([ROWS, (5,)], _rms_norm),
    "Conv": ([(2, 3, 6, 6), (4, 3, 3, 3)], _correlated), "Attention": ([HEADS] * 3, _attention),
}  # fmt: skip
CASES = {name: ([ROWS], function) for name, function in UNARY.items()} | SEVERAL
ABOVE_ONE = frozenset({"Acosh"})


@pytest.mark.parametrize("operator", CASES)
def test_a_derivative_is_that_of_a_complex_step(operator: str) -> None:
    shapes, function = CASES[operator]
    rng, names = np.random.default_rng(3), "abc"[: len(shapes)]
    low = 1.2 if operator in ABOVE_ONE else 0.2
    feeds = {name: rng.uniform(low, low + 0.7, shape) for name, shape in zip(names, shapes, strict=True)}
    weights = rng.uniform(-1, 1, np.shape(function(*feeds.values())))
    given = [*zip(names, shapes, strict=True), ("g", weights.shape)]
    inputs = ", ".join(f"double{list(shape) or ''} {name}" for name, shape in given)
    kept = " <keepdims = 0>" if operator.startswith("Reduce") else ""
    model = onnx.parser.parse_model(
        f"""<ir_version: 11, opset_import: ["" : 24]> g ({inputs}) => (double loss) {{
            y = {operator}{kept} ({", ".join(names)}) p = Mul (y, g) loss = ReduceSum <keepdims = 0> (p) }}"""
    )
    gradients = graft.compile(graft.grad(model, wrt=list(names), outputs=[]), threads=1, cache=False)
    found = gradients.run({**feeds, "g": weights})
    for number, name in enumerate(names):
        gradient = np.asarray(found[f"{name}_grad"])
        way = rng.uniform(-1, 1, feeds[name].shape)
        moved = [array + 1j * STEP * way if place == number else array for place, array in enumerate(feeds.values())]
        wanted = float(np.sum(weights * function(*moved)).imag / STEP)
        scale = float(np.sum(np.abs(gradient * way)))
        assert abs(float(np.sum(gradient * way)) - wanted) <= IN_SINGLES.get(operator, BOUND) * scale, (operator, name)
