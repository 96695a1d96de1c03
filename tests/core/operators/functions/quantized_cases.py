"""Operators of ``com.microsoft`` on quantised tensors."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from tests.core.operators.functions.case import Cases

CASES = Cases("com.microsoft", 3)
node, add, random = CASES.node, CASES.add, CASES.random
floats, unsigned, signed = CASES.floats, CASES.unsigned, CASES.signed


def q(n):
    return {f"{n}s": np.array(0.02, np.float32), f"{n}z": np.array(110, np.uint8)}


x = unsigned(2, 8, 6, 6)
x2 = unsigned(2, 8, 6, 6)
PARAMETERS = {**q("x"), **q("w"), "ys": np.array(0.03, np.float32), "yz": np.array(100, np.uint8)}
for op in "QLinearAdd", "QLinearMul":
    add(
        op,
        node(op, ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["y"]),
        {"x": x, "w": x2},
        [("y", TensorProto.UINT8)],
        constants=PARAMETERS,
    )
add(
    "QLinearSigmoid",
    node("QLinearSigmoid", ["x", "xs", "xz", "ys0", "yz"], ["y"]),
    {"x": x},
    [("y", TensorProto.UINT8)],
    constants={**PARAMETERS, "ys0": np.array(1 / 256, np.float32)},
)
add(
    "QLinearLeakyRelu",
    node("QLinearLeakyRelu", ["x", "xs", "xz", "ys", "yz"], ["y"], alpha=0.1),
    {"x": x},
    [("y", TensorProto.UINT8)],
    constants=PARAMETERS,
)
for cl in 0, 1:
    add(
        f"QLinearAveragePool{cl}",
        node(
            "QLinearAveragePool",
            ["x", "xs", "xz", "ys", "yz"],
            ["y"],
            kernel_shape=[3, 3],
            strides=[2, 2],
            pads=[1, 1, 1, 1],
            channels_last=cl,
        ),
        {"x": x},
        [("y", TensorProto.UINT8)],
        constants=PARAMETERS,
    )
    add(
        f"QLinearGlobalAveragePool{cl}",
        node("QLinearGlobalAveragePool", ["x", "xs", "xz", "ys", "yz"], ["y"], channels_last=cl),
        {"x": x},
        [("y", TensorProto.UINT8)],
        constants=PARAMETERS,
    )
    W = signed(16, 8, 3, 3)
    add(
        f"QLinearConv{cl}",
        node(
            "QLinearConv",
            ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"],
            ["y"],
            kernel_shape=[3, 3],
            channels_last=cl,
        ),
        {"x": unsigned(1, 6, 6, 8) if cl else unsigned(1, 8, 6, 6)},
        [("y", TensorProto.UINT8)],
        constants={
            **PARAMETERS,
            "w": W,
            "wz": np.array(0, np.int8),
            "ys": np.array(0.7, np.float32),
            "b": random.integers(-99, 99, 16).astype(np.int32),
        },
    )
for ax, o in ((-1, 13), (1, 12), (1, 13)):
    add(
        f"QLinearSoftmax{ax},{o}",
        node("QLinearSoftmax", ["x", "xs", "xz", "ys0", "yz0"], ["y"], axis=ax, opset=o),
        {"x": x},
        [("y", TensorProto.UINT8)],
        constants={**PARAMETERS, "ys0": np.array(1 / 256, np.float32), "yz0": np.array(0, np.uint8)},
    )
add(
    "QLinearConcat",
    node("QLinearConcat", ["ys", "yz", "x", "xs", "xz", "w", "ws", "wz"], ["y"], axis=1),
    {"x": x, "w": x2},
    [("y", TensorProto.UINT8)],
    constants=PARAMETERS,
)
add(
    "QLinearWhere",
    node("QLinearWhere", ["c", "x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["y"]),
    {"c": random.random((2, 8, 6, 6)) > 0.5, "x": x, "w": x2},
    [("y", TensorProto.UINT8)],
    constants=PARAMETERS,
)
add(
    "QuantizeLinear",
    node("QuantizeLinear", ["x", "xs", "xz"], ["y"]),
    {"x": floats(2, 3)},
    [("y", TensorProto.UINT8)],
    constants=PARAMETERS,
)
add(
    "DequantizeLinear",
    node("DequantizeLinear", ["x", "xs", "xz"], ["y"]),
    {"x": unsigned(2, 3)},
    ["y"],
    constants=PARAMETERS,
)
add(
    "DequantizeLinear16",
    node("DequantizeLinear", ["x", "xs", "z"], ["y"], axis=1),
    {"x": unsigned(2, 3).astype(np.uint16)},
    ["y"],
    constants={"xs": np.array([0.1, 0.2, 0.3], np.float32), "z": np.array([1, 2, 3], np.uint16)},
)
add(
    "DynamicQuantizeMatMul",
    node("DynamicQuantizeMatMul", ["a", "b", "bs", "bz", "c"], ["y"]),
    {"a": floats(5, 16)},
    ["y"],
    constants={"b": signed(16, 8), "bs": (random.random(8) * 0.1).astype(np.float32), "bz": signed(8), "c": floats(8)},
    tolerance=1e-2,
)
add(
    "DynamicQuantizeMatMul2",
    node("DynamicQuantizeMatMul", ["a", "b", "bs"], ["y"]),
    {"a": floats(2, 5, 16)},
    ["y"],
    constants={"b": unsigned(16, 8), "bs": np.array([0.1], np.float32)},
    symbols={"a": ("B", "S", None)},
    tolerance=1e-2,
)
LAYER = {"b": floats(2, 32), "w": unsigned(2, 6, 16), "r": unsigned(2, 4, 16)}
add(
    "DynamicQuantizeLSTM",
    node(
        "DynamicQuantizeLSTM",
        ["x", "w", "r", "b", "", "h", "c", "", "ws", "wz", "rs", "rz"],
        ["y", "yh", "yc"],
        hidden_size=4,
        direction="bidirectional",
    ),
    {"x": floats(5, 3, 6), "h": floats(2, 3, 4), "c": floats(2, 3, 4)},
    ["y", "yh", "yc"],
    constants=LAYER
    | {"ws": np.array([0.01, 0.02], np.float32), "wz": np.array([120, 3], np.uint8)}
    | {"rs": np.array([0.005, 0.01], np.float32), "rz": np.array([128, 128], np.uint8)},
    symbols={"x": ("T", "N", None), "h": (None, "N", None), "c": (None, "N", None)},
    tolerance=3e-2,
)
add(
    "DynamicQuantizeLSTM2",
    node("DynamicQuantizeLSTM", ["x", "w", "r", "", "", "", "", "", "ws", "wz", "rs", "rz"], ["y"], hidden_size=4),
    {"x": floats(5, 1, 6)},
    ["y"],
    constants={"w": signed(1, 6, 16), "r": signed(1, 4, 16)}
    | {"ws": (random.random((1, 16)) * 0.02).astype(np.float32), "wz": np.zeros((1, 16), np.int8)}
    | {"rs": (random.random((1, 16)) * 0.01).astype(np.float32), "rz": np.zeros((1, 16), np.int8)},
    tolerance=3e-2,
)
add(
    "MatMulIntegerToFloat",
    node("MatMulIntegerToFloat", ["a", "b", "as", "bs", "az", "bz", "c"], ["y"]),
    {"a": unsigned(5, 16)},
    ["y"],
    constants={
        "as": np.array(0.1, np.float32),
        "az": np.array(120, np.uint8),
        "b": signed(16, 8),
        "bs": (random.random(8) * 0.1).astype(np.float32),
        "bz": signed(8),
        "c": floats(8),
    },
)
add(
    "MatMulInteger16",
    node("MatMulInteger16", ["a", "b"], ["y"]),
    {"a": floats(5, 16).astype(np.int16), "b": floats(16, 3).astype(np.int16)},
    [("y", TensorProto.INT32)],
)
for ta in 0, 1:
    for tb in 0, 1:
        add(
            f"QGemm{ta}{tb}",
            node("QGemm", ["a", "as", "az", "b", "bs", "bz", "c"], ["y"], transA=ta, transB=tb, alpha=0.5),
            {"a": unsigned(16, 5) if ta else unsigned(5, 16)},
            ["y"],
            constants={
                "as": np.array(0.1, np.float32),
                "az": np.array(120, np.uint8),
                "b": signed(8, 16) if tb else signed(16, 8),
                "bs": np.array(0.02, np.float32),
                "bz": np.array(3, np.int8),
                "c": random.integers(-500, 500, 8).astype(np.int32),
            },
        )
add(
    "QGemm q",
    node("QGemm", ["a", "as", "az", "b", "bs", "bz", "c", "ys", "yz"], ["y"]),
    {"a": unsigned(5, 16)},
    [("y", TensorProto.UINT8)],
    constants={
        "as": np.array(0.1, np.float32),
        "az": np.array(120, np.uint8),
        "b": signed(16, 8),
        "bs": np.array(0.02, np.float32),
        "bz": np.array(3, np.int8),
        "c": random.integers(-500, 500, 8).astype(np.int32),
        "ys": np.array(0.5, np.float32),
        "yz": np.array(120, np.uint8),
    },
)
QI = {
    "w": signed(12, 48),
    "b": floats(48),
    "is": np.array(0.02, np.float32),
    "ws": np.array(0.01, np.float32),
    "iz": np.array(128, np.uint8),
    "wz": np.array(0, np.int8),
}
add(
    "QAttention",
    node("QAttention", ["x", "w", "b", "is", "ws", "m", "iz", "wz"], ["y"], num_heads=2, unidirectional=1),
    {"x": unsigned(2, 5, 12), "m": np.array([[1] * 5, [1] * 3 + [0] * 2], np.int32)},
    ["y"],
    constants=QI,
)
add(
    "QAttention past",
    node("QAttention", ["x", "w", "b", "is", "ws", "", "iz", "wz", "p"], ["y", "pr"], num_heads=2, unidirectional=1),
    {"x": unsigned(2, 5, 12), "p": floats(2, 2, 2, 3, 8)},
    ["y", "pr"],
    constants=QI,
)
for ga, qa in ((0, 2),):
    d = unsigned(6, 5, 32)
    sc = floats(6, 5, 2)
    add(
        f"GBQ u8x4 {ga}{qa}",
        node("GatherBlockQuantized", ["d", "i", "s"], ["y"], gather_axis=ga, quantize_axis=qa, block_size=32, bits=4),
        {"i": random.integers(0, 5, (2, 3))},
        ["y"],
        constants={"d": d, "s": sc},
    )
    add(
        f"GBQ u8x4 zp {ga}{qa}",
        node(
            "GatherBlockQuantized", ["d", "i", "s", "z"], ["y"], gather_axis=ga, quantize_axis=qa, block_size=32, bits=4
        ),
        {"i": random.integers(0, 5, (2, 3))},
        ["y"],
        constants={"d": d, "s": sc, "z": unsigned(6, 5, 1)},
    )
    add(
        f"GBQ u8x8 {ga}{qa}",
        node("GatherBlockQuantized", ["d", "i", "s"], ["y"], gather_axis=ga, quantize_axis=qa, block_size=16, bits=8),
        {"i": random.integers(0, 5, (2, 3))},
        ["y"],
        constants={"d": d, "s": sc},
    )
d4 = helper.make_tensor("d", TensorProto.INT4, [6, 4, 32], random.integers(-8, 8, 6 * 4 * 32).tolist())
add(
    "GBQ int4",
    node("GatherBlockQuantized", ["d", "i", "s"], ["y"], gather_axis=0, quantize_axis=2, block_size=16),
    {"i": random.integers(0, 5, (2, 3))},
    ["y"],
    constants={"d": d4, "s": floats(6, 4, 2)},
    opset=21,
)
add(
    "GBQ int4 qa1",
    node("GatherBlockQuantized", ["d", "i", "s"], ["y"], gather_axis=0, quantize_axis=1, block_size=16),
    {"i": random.integers(0, 5, (2, 3))},
    ["y"],
    constants={"d": d4, "s": floats(6, 1, 32)},
    opset=21,
)
for bits in 4, 8, 2:
    for zp in 0, 1, 2:
        if bits == 8 and zp == 2:
            continue
        for K, bl in ((64, 16), (96, 32), (80, 64)):
            kb = -(-K // bl)
            Nn = 12
            ini = {"b": unsigned(Nn, kb, bl * bits // 8), "s": floats(Nn, kb) * 0.1}
            ins = ["a", "b", "s"]
            if zp:
                ins.append("z")
                ini["z"] = unsigned(Nn, -(-kb * bits // 8)) if zp == 1 else floats(Nn, kb)
            add(
                f"MatMulNBits {bits} {zp} {K} {bl}",
                node("MatMulNBits", ins, ["y"], K=K, N=Nn, bits=bits, block_size=bl),
                {"a": floats(2, 3, K)},
                ["y"],
                constants=ini,
            )
ini = {
    "b": unsigned(12, 2, 16),
    "s": floats(12, 2) * 0.1,
    "c": floats(12),
    "g": (np.arange(64) // 32).astype(np.int32)[random.permutation(64)],
}
add(
    "MatMulNBits bias",
    node("MatMulNBits", ["a", "b", "s", "", "", "c"], ["y"], K=64, N=12, bits=4, block_size=32),
    {"a": floats(2, 3, 64)},
    ["y"],
    constants=ini,
)
add(
    "MatMulNBits gidx",
    node("MatMulNBits", ["a", "b", "s", "", "g"], ["y"], K=64, N=12, bits=4, block_size=32),
    {"a": floats(2, 3, 64)},
    ["y"],
    constants=ini,
)
