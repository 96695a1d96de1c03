"""Activations, normalisations and fused products of ``com.microsoft``."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from tests.core.operators.functions.case import Cases

CASES = Cases("com.microsoft", 1)
node, add, random = CASES.node, CASES.add, CASES.random
floats, unsigned, signed = CASES.floats, CASES.unsigned, CASES.signed

for op in "Gelu", "FastGelu", "QuickGelu":
    add(op, node(op, ["x"], ["y"]), {"x": floats(2, 3, 8)}, ["y"])
add("BiasGelu", node("BiasGelu", ["x", "b"], ["y"]), {"x": floats(2, 3, 8), "b": floats(8)}, ["y"])
add(
    "FastGelu b",
    node("FastGelu", ["x", "b"], ["y"]),
    {"x": floats(2, 3, 8), "b": floats(8)},
    ["y"],
    symbols={"x": ("B", None, None)},
)
add(
    "LN12",
    node("LayerNormalization", ["x", "g", "b"], ["y"], domain="", axis=-1, epsilon=1e-5),
    {"x": floats(2, 3, 8), "g": floats(8), "b": floats(8)},
    ["y"],
    opset=12,
)
add(
    "SLN",
    node("SimplifiedLayerNormalization", ["x", "g"], ["y"], domain="", axis=-1, epsilon=1e-5),
    {"x": floats(2, 3, 8), "g": floats(8)},
    ["y"],
    opset=17,
)
add(
    "SkipLN",
    node("SkipLayerNormalization", ["x", "s", "g", "b", "c"], ["y", "", "", "z"], epsilon=1e-3),
    {"x": floats(2, 3, 8), "s": floats(2, 3, 8), "g": floats(8), "b": floats(8), "c": floats(8)},
    ["y", "z"],
)
add(
    "SkipLN bcast",
    node("SkipLayerNormalization", ["x", "s", "g"], ["y"]),
    {"x": floats(2, 3, 8), "s": floats(1, 3, 8), "g": floats(8)},
    ["y"],
    symbols={"x": ("B", None, None)},
)
add(
    "SkipSLN",
    node("SkipSimplifiedLayerNormalization", ["x", "s", "g", "c"], ["y", "", "", "z"], epsilon=1e-3),
    {"x": floats(2, 3, 8), "s": floats(2, 3, 8), "g": floats(8), "c": floats(8)},
    ["y", "z"],
)
ids = random.integers(0, 10, (2, 5)).astype(np.int32)
seg = random.integers(0, 2, (2, 5)).astype(np.int32)
mask = np.array([[1] * 5, [1, 1, 1, 0, 0]], np.int32)
em = {"we": floats(10, 8), "pe": floats(12, 8), "se": floats(2, 8), "g": floats(8), "b": floats(8)}
add(
    "Embed",
    node("EmbedLayerNormalization", ["ids", "seg", "we", "pe", "se", "g", "b", "m"], ["y", "mi", "es"], epsilon=1e-5),
    {"ids": ids, "seg": seg, "m": mask},
    ["y", ("mi", TensorProto.INT32), "es"],
    constants=em,
)
add(
    "Embed2",
    node("EmbedLayerNormalization", ["ids", "", "we", "pe", "", "g", "b"], ["y", "mi"]),
    {"ids": ids},
    ["y", ("mi", TensorProto.INT32)],
    constants=em,
    symbols={"ids": ("B", "S")},
)
for a in 0, 1:
    for b in 0, 1:
        left, right = floats(2, 3, *((4, 5) if a else (5, 4))), floats(2, 3, *((6, 4) if b else (4, 6)))
        add(
            f"FusedMatMul {a}{b}",
            node("FusedMatMul", ["x", "w"], ["y"], transA=a, transB=b, alpha=0.5),
            {"x": left, "w": right},
            ["y"],
        )
add(
    "FusedMatMul batch",
    node("FusedMatMul", ["x", "w"], ["y"], transBatchA=1),
    {"x": floats(5, 2, 3, 4), "w": floats(2, 3, 4, 6)},
    ["y"],
)
add(
    "FusedMatMul both",
    node("FusedMatMul", ["x", "w"], ["y"], transBatchA=1, transBatchB=1, transA=1, transB=1),
    {"x": floats(4, 2, 3, 5), "w": floats(6, 2, 3, 4)},
    ["y"],
)
add(
    "TransposeMatMul",
    node("TransposeMatMul", ["x", "w"], ["y"], transB=1),
    {"x": floats(5, 4), "w": floats(6, 4)},
    ["y"],
)
for act, kw in (
    ("Relu", {}),
    ("LeakyRelu", {"activation_alpha": 0.1}),
    ("Tanh", {}),
    ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
    ("Sigmoid", {}),
    ("Selu", {"activation_alpha": 1.5, "activation_gamma": 1.2}),
):
    add(
        "FusedGemm " + act,
        node("FusedGemm", ["x", "w", "c"], ["y"], transB=1, alpha=0.7, activation=act, **kw),
        {"x": floats(5, 4), "w": floats(6, 4), "c": floats(6)},
        ["y"],
    )
for act, p in (
    ("Relu", None),
    ("LeakyRelu", [0.1]),
    ("Clip", [-0.2, 0.4]),
    ("HardSigmoid", [0.2, 0.5]),
    ("Tanh", None),
):
    kw = {"activation_params": p} if p else {}
    add(
        "FusedConv " + act,
        node(
            "FusedConv",
            ["x", "w", "b"],
            ["y"],
            activation=act,
            pads=[1, 1, 1, 1],
            strides=[2, 2],
            group=2,
            kernel_shape=[3, 3],
            **kw,
        ),
        {"x": floats(1, 4, 9, 9)},
        ["y"],
        constants={"w": floats(8, 2, 3, 3), "b": floats(8)},
    )
add(
    "FusedConv Z",
    node("FusedConv", ["x", "w", "b", "z"], ["y"], activation="Relu", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    {"x": floats(1, 4, 9, 9), "z": floats(1, 8, 9, 9)},
    ["y"],
    constants={"w": floats(8, 4, 3, 3), "b": floats(8)},
)
add(
    "NhwcMaxPool u8",
    node("NhwcMaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
    {"x": unsigned(1, 9, 9, 4)},
    [("y", TensorProto.UINT8)],
)
add(
    "NhwcMaxPool i8",
    node("NhwcMaxPool", ["x"], ["y"], kernel_shape=[2, 2]),
    {"x": signed(1, 9, 9, 4)},
    [("y", TensorProto.INT8)],
)
add("Inverse", node("Inverse", ["x"], ["y"]), {"x": floats(2, 3, 3) + 2 * np.eye(3, dtype=np.float32)}, ["y"])
add("Inverse1", node("Inverse", ["x"], ["y"]), {"x": floats(2, 1, 1) + 2}, ["y"])
add("Inverse4", node("Inverse", ["x"], ["y"]), {"x": floats(4, 4) + 2 * np.eye(4, dtype=np.float32)}, ["y"])
add("Trilu", node("Trilu", ["x"], ["y"], upper=0), {"x": floats(2, 4, 4)}, ["y"])
add(
    "Pad",
    node("Pad", ["x", "p"], ["y"], mode="reflect"),
    {"x": floats(4, 4)},
    ["y"],
    constants={"p": np.array([1, 1, 0, 2], np.int64)},
)
add(
    "ExpandDims",
    node("ExpandDims", ["x", "p"], ["y"]),
    {"x": floats(4, 4)},
    ["y"],
    constants={"p": np.array(-1, np.int32)},
)
add(
    "Range",
    node("Range", ["a", "b"], ["y"]),
    {},
    [("y", TensorProto.INT64)],
    constants={"a": np.array(1, np.int64), "b": np.array(5, np.int64)},
)
