"""Support vector machines of ``ai.onnx.ml``: products with the vectors, a kernel, and a product with coefficients."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from graft.core.operators.functions.body import Body
from graft.core.operators.functions.machine_learning import add, class_labels, labelled, transformed


def _kernel(f: Body, x: str, vectors: np.ndarray) -> str:
    """Return ``[row, vector]``: how near rows and vectors are."""
    gamma, constant, degree = f.attribute("kernel_params", [0.0, 0.0, 3.0])
    kind = f.attribute("kernel_type", "LINEAR")
    product = f("MatMul", x, f.constant(np.ascontiguousarray(vectors.T)))
    if kind == "LINEAR":
        return product
    if kind == "RBF":  # exp(-gamma * |x - v|^2)
        squares = f.constant((vectors.astype(np.float64) ** 2).sum(axis=1).astype(np.float32))
        own = f("ReduceSumSquare", x, f.ints(-1))
        distance = f("Sub", f("Add", own, squares), f.scaled(product, 2.0))
        return f("Exp", f.scaled(f("Max", distance, f.like(0, distance)), -gamma))
    f.require(kind in ("POLY", "SIGMOID"), f"kernel_type is {kind!r}")
    inner = f("Add", f.scaled(product, gamma), f.like(constant, product))
    return f("Tanh", inner) if kind == "SIGMOID" else f("Pow", inner, f.like(degree, inner))


def _vectors(f: Body, count: int) -> np.ndarray:
    return np.array(f.attribute("support_vectors"), np.float32).reshape(count, -1)


def _regressor(f: Body) -> None:
    x = f.cast(f.input(0), TensorProto.FLOAT)
    count, factors = f.attribute("n_supports", 0), np.array(f.attribute("coefficients"), np.float32)
    near = _kernel(f, x, _vectors(f, count)) if count else x
    y = f("MatMul", near, f.constant(factors.reshape(-1, 1)))
    y = f("Add", y, f.constant(np.array(f.attribute("rho"), np.float32)[:1]))
    if f.attribute("one_class", 0):
        y = f("Where", f("Greater", y, f.like(0, y)), f.like(1, y), f.like(-1, y))
    f.give(0, transformed(f, y, f.attribute("post_transform", "NONE")))


def _classifier(f: Body) -> None:
    """Without support vectors: a linear model with a row of coefficients per class."""
    f.require(not f.attribute("support_vectors"), "one class against another by support vectors is not lowered")
    labels = class_labels(f, "classlabels_ints")
    x = f.cast(f.input(0), TensorProto.FLOAT)
    factors = np.array(f.attribute("coefficients"), np.float32).reshape(len(labels), -1)
    scores = _kernel(f, x, factors)
    scores = f("Add", scores, f.constant(np.array(f.attribute("rho"), np.float32)[:1]))
    labelled(f, f("ArgMax", scores, axis=1, keepdims=0), labels)
    f.give(1, transformed(f, scores, f.attribute("post_transform", "NONE")))


add("SVMRegressor", _regressor)
add("SVMClassifier", _classifier)
