"""Attention in the forms of ``com.microsoft``."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from tests.core.operators.functions.case import Cases

CASES = Cases("com.microsoft", 2)
node, add, random = CASES.node, CASES.add, CASES.random
floats, unsigned, signed = CASES.floats, CASES.unsigned, CASES.signed

B, S, Nh, H = 2, 5, 2, 8
D = Nh * H
for mask in (None, "len", "len2", "2d", "3d"):
    for uni in 0, 1:
        for past in 0, 1:
            P = 3 if past else 0
            TT = S + P
            fe = {"x": floats(B, S, 12)}
            ins = ["x", "w", "b", "", "", ""]
            if mask:
                ins[3] = "m"
                fe["m"] = {
                    "len": np.array([TT, TT - 2], np.int32),
                    "len2": np.array([TT, TT - 2, 0, 1], np.int32),
                    "2d": np.array([[1] * TT, [1] * (TT - 1) + [0]], np.int32),
                    "3d": (random.random((B, S, TT)) > 0.3).astype(np.int32),
                }[mask]
            if past:
                ins[4] = "p"
                fe["p"] = floats(2, B, Nh, P, H)
            add(
                f"Attention {mask} {uni} {past}",
                node("Attention", ins, ["y", "pr"], num_heads=Nh, unidirectional=uni),
                fe,
                ["y", "pr"],
                constants={"w": floats(12, 3 * D), "b": floats(3 * D)},
            )
add(
    "Attention bias sizes",
    node("Attention", ["x", "w", "b", "", "", "e"], ["y"], num_heads=Nh, qkv_hidden_sizes=[16, 16, 32], scale=0.3),
    {"x": floats(B, S, 12), "e": floats(B, Nh, S, S)},
    ["y"],
    constants={"w": floats(12, 64), "b": floats(64)},
)
add(
    "Attention sym",
    node("Attention", ["x", "w", "b", "m"], ["y"], num_heads=Nh),
    {"x": floats(B, S, 12), "m": np.ones((B, S), np.int32)},
    ["y"],
    constants={"w": floats(12, 48), "b": floats(48)},
    symbols={"x": ("B", "S", None), "m": ("B", "S")},
)
for extra in ("", "b", "m", "a", "past", "uni", "kv4", "m1"):
    fe = {"q": floats(B, S, D), "k": floats(B, 7, D), "v": floats(B, 7, D)}
    ins = ["q", "k", "v", "", "", "", "", ""]
    at = {}
    outs = ["y"]
    if extra in ("b", "m1"):
        ins[3] = "b"
        fe["b"] = floats(3 * D)
    if extra == "m":
        ins[4] = "m"
        fe["m"] = np.array([[1] * 7, [1] * 4 + [0] * 3], np.int32)
    if extra == "m1":
        ins[4] = "m"
        fe["m"] = np.array([7, 4], np.int32)
    if extra == "a":
        ins[5] = "a"
        fe["a"] = floats(1, Nh, S, 7)
    if extra in ("past", "uni"):
        fe["k"] = floats(B, S, D)
        fe["v"] = floats(B, S, D)
    if extra == "uni":
        at["unidirectional"] = 1
    if extra == "past":
        ins[6:] = ["pk", "pv"]
        fe["pk"] = floats(B, Nh, 3, H)
        fe["pv"] = floats(B, Nh, 3, H)
        outs = ["y", "ok", "ov"]
    if extra == "kv4":
        fe["k"] = floats(B, Nh, 7, H)
        fe["v"] = floats(B, Nh, 7, H)
    add(f"MHA {extra}", node("MultiHeadAttention", ins, outs, num_heads=Nh, **at), fe, outs)
add(
    "MHA present",
    node("MultiHeadAttention", ["q", "k", "v"], ["y", "a", "b"], num_heads=Nh),
    {"q": floats(B, S, D), "k": floats(B, S, D), "v": floats(B, S, D)},
    ["y", "a", "b"],
    symbols={"q": ("B", "S", None), "k": ("B", "S", None), "v": ("B", "S", None)},
)
cs, sn = floats(20, H // 2), floats(20, H // 2)
for il in 0, 1:
    add(
        f"Rotary {il}",
        node("RotaryEmbedding", ["x", "p", "c", "s"], ["y"], interleaved=il),
        {"x": floats(B, S, D), "p": random.integers(0, 20, (B, S))},
        ["y"],
        constants={"c": cs, "s": sn},
    )
    add(
        f"Rotary off {il}",
        node("RotaryEmbedding", ["x", "p", "c", "s"], ["y"], interleaved=il),
        {"x": floats(B, S, D), "p": np.array([3])},
        ["y"],
        constants={"c": cs, "s": sn},
    )
    add(
        f"Rotary 4d {il}",
        node("RotaryEmbedding", ["x", "p", "c", "s"], ["y"], interleaved=il),
        {"x": floats(B, Nh, S, H), "p": random.integers(0, 20, (B, S))},
        ["y"],
        constants={"c": cs, "s": sn},
    )
    add(
        f"Rotary part {il}",
        node("RotaryEmbedding", ["x", "p", "c", "s"], ["y"], interleaved=il, num_heads=Nh, rotary_embedding_dim=4),
        {"x": floats(B, S, D), "p": random.integers(0, 20, (B, S))},
        ["y"],
        constants={"c": cs[:, :2].copy(), "s": sn[:, :2].copy()},
    )
H = 16


def gqa(
    name: str, new: int, past: int | None, last: list[int], total: int, *, packed: bool = False, rotary: int = 1,
    present: list[Any] | None = None, symbols: dict[str, Any] | None = None, more: dict[int, np.ndarray] | None = None,
    **attributes: Any,
) -> None:  # fmt: skip
    """Four heads of queries share two of keys and values, of 16 features; ``more`` are inputs by number."""
    batch, heads, shared = len(last), 4, 2
    given = {0: floats(batch, new, (heads + 2 * shared) * H if packed else heads * H)}
    if not packed:
        given |= {number: floats(batch, new, shared * H) for number in (1, 2)}
    if past is not None:
        given |= {number: floats(batch, shared, past, H) for number in (3, 4)}
    given |= {5: np.array(last, np.int32), 6: np.array(total, np.int32), **(more or {})}
    tables = {f"i{number}": floats(40, H // 2) for number in (7, 8)} if rotary else {}
    feeds = {f"i{number}": array for number, array in given.items()}
    inputs = [one if (one := f"i{number}") in feeds or one in tables else "" for number in range(max(given) + 3)]
    add(
        f"GQA {name}",
        node("GroupQueryAttention", inputs, ["y", "a", "b"], num_heads=heads, kv_num_heads=shared, do_rotary=rotary,
             **attributes),
        feeds,
        ["y", ("a", TensorProto.FLOAT, present), ("b", TensorProto.FLOAT, present)],
        tables,
        symbols=symbols,
    )  # fmt: skip


for packed in False, True:
    gqa(f"prompt {packed}", 5, 0, [4, 4], 5, packed=packed)
    gqa(f"prompt without a cache {packed}", 5, None, [4, 4], 5, packed=packed)
    gqa(f"decode {packed}", 1, 6, [6, 6], 7, packed=packed)
    gqa(f"decode ragged {packed}", 1, 6, [6, 4], 7, packed=packed)
gqa("chunk", 3, 4, [6], 7)
gqa("window", 1, 6, [6, 6], 7, local_window_size=3)
gqa("window of a prompt", 7, 0, [6, 6], 7, local_window_size=3)
gqa("softcap", 1, 6, [6, 6], 7, softcap=5.0, scale=0.2)
gqa("smooth", 1, 6, [6, 6], 7, smooth_softmax=1)
gqa("interleaved", 3, 4, [6], 7, rotary_interleaved=1)
gqa("without rotation", 1, 6, [6, 6], 7, rotary=0)
gqa("buffer", 1, 9, [6, 5], 7, present=[2, 2, 9, 16])
gqa("bias", 3, 4, [6], 7, more={10: floats(1, 4, 3, 7)})
gqa("sink", 3, 4, [6], 7, more={11: floats(4)})
gqa("positions", 1, 6, [6, 6], 7, more={9: np.array([[6], [6]])})
CACHE = ("B", None, "P", None)
gqa("symbols", 1, 6, [6, 6], 7, packed=True, symbols={"i0": ("B", "S", None), "i3": CACHE, "i4": CACHE, "i5": ("B",)},
    present=["B", 2, "T", 16])  # fmt: skip
