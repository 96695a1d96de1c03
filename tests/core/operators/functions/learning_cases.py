"""Operators of ``ai.onnx.ml``."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from tests.core.operators.functions.case import Cases

CASES = Cases("ai.onnx.ml", 4)
node, add, random = CASES.node, CASES.add, CASES.random
floats, unsigned, signed = CASES.floats, CASES.unsigned, CASES.signed

x = floats(7, 4)
add("Scaler", node("Scaler", ["x"], ["y"], offset=[0.1, 0.2, 0.3, 0.4], scale=[1.0, 2.0, 3.0, 4.0]), {"x": x}, ["y"])
add("Scaler int", node("Scaler", ["x"], ["y"], offset=[0.1], scale=[2.0]), {"x": np.arange(8).reshape(2, 4)}, ["y"])
for n in "MAX", "L1", "L2":
    add(
        "Normalizer " + n,
        node("Normalizer", ["x"], ["y"], norm=n),
        {"x": np.abs(np.vstack([x, np.zeros((1, 4), np.float32)]))},
        ["y"],
    )
for n in "MAX", "L1", "L2":
    add("Normalizer neg " + n, node("Normalizer", ["x"], ["y"], norm=n), {"x": x}, ["y"])
add("Binarizer", node("Binarizer", ["x"], ["y"], threshold=0.1), {"x": x}, ["y"])
xn = x.copy()
xn[1, 2] = np.nan
add(
    "Imputer",
    node("Imputer", ["x"], ["y"], imputed_value_floats=[1.0, 2.0, 3.0, 4.0], replaced_value_float=float("nan")),
    {"x": xn},
    ["y"],
)
add(
    "Imputer int",
    node("Imputer", ["x"], ["y"], imputed_value_int64s=[9], replaced_value_int64=2),
    {"x": np.arange(8).reshape(2, 4)},
    [("y", TensorProto.INT64)],
)
add(
    "OneHotEncoder",
    node("OneHotEncoder", ["x"], ["y"], cats_int64s=[1, 3, 5]),
    {"x": np.arange(6).reshape(2, 3)},
    ["y"],
)
add(
    "LabelEncoder",
    node("LabelEncoder", ["x"], ["y"], keys_int64s=[1, 3, 5], values_floats=[0.1, 0.2, 0.3], default_float=7.0),
    {"x": np.arange(6).reshape(2, 3)},
    ["y"],
)
add(
    "FeatureVectorizer",
    node("FeatureVectorizer", ["a", "b"], ["y"], inputdimensions=[4, 2]),
    {"a": x, "b": floats(7, 2)},
    ["y"],
)
add(
    "ArrayFeatureExtractor",
    node("ArrayFeatureExtractor", ["x", "i"], ["y"]),
    {"x": x},
    ["y"],
    constants={"i": np.array([2, 0])},
)
add(
    "LinearRegressor",
    node("LinearRegressor", ["x"], ["y"], coefficients=floats(8).tolist(), intercepts=[0.1, 0.2], targets=2),
    {"x": x},
    ["y"],
    symbols={"x": ("N", None)},
)
for pt in "NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO":
    add(
        "LinearClassifier3 " + pt,
        node(
            "LinearClassifier",
            ["x"],
            ["l", "y"],
            coefficients=floats(12).tolist(),
            intercepts=[0.1, 0.2, 0.3],
            classlabels_ints=[3, 5, 7],
            post_transform=pt,
        ),
        {"x": x},
        [("l", TensorProto.INT64), "y"],
    )
    add(
        "LinearClassifier2 " + pt,
        node(
            "LinearClassifier",
            ["x"],
            ["l", "y"],
            coefficients=floats(8).tolist(),
            intercepts=[0.1, 0.2],
            classlabels_ints=[3, 5],
            post_transform=pt,
            multi_class=1,
        ),
        {"x": x},
        [("l", TensorProto.INT64), "y"],
    )
for pt in "NONE", "LOGISTIC", "SOFTMAX":
    add(
        "LinearClassifier1 " + pt,
        node(
            "LinearClassifier",
            ["x"],
            ["l", "y"],
            coefficients=floats(4).tolist(),
            intercepts=[0.1],
            classlabels_ints=[3, 5],
            post_transform=pt,
        ),
        {"x": x},
        [("l", TensorProto.INT64), "y"],
    )


def forest(
    *, kind: str = "target", targets: int = 1, modes: tuple[str, ...] = ("BRANCH_LEQ",), positive: bool = False,
    missing: bool = False, levels: int = 3, leaves: float = 0.2, boosted: bool = False,
) -> dict[str, list[Any]]:  # fmt: skip
    """Return the attributes of three random trees; ``boosted`` ones have weights of one target each."""
    rows: list[dict[str, Any]] = []
    weights: list[dict[str, Any]] = []

    def grow(tree: int, first: int, depth: int) -> int:
        number = len(rows) - first
        leaf = depth == 0 or random.random() < leaves
        row: dict[str, Any] = {
            "treeids": tree, "nodeids": number, "featureids": int(random.integers(0, 4)),
            "values": float(random.standard_normal() * 0.4), "modes": "LEAF" if leaf else str(random.choice(modes)),
            "truenodeids": 0, "falsenodeids": 0,
            "missing_value_tracks_true": int(missing and random.random() < 0.5),
        }  # fmt: skip
        rows.append(row)
        if leaf:
            for target in [tree % targets] if boosted else range(targets):
                weight = abs(random.standard_normal()) / 6 if positive else random.standard_normal()
                weights.append({"ids": target, "treeids": tree, "nodeids": number, "weights": float(weight)})
        else:
            row["truenodeids"], row["falsenodeids"] = grow(tree, first, depth - 1), grow(tree, first, depth - 1)
        return number

    for tree in range(3):
        grow(tree, len(rows), levels)
    nodes = {f"nodes_{name}": [row[name] for row in rows] for name in rows[0]}
    return nodes | {f"{kind}_{name}": [row[name] for row in weights] for name in weights[0]}


xs = floats(20, 4)
for ag in "SUM", "AVERAGE", "MIN", "MAX":
    add(
        "TreeReg " + ag,
        node("TreeEnsembleRegressor", ["x"], ["y"], n_targets=1, aggregate_function=ag, base_values=[0.5], **forest()),
        {"x": xs},
        ["y"],
        symbols={"x": ("N", None)},
    )
xm = xs.copy()
xm[3:9, 1] = np.nan
add(
    "TreeReg modes",
    node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        n_targets=2,
        **forest(modes=("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE", "BRANCH_EQ", "BRANCH_NEQ"), targets=2),
    ),
    {"x": xs},
    ["y"],
)
add(
    "TreeReg missing",
    node("TreeEnsembleRegressor", ["x"], ["y"], n_targets=1, **forest(missing=True)),
    {"x": xm},
    ["y"],
)
for pt in "NONE", "LOGISTIC", "SOFTMAX":
    add(
        "TreeCls3 " + pt,
        node(
            "TreeEnsembleClassifier",
            ["x"],
            ["l", "y"],
            classlabels_int64s=[2, 4, 6],
            post_transform=pt,
            **forest(targets=3, kind="class"),
        ),
        {"x": xs},
        [("l", TensorProto.INT64), "y"],
    )
    add(
        "TreeCls1 " + pt,
        node(
            "TreeEnsembleClassifier",
            ["x"],
            ["l", "y"],
            classlabels_int64s=[2, 4],
            post_transform=pt,
            **forest(kind="class"),
        ),
        {"x": xs},
        [("l", TensorProto.INT64), "y"],
    )
    add(
        "TreeCls1 pos " + pt,
        node(
            "TreeEnsembleClassifier",
            ["x"],
            ["l", "y"],
            classlabels_int64s=[2, 4],
            post_transform=pt,
            **forest(kind="class", positive=True),
        ),
        {"x": xs},
        [("l", TensorProto.INT64), "y"],
    )
    add(
        "TreeCls1 base " + pt,
        node(
            "TreeEnsembleClassifier",
            ["x"],
            ["l", "y"],
            classlabels_int64s=[2, 4],
            post_transform=pt,
            base_values=[0.3],
            **forest(kind="class"),
        ),
        {"x": xs},
        [("l", TensorProto.INT64), "y"],
    )
for k in "LINEAR", "POLY", "RBF", "SIGMOID":
    add(
        "SVMReg " + k,
        node(
            "SVMRegressor",
            ["x"],
            ["y"],
            kernel_type=k,
            kernel_params=[0.3, 0.2, 3.0],
            n_supports=3,
            support_vectors=floats(12).tolist(),
            coefficients=floats(3).tolist(),
            rho=[0.4],
        ),
        {"x": x},
        ["y"],
    )
add(
    "SVMCls lin",
    node(
        "SVMClassifier",
        ["x"],
        ["l", "y"],
        kernel_type="LINEAR",
        kernel_params=[0.0, 0.0, 0.0],
        coefficients=floats(12).tolist(),
        rho=[0.4],
        classlabels_ints=[1, 2, 3],
        post_transform="NONE",
    ),
    {"x": x},
    [("l", TensorProto.INT64), "y"],
)
for kind, counts, chances in (
    ("RBF", [2, 3], False), ("RBF", [2, 3], True), ("SIGMOID", [2, 1, 3], False), ("POLY", [1, 2, 2, 1], True),
):  # fmt: skip
    classes, vectors = len(counts), sum(counts)
    pairs = classes * (classes - 1) // 2
    fitted = {"prob_a": (-abs(floats(pairs)) - 1).tolist(), "prob_b": floats(pairs).tolist()} if chances else {}
    add(
        f"SVMCls {kind} {classes} classes{' with probabilities' if chances else ''}",
        node(
            "SVMClassifier",
            ["x"],
            ["l", "y"],
            kernel_type=kind,
            kernel_params=[0.3, 0.2, 2.0],
            coefficients=floats((classes - 1) * vectors).tolist(),
            support_vectors=floats(4 * vectors).tolist(),
            vectors_per_class=counts,
            rho=(0.3 * floats(pairs)).tolist(),
            classlabels_ints=list(range(3, 3 + classes)),
            **fitted,
        ),
        {"x": x},
        [("l", TensorProto.INT64), "y"],
    )

boosted = forest(targets=3, kind="class", boosted=True)
add(
    "TreeCls3 boosted",
    node("TreeEnsembleClassifier", ["x"], ["l", "y"], classlabels_int64s=[2, 4, 6], **boosted),
    {"x": xs},
    [("l", TensorProto.INT64), "y"],
    symbols={"x": ("N", None)},
)
add(
    "TreeReg of few nodes",
    node("TreeEnsembleRegressor", ["x"], ["y"], n_targets=1, **forest(levels=12, leaves=0.4)),
    {"x": xs},
    ["y"],
)

doubles = forest(modes=("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT"))
near = random.choice(doubles["nodes_values"], (20, 4)).astype(np.float32) + random.integers(-1, 2, (20, 4)) * 1e-11
add(
    "TreeReg of doubles beside its splits",
    node("TreeEnsembleRegressor", ["x"], ["y"], n_targets=1, **doubles),
    {"x": near},
    ["y"],
)

votes = forest(targets=4, kind="class", boosted=True)
add(
    "TreeCls4 without votes for the last",
    node(
        "TreeEnsembleClassifier",
        ["x"],
        ["l", "y"],
        classlabels_int64s=[2, 4, 6, 8],
        post_transform="SOFTMAX_ZERO",
        **votes | {"class_weights": [-abs(one) for one in votes["class_weights"]]},
    ),
    {"x": xs},
    [("l", TensorProto.INT64), "y"],
)
