"""Ensembles of decision trees over ONNX's own operators: every row walks down all trees at once, level by level."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import TensorProto, helper

from graft.core.operators.definition.function_body import Body
from graft.core.operators.functions.machine_learning import add, class_labels, labelled, transformed

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
"""Comparisons in the order of their numbers in TreeEnsemble."""
COMPARISONS = ("LessOrEqual", "Less", "GreaterOrEqual", "Greater", "Equal", "Equal")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
MOST_LEVELS = 256
FULL = 4
"""Places of full trees for each node at the most: more would leave the caches."""


@dataclass(frozen=True)
class Trees:
    """Nodes of all trees in arrays; a leaf leads to itself. ``weights`` are ``[node, target]``."""

    feature: np.ndarray
    split: np.ndarray
    mode: np.ndarray
    true: np.ndarray
    false: np.ndarray
    missing: np.ndarray
    roots: np.ndarray
    weights: np.ndarray

    @property
    def levels(self) -> int:
        """The comparisons from a root to the farthest leaf, `MOST_LEVELS` where there is a cycle."""
        front, count = np.unique(self.roots), 0
        while count < MOST_LEVELS:
            inner = front[(self.true[front] != front) | (self.false[front] != front)]
            if not inner.size:
                break
            front = np.unique(np.concatenate([self.true[inner], self.false[inner]]))
            count += 1
        return count


# ---- Reading attributes -------------------------------------------------------------------------------------------


def _array(f: Body, name: str, dtype: type) -> np.ndarray:
    """Return a list of an attribute as an array, also where it stands in a tensor of its own name."""
    tensor = f.attribute(f"{name}_as_tensor")
    if tensor is None:
        tensor = f.attribute(name)
    if isinstance(tensor, onnx.TensorProto):
        return onnx.numpy_helper.to_array(tensor).reshape(-1).astype(dtype)
    return np.array([] if tensor is None else tensor, dtype)


def _floats(f: Body, name: str) -> np.ndarray:
    """Return a list of an attribute in the type that is computed in: float64 of inputs of that, else float32."""
    return _array(f, name, np.float64 if f.dtype(f.input(0)) == TensorProto.DOUBLE else np.float32)


def _numbered(f: Body, weights: str, targets: int, empty: float) -> Trees:
    """Read the form in which nodes have a tree and a number in it; ``weights`` is what their weights are called."""
    trees, numbers = _array(f, "nodes_treeids", np.int64), _array(f, "nodes_nodeids", np.int64)
    place = {pair: index for index, pair in enumerate(zip(trees.tolist(), numbers.tolist(), strict=True))}
    modes = f.attribute("nodes_modes", [])
    leaf = np.array([mode == "LEAF" for mode in modes])
    unknown = sorted({mode for mode in modes if mode != "LEAF" and mode not in MODES})
    f.require(not unknown, f"nodes_modes holds {', '.join(unknown)}")
    own = np.arange(len(modes))

    def ends(name: str) -> np.ndarray:
        pairs = zip(trees.tolist(), _array(f, name, np.int64).tolist(), strict=True)
        found = np.array([place.get(pair, -1) for pair in pairs], np.int64)
        f.require(bool((found[~leaf] >= 0).all()), f"{name} names a node that is not there")
        return np.where(leaf, own, found)

    count = len(modes)
    ids, given = _array(f, f"{weights}_ids", np.int64), _floats(f, f"{weights}_weights")
    table = np.full((count, targets), empty, given.dtype)
    rows = zip(_array(f, f"{weights}_treeids", np.int64), _array(f, f"{weights}_nodeids", np.int64), strict=True)
    at = np.array([place[int(tree), int(node)] for tree, node in rows], np.int64)
    table[at, ids] = 0.0
    np.add.at(table, (at, ids), given)
    missing = _array(f, "nodes_missing_value_tracks_true", np.int64)
    first = np.unique(trees, return_index=True)[1]
    return Trees(
        np.where(leaf, 0, _array(f, "nodes_featureids", np.int64)),
        _floats(f, "nodes_values"),
        np.array([MODES.index(mode) if mode in MODES else -1 for mode in modes], np.int64),
        ends("nodes_truenodeids"),
        ends("nodes_falsenodeids"),
        missing if missing.size else np.zeros(count, np.int64),
        np.sort(first),
        table,
    )


def _of_leaves(f: Body, targets: int, empty: float) -> Trees:
    """Read the form of TreeEnsemble, in which leaves are apart; they come behind the nodes here."""
    count = len(f.attribute("nodes_featureids"))
    ids, weights = _array(f, "leaf_targetids", np.int64), _floats(f, "leaf_weights")
    leaves = len(ids)
    modes = _array(f, "nodes_modes", np.int64)
    f.require(bool((modes < len(MODES)).all()), "nodes_modes holds BRANCH_MEMBER, which is not lowered")

    def ends(side: str) -> np.ndarray:
        number, is_leaf = _array(f, f"nodes_{side}nodeids", np.int64), _array(f, f"nodes_{side}leafs", np.int64)
        return np.concatenate([np.where(is_leaf == 1, number + count, number), count + np.arange(leaves)])

    def padded(array: np.ndarray) -> np.ndarray:
        return np.concatenate([array, np.zeros(leaves, array.dtype)])

    table = np.full((count + leaves, targets), empty, weights.dtype)
    table[count + np.arange(leaves), ids] = weights
    missing = _array(f, "nodes_missing_value_tracks_true", np.int64)
    return Trees(
        padded(_array(f, "nodes_featureids", np.int64)),
        padded(_floats(f, "nodes_splits")),
        np.concatenate([modes, np.full(leaves, -1)]),
        ends("true"),
        ends("false"),
        padded(missing if missing.size else np.zeros(count, np.int64)),
        _array(f, "tree_roots", np.int64),
        table,
    )


# ---- Walking ------------------------------------------------------------------------------------------------------


def _walked(f: Body, trees: Trees) -> str:
    """Return the weights ``[row, tree, target]``, of one target ``[row, tree]``, of the leaves that the rows come to.

    A place is the number of a node among those of its level, twice that of its parent and one more on the true side,
    while not many more places than nodes come of that; else among all nodes, which a table of both ends tells.
    """
    levels, count = trees.levels, len(trees.roots)
    f.require(levels < MOST_LEVELS, f"its trees have cycles, or {MOST_LEVELS} levels and more")
    x = f.cast(f.input(0), helper.np_dtype_to_tensor_dtype(trees.split.dtype))
    ends, is_full = np.stack([trees.false, trees.true], axis=-1), count << levels <= FULL * len(trees.feature)
    modes = sorted(set(trees.mode.tolist()) - {-1})
    nodes, at = trees.roots, ""  # what places stand for, and those of the rows: at first all at the roots

    def of_places(table: np.ndarray) -> str:
        own = f.constant(table[nodes])
        return f("Gather", own, at) if at else own

    for _ in range(levels):
        feature = of_places(trees.feature.astype(np.int64))
        value = f("GatherElements", x, feature, axis=1) if at else f("Gather", x, feature, axis=1)
        goes = _compared(f, value, of_places(trees.split), modes, of_places(trees.mode) if len(modes) > 1 else "")
        if trees.missing.any():
            goes = f("Or", goes, f("And", f("IsNaN", value), of_places(trees.missing.astype(np.bool_))))
        twice = f("Add", at, at) if at else f.constant(2 * np.arange(count))
        at, nodes = f("Add", twice, f.cast(goes, TensorProto.INT64)), ends[nodes].reshape(-1)
        if not is_full:
            at, nodes = f("Gather", f.constant(nodes.astype(np.int64)), at), np.arange(len(ends))
    if not at:
        at = f("Expand", f.constant(np.arange(count)), f.concatenated(f.extent(x, 0), f.ints(count), axis=0))
    weights = trees.weights[nodes]
    return f("Gather", f.constant(weights[:, 0] if weights.shape[1] == 1 else weights), at)


def _compared(f: Body, value: str, split: str, modes: list[int], mode: str) -> str:
    goes = ""
    for number in modes:
        one = f(COMPARISONS[number], value, split)
        one = f("Not", one) if MODES[number] == "BRANCH_NEQ" else one
        if mode:
            one = f("And", one, f("Equal", mode, f.constant(np.int64(number))))
        goes = f("Or", goes, one) if goes else one
    return goes


def _totals(f: Body, trees: Trees, reduce: str) -> str:
    """Return ``[row, target]``, from a weight for each tree where all have one target, and as many trees each."""
    targets, says = trees.weights.shape[1], trees.weights != 0
    for _ in range(trees.levels):
        says = says | says[trees.true] | says[trees.false]
    only = says[trees.roots].argmax(axis=1)
    each = np.bincount(only, minlength=targets)
    is_apart = reduce == "ReduceSum" and says[trees.roots].sum(axis=1).max() <= 1 and np.ptp(each) == 0
    if targets > 1 and not is_apart:
        return f(reduce, _walked(f, trees), f.ints(1), keepdims=0)
    roots, weights = trees.roots[np.argsort(only, kind="stable")], trees.weights.sum(axis=1, keepdims=True)
    found = _walked(f, replace(trees, roots=roots, weights=weights))
    return f(reduce, f.reshaped(found, 0, targets, len(roots) // targets), f.ints(2), keepdims=0)


def _scores(f: Body, trees: Trees, aggregate: str) -> str:
    """Return ``[row, target]``, with what every row begins with."""
    reduce = {"SUM": "ReduceSum", "AVERAGE": "ReduceSum", "MIN": "ReduceMin", "MAX": "ReduceMax"}
    f.require(aggregate in reduce, f"aggregate_function is {aggregate!r}, where one of {', '.join(reduce)} is expected")
    total = _totals(f, trees, reduce[aggregate])
    if aggregate == "AVERAGE":
        total = f("Div", total, f.like(len(trees.roots), total))
    if aggregate in ("MIN", "MAX"):  # of targets that no leaf reached says nothing
        total = f("Where", f("IsInf", total), f.like(0, total), total)
    base = _floats(f, "base_values")
    return f("Add", total, f.constant(base)) if base.size == trees.weights.shape[1] else total


EMPTY = {"MIN": np.inf, "MAX": -np.inf}
"""The weight of targets that a leaf says nothing about; others count as 0."""


def _regressor(f: Body) -> None:
    aggregate = f.attribute("aggregate_function", "SUM")
    trees = _numbered(f, "target", f.attribute("n_targets", 1), EMPTY.get(aggregate, 0.0))
    scores = transformed(f, _scores(f, trees, aggregate), f.attribute("post_transform", "NONE"))
    f.give(0, f.cast(scores, TensorProto.FLOAT))


def _ensemble(f: Body) -> None:
    aggregate = AGGREGATES[f.attribute("aggregate_function", 1)]
    trees = _of_leaves(f, f.attribute("n_targets", 1), EMPTY.get(aggregate, 0.0))
    scores = transformed(f, _scores(f, trees, aggregate), TRANSFORMS[f.attribute("post_transform", 0)])
    f.give(0, f.cast(scores, f.dtype(f.input(0))))


def _classifier(f: Body) -> None:
    """Weights of one class alone are of two classes: the score of the first is what is left of that of the second."""
    labels = class_labels(f, "classlabels_int64s")
    transform = f.attribute("post_transform", "NONE")
    ids, weights = _array(f, "class_ids", np.int64), _floats(f, "class_weights")
    base = _floats(f, "base_values")
    if len(labels) != 2 or len(set(ids.tolist())) != 1:
        scores = _scores(f, _numbered(f, "class", len(labels), 0.0), "SUM")
        given = transformed(f, scores, transform)
        ranked = given if transform == "SOFTMAX_ZERO" else scores  # in which a class without a vote wins over no other
        labelled(f, f("ArgMax", ranked, axis=1, keepdims=0), labels)
        f.give(1, f.cast(given, TensorProto.FLOAT))
        return
    f.require(int(ids[0]) == 0 or transform != "NONE", "scores of the second class alone are not lowered")
    trees = _numbered(f, "class", 2, 0.0)
    second = _totals(f, replace(trees, weights=trees.weights[:, [int(ids[0])]]), "ReduceSum")
    if base.size:
        second = f("Add", second, f.constant(base[-1:]))
    positive = bool((weights >= 0).all())
    above = f("Greater", f("Squeeze", second, f.ints(1)), f.like(0.5 if positive else 0.0, second))
    labelled(f, f("Cast", above, to=TensorProto.INT64), labels)
    first = f("Sub", f.like(1, second), second) if positive else f("Neg", second)
    if transform == "LOGISTIC":
        first, second = f("Sigmoid", f("Neg", second)), f("Sigmoid", second)
    f.give(1, f.cast(f.concatenated(first, second, axis=1), TensorProto.FLOAT))


add("TreeEnsembleRegressor", _regressor)
add("TreeEnsembleClassifier", _classifier)
add("TreeEnsemble", _ensemble)
