"""Support vector machines of ``ai.onnx.ml``: products with the vectors, a kernel, and a product with coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, combinations

import numpy as np
from onnx import TensorProto

from graft.core.operators.definition.function_body import Body
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
    if f.attribute("support_vectors"):
        _classifier_of_pairs(f)
        return
    labels = class_labels(f, "classlabels_ints")
    x = f.cast(f.input(0), TensorProto.FLOAT)
    factors = np.array(f.attribute("coefficients"), np.float32).reshape(len(labels), -1)
    scores = _kernel(f, x, factors)
    scores = f("Add", scores, f.constant(np.array(f.attribute("rho"), np.float32)[:1]))
    labelled(f, f("ArgMax", scores, axis=1, keepdims=0), labels)
    f.give(1, transformed(f, scores, f.attribute("post_transform", "NONE")))


# ---- One class against another ------------------------------------------------------------------------------------


def _classifier_of_pairs(f: Body) -> None:
    """Each pair of classes has a score, and the class that wins most pairs is the label.

    The scores are the result, of two classes the negated one before it, or what probabilities are made of them.
    """
    labels = class_labels(f, "classlabels_ints")
    counts, factors = f.attribute("vectors_per_class"), np.array(f.attribute("coefficients"), np.float32)
    pairs = list(combinations(range(len(labels)), 2))
    with_chances = bool(f.attribute("prob_a", []))
    f.require(len(counts) == len(labels) > 1, "vectors_per_class says no number for each of two classes or more")
    f.require(len(f.attribute("rho")) == len(pairs), "rho says no number for each pair of classes")
    f.require(
        with_chances or len(pairs) > 1 or factors.min() < 0,
        "coefficients of two classes are all positive, of which the label is another rule's",
    )
    near = _kernel(f, f.cast(f.input(0), TensorProto.FLOAT), _vectors(f, sum(counts)))
    weights = _pair_weights(factors.reshape(-1, sum(counts)), counts, pairs)
    scores = f("Add", f("MatMul", near, f.constant(weights)), f.constant(np.array(f.attribute("rho"), np.float32)))
    labelled(f, f("ArgMax", _votes(f, scores, pairs), axis=1, keepdims=0), labels)
    if not f.wants(1):
        return
    if with_chances:
        scores = _coupled(f, _pair_chances(f, scores), pairs)
    elif len(pairs) == 1:
        scores = f.concatenated(f("Neg", scores), scores, axis=1)
    f.give(1, transformed(f, scores, f.attribute("post_transform", "NONE")))


Pairs = Sequence[tuple[int, int]]


def _pair_weights(factors: np.ndarray, counts: Sequence[int], pairs: Pairs) -> np.ndarray:
    """Return ``[vector, pair]`` of ``[class - 1, vector]``: vectors of either class have the other's row."""
    ends = [0, *accumulate(counts)]
    weights = np.zeros((ends[-1], len(pairs)), np.float32)
    for number, (one, other) in enumerate(pairs):
        for own, row in ((one, other - 1), (other, one)):
            weights[ends[own] : ends[own + 1], number] = factors[row, ends[own] : ends[own + 1]]
    return weights


def _chosen(pairs: Pairs, side: int) -> np.ndarray:
    """Return ``[pair, class]``: 1 for the first or second class of a pair."""
    return np.eye(1 + max(other for _, other in pairs), dtype=np.float32)[[pair[side] for pair in pairs]]


def _votes(f: Body, scores: str, pairs: Pairs) -> str:
    """Return ``[row, class]``: how many pairs each class wins."""
    won = f.cast(f("Greater", scores, f.like(0, scores)), TensorProto.FLOAT)
    lost = f("Sub", f.like(1, won), won)
    first, second = (f.constant(_chosen(pairs, side)) for side in (0, 1))
    return f("Add", f("MatMul", won, first), f("MatMul", lost, second))


def _pair_chances(f: Body, scores: str) -> str:
    """Return ``[row, pair]``: how likely the first class is of two (J. Platt, Probabilistic Outputs for SVMs, 1999)."""
    slope, offset = (f.constant(np.array(f.attribute(name), np.float32)) for name in ("prob_a", "prob_b"))
    chance = f("Sigmoid", f("Neg", f("Add", f("Mul", scores, slope), offset)))
    return f("Clip", chance, f.like(1e-7, chance), f.like(1 - 1e-7, chance))


def _coupled(f: Body, chances: str, pairs: Pairs) -> str:
    """Return ``[row, class]``: probabilities that go with those of pairs.

    By the second method of T.-F. Wu, C.-J. Lin and R. Weng, Probability Estimates for Multi-class Classification by
    Pairwise Coupling, 2004: with Q of the pairs, each step minimises P Q P along one class after another, until P Q P
    and each Q P are nearly equal or 100 steps are done. Rows that are done wait for the others.
    """
    classes = 1 + max(other for _, other in pairs)
    whole = np.zeros((2, len(pairs), classes, classes), np.float32)
    for number, (one, other) in enumerate(pairs):
        whole[0, number, one, other] = whole[1, number, other, one] = 1
    mine, theirs = (f.constant(part.reshape(len(pairs), -1)) for part in whole)
    rest = f("Sub", f.like(1, chances), chances)
    against = f.reshaped(f("Add", f("MatMul", chances, mine), f("MatMul", rest, theirs)), -1, classes, classes)
    own = f("ReduceSumSquare", against, f.ints(1), keepdims=0)
    diagonal = f("Mul", f.unsqueezed(own, 2), f.constant(np.eye(classes, dtype=np.float32)))
    q = f("Sub", diagonal, f("Mul", against, f.swapped(against)))
    rows = [f.reshaped(f.sliced(q, 1, number, number + 1), -1, classes) for number in range(classes)]
    own_parts = [f.sliced(own, 1, number, number + 1) for number in range(classes)]
    units = [f.constant(row[None]) for row in np.eye(classes, dtype=np.float32)]

    def step(p: str) -> tuple[str, str]:
        product = f("Squeeze", f("MatMul", q, f.unsqueezed(p, 2)), f.ints(2))
        total = f("ReduceSum", f("Mul", p, product), f.ints(1))
        distance = f("ReduceMax", f("Abs", f("Sub", product, total)), f.ints(1))
        goes_on = f("Not", f("Less", distance, f.like(0.005 / classes, distance)))
        found = p
        for number in range(classes):
            part, unit = f.sliced(product, 1, number, number + 1), own_parts[number]
            change = f("Div", f("Sub", total, part), unit)
            size = f("Add", change, f.like(1, change))
            added = f("Mul", change, f("Add", f("Mul", change, unit), f.scaled(part, 2.0)))
            total = f("Div", f("Add", total, added), f("Mul", size, size))
            found = f("Div", f("Add", found, f("Mul", change, units[number])), size)
            product = f("Div", f("Add", product, f("Mul", change, rows[number])), size)
        more = f("ReduceMax", f.cast(goes_on, TensorProto.INT32), keepdims=0)
        return f("Where", goes_on, found, p), f.cast(more, TensorProto.BOOL)

    start = f("Expand", f.constant(np.array([[1 / classes]], np.float32)), f("Shape", own))
    return f.loop(max(100, classes), start, step)


add("SVMRegressor", _regressor)
add("SVMClassifier", _classifier)
