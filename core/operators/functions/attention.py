"""Attention in the forms of ``com.microsoft``: over ONNX's Attention and RotaryEmbedding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import TensorProto

from graft.core.operators.definition.function_body import Body
from graft.core.operators.functions.microsoft import add

MASKED = -10000.0
"""What is added to the score of a key that a mask of 0 and 1 hides."""


def _parted(f: Body, x: str, sizes: list[int], axis: int = -1) -> list[str]:
    return f.several(len(sizes), "Split", x, f.ints(*sizes), axis=axis)


def _heads(f: Body, x: str, count: int) -> str:
    """``[batch, position, head * feature]`` as ``[batch, head, position, feature]``."""
    return f.transposed(f.reshaped(x, 0, 0, count, -1), 0, 2, 1, 3)


def _joined(f: Body, x: str) -> str:
    """``[batch, head, position, feature]`` as ``[batch, position, head * feature]``."""
    return f.reshaped(f.transposed(x, 0, 2, 1, 3), 0, 0, -1)


def _mask_bias(f: Body, mask: str, like: str, lengths: tuple[str, str]) -> str:
    """Return what a mask adds to scores ``[batch, head, query, key]``; ``lengths`` are queries and keys."""
    if not mask:
        return ""
    queries, keys = lengths
    rank = f.rank(mask)
    if rank == 1:  # a number of keys per row; then, in the form of two rows, also the first key
        place = f.counted(keys)
        count, given = f.shape(mask)[0], f.shape(like)[0]
        if isinstance(count, int) and isinstance(given, int) and count != given:
            f.require(count == 2 * given, f"its mask has {count} numbers for a batch of {given}")
            ends, starts = _parted(f, f.cast(mask, TensorProto.INT64), [given, given], 0)
            seen = f("GreaterOrEqual", place, f.unsqueezed(starts, 1))
            seen = f("And", seen, f("Less", place, f.unsqueezed(ends, 1)))
        else:
            seen = f("Less", place, f.unsqueezed(f.cast(mask, TensorProto.INT64), 1))
        seen = f.unsqueezed(seen, 1, 2)
    else:
        if rank == 4:  # of the longest sequence
            first = f("Sub", keys, queries)
            mask = f.sliced(f.sliced(mask, 2, first, keys), 3, 0, keys)
        seen = f("Cast", mask, to=TensorProto.BOOL)
        seen = f.unsqueezed(seen, 1, 2) if rank == 2 else f.unsqueezed(seen, 1) if rank == 3 else seen
    hidden = f.like(f.attribute("mask_filter_value", MASKED), like)
    return f("Where", seen, f.like(0, like), hidden)


def _attend(
    f: Body, q: str, k: str, v: str, mask: str, past: tuple[str, str], heads: tuple[int, int], *, causal: bool
) -> list[str]:
    """Return result and caches of ONNX's Attention; all three are of rank 3, or all of rank 4."""
    given: dict[str, Any] = {} if f.rank(q) == 4 else {"q_num_heads": heads[0], "kv_num_heads": heads[1]}
    scale = f.attribute("scale", 0.0)
    if scale:
        given["scale"] = scale
    if cap := f.attribute("softcap", 0.0):
        given["softcap"] = cap
    inputs = [q, k, v, mask, *past]
    while not inputs[-1]:
        inputs.pop()
    count = 3 if past[0] else 1
    return f.several(count, "Attention", *inputs, is_causal=int(causal), **given)


def _lengths(f: Body, q: str, k: str, past: str) -> tuple[str, str]:
    keys = f.extent(k, -2)
    if past:
        keys = f("Add", keys, f.extent(past, -2))
    return f.extent(q, -2), keys


def projected(f: Body, qkv: str, *, mask: str, past: str, bias: str) -> None:
    """What Attention does behind its product with weights: ``qkv`` is ``[batch, position, all three]``."""
    count, width = f.attribute("num_heads"), f.shape(qkv)[-1]
    sizes = f.attribute("qkv_hidden_sizes")
    if not sizes:
        f.require(isinstance(width, int) and width % 3 == 0, f"its weights give {width} columns")
        assert isinstance(width, int)
        sizes = [width // 3] * 3
    q, k, v = _parted(f, qkv, list(sizes))
    caches = ("", "")
    if past:
        first, second = (f("Gather", past, f.constant(np.int64(number))) for number in (0, 1))
        caches = first, second
    hidden = f.added(_mask_bias(f, mask, q, _lengths(f, q, k, caches[0])), bias)
    causal = bool(f.attribute("unidirectional", 0))
    result = _attend(f, q, k, v, hidden, caches, (count, count), causal=causal)
    f.give(0, result[0])
    if f.wants(1):
        present = result[1:] or [_heads(f, k, count), _heads(f, v, count)]
        f.give(1, f.concatenated(*[f.unsqueezed(one, 0) for one in present], axis=0))


def _attention(f: Body) -> None:
    f.require(not f.attribute("do_rotary", 0), "do_rotary is not known")
    f.require(not f.input(6), "its cache is a buffer of the longest sequence, which is a form for GPUs")
    qkv = f.added(f("MatMul", f.input(0), f.input(1)), f.input(2))
    projected(f, qkv, mask=f.input(3), past=f.input(4), bias=f.input(5))


def _unpacked(f: Body, x: str, count: int) -> list[str]:
    """``[batch, position, head, part, feature]`` as parts ``[batch, position, head, feature]``."""
    return [f("Squeeze", one, f.ints(3)) for one in _parted(f, x, [1] * count, 3)]


def _multi_head(f: Body) -> None:
    q, k, v, bias, padding, extra, past_key, past_value = (f.input(number) for number in range(8))
    count = f.attribute("num_heads")
    f.require(not f.input(8) and not f.input(9), "its cache is a buffer of the longest sequence, which is for GPUs")
    f.require(not f.wants(3), "its output of scores is not known")
    if f.rank(q) == 5:
        q, k, v = (f.reshaped(one, 0, 0, -1) for one in _unpacked(f, q, 3))
    elif k and f.rank(k) == 5:
        k, v = (f.reshaped(one, 0, 0, -1) for one in _unpacked(f, k, 2))
    elif not k:
        k, v = q, q
    if bias:
        widths = [f.shape(one)[-1] if f.rank(one) == 3 else None for one in (q, k, v)]
        whole = f.shape(bias)[0]
        own = widths[0]
        f.require(isinstance(own, int) and isinstance(whole, int), "the width of its query is not known")
        assert isinstance(own, int) and isinstance(whole, int)
        second = widths[1] if isinstance(widths[1], int) else own
        parts = _parted(f, bias, [own, second, whole - own - second], 0)
        kept = [f.added(one, part) if f.rank(one) == 3 else one for one, part in zip((q, k, v), parts, strict=True)]
        q, k, v = kept
    if f.rank(k) == 4:
        q = _heads(f, q, count)
        v = v if f.rank(v) == 4 else _heads(f, v, count)
    mask = _mask_bias(f, padding, q, _lengths(f, q, k, past_key))
    causal = bool(f.attribute("unidirectional", 0))
    result = _attend(f, q, k, v, f.added(mask, extra), (past_key, past_value), (count, count), causal=causal)
    f.give(0, _joined(f, result[0]) if f.rank(q) == 4 else result[0])
    if f.wants(1) or f.wants(2):
        present = result[1:] or [one if f.rank(one) == 4 else _heads(f, one, count) for one in (k, v)]
        f.give(1, present[0])
        f.give(2, present[1])


add("Attention", _attention)
add("MultiHeadAttention", _multi_head)

# ---- Rotation -----------------------------------------------------------------------------------------------------


def _rotary(f: Body) -> None:
    x, positions, cos, sin = (f.input(number) for number in range(4))
    rank, count = f.rank(x), f.attribute("num_heads", 0)
    f.require(not f.attribute("is_packed_batching", 0), "is_packed_batching is not known")
    if rank == 3 and not count:
        width, half = f.shape(x)[-1], f.shape(cos)[-1]
        f.require(isinstance(width, int) and isinstance(half, int), "its number of heads is not known")
        assert isinstance(width, int) and isinstance(half, int)
        count = width // (2 * half)
    if f.rank(positions) == 1:  # of the first word
        length = f.extent(x, -2)
        every = f("Add", positions, f.counted(length))
        positions = f("Expand", f.unsqueezed(every, 0), f.concatenated(f.extent(x, 0), length, axis=0))
    f.give(0, _rotated(f, x, cos, sin, positions, count))


def _rotated(f: Body, x: str, cos: str, sin: str, positions: str, count: int) -> str:
    given = {"num_heads": count} if f.rank(x) == 3 else {}
    rotated = f.attribute("rotary_embedding_dim", 0)
    half = f.shape(cos)[-1]
    width = f.shape(x)[-1]
    if not rotated and isinstance(half, int) and isinstance(width, int) and 2 * half != width // max(count, 1):
        rotated = 2 * half
    interleaved = f.attribute("interleaved", f.attribute("rotary_interleaved", 0))
    return f("RotaryEmbedding", x, cos, sin, positions, interleaved=interleaved, rotary_embedding_dim=rotated, **given)


add("RotaryEmbedding", _rotary)

# ---- Groups of queries --------------------------------------------------------------------------------------------


def _grouped(f: Body) -> None:
    """Queries share keys and values; the cache grows, or is a buffer whose first positions are taken.

    Rows of a batch may be of different lengths: ``seqlens_k`` is the last position of each.
    """
    q, k, v, past_key, past_value, last, total, cos, sin, positions, bias, sink = (
        f.input(number) for number in range(12)
    )
    count, shared = f.attribute("num_heads"), f.attribute("kv_num_heads")
    f.require(not f.input(12) and not f.input(13), "its cache is quantised, which is a form for GPUs")
    f.require(not f.wants(3), "its output of scores is not known")
    width = f.shape(q)[-1]
    f.require(isinstance(width, int), "the width of its query is not known")
    assert isinstance(width, int)
    if not k:
        size = width // (count + 2 * shared)
        q, k, v = _parted(f, q, [count * size, shared * size, shared * size])
    q, k, v = _heads(f, q, count), _heads(f, k, shared), _heads(f, v, shared)
    epsilon = f.attribute("qk_norm_epsilon", 1e-6)
    q, k = (
        f("RMSNormalization", one, weight, axis=-1, epsilon=epsilon) if weight else one
        for one, weight in ((q, f.input(14)), (k, f.input(15)))
    )
    step = f.counted(f.extent(q, 2))
    before = _taken(f, q, last, total)
    if f.attribute("do_rotary", 0):
        places = positions or f("Add", before, step)
        q, k = _rotated(f, q, cos, sin, places, count), _rotated(f, k, cos, sin, places, shared)
    keys, values = k, v
    if past_key:
        keys, values = _cached(f, before, (past_key, past_value), (k, v))
    mask = f.added(_window(f, before, step, keys, q), bias)
    if sink or f.attribute("smooth_softmax", 0) == 1:
        result = _with_sink(f, q, keys, values, mask, sink)
    else:
        result = _attend(f, q, keys, values, mask, ("", ""), (count, shared), causal=False)[0]
    f.give(0, _joined(f, result))
    f.give(1, keys)
    f.give(2, values)


def _taken(f: Body, q: str, last: str, total: str) -> str:
    """Return how many positions of the cache each row has, ``[batch, 1]``: none when the prompt is read."""
    own = f.extent(q, 2)
    after = f("Add", f.reshaped(f.cast(last, TensorProto.INT64), -1, 1), f.ints(1))
    first = f("Equal", f.reshaped(f.cast(total, TensorProto.INT64), 1), own)
    return f("Where", first, f.ints(0), f("Sub", after, own))


def _cached(f: Body, before: str, past: tuple[str, str], new: tuple[str, str]) -> list[str]:
    """Return caches with the new positions behind those taken; as long as the old where the node says so."""
    grown = f("Add", f.extent(past[0], 2), f.extent(new[0], 2))
    length = f.extent(past[0], 2) if _is_buffer(f, past[0]) else grown
    if f.shape(past[0])[0] == 1 and not _is_buffer(f, past[0]):
        return [f.concatenated(old, one, axis=2) for old, one in zip(past, new, strict=True)]
    place = f.counted(length)
    old = f("Less", place, before)
    behind = f("Sub", place, before)
    at = f("Where", old, place, f("Add", f.extent(past[0], 2), behind))
    at = f("Clip", at, f.constant(np.int64(0)), f.scalar(f("Sub", grown, f.ints(1))))
    filled = f.unsqueezed(f("Less", behind, f.extent(new[0], 2)), 1, 3)
    caches = []
    for first, second in zip(past, new, strict=True):
        both = f.concatenated(first, second, axis=2)
        shape = f.concatenated(f("Shape", both, end=2), length, f.extent(both, 3), axis=0)
        moved = f("GatherElements", both, f("Expand", f.unsqueezed(at, 1, 3), shape), axis=2)
        caches.append(f("Where", filled, moved, f.like(0, first)))
    return caches


def _is_buffer(f: Body, past: str) -> bool:
    """Whether the cache that comes out is stated to be as long as the one that goes in."""
    name = f.node.output[1] if f.wants(1) else ""
    if name not in f.types or not f.types[name].tensor_type.HasField("shape"):
        return False
    stated = f.shape(name)
    return len(stated) == 4 and stated[2] is not None and stated[2] == f.shape(past)[2]


def _window(f: Body, before: str, step: str, keys: str, like: str) -> str:
    """Return what hides later keys, and those too far back: ``[batch, 1, query, key]``."""
    own = f.unsqueezed(f("Add", before, step), 2)
    place = f.counted(f.extent(keys, 2))
    seen = f("LessOrEqual", place, own)
    if not f.attribute("causal", 1):
        seen = f("Less", place, f.unsqueezed(f("Add", before, f.extent(like, 2)), 2))
    if (window := f.attribute("local_window_size", -1)) > 0:
        seen = f("And", seen, f("Greater", place, f("Sub", own, f.ints(window))))
    return f.unsqueezed(f("Where", seen, f.like(0, like), f.like(-math.inf, like)), 1)


def _with_sink(f: Body, q: str, k: str, v: str, mask: str, sink: str) -> str:
    """Attention whose Softmax counts one more score per head: that of ``sink``, 0 where there is none."""
    count, shared = f.attribute("num_heads"), f.attribute("kv_num_heads")
    size = f.shape(q)[-1]
    f.require(isinstance(size, int), "the features of a head are not known")
    assert isinstance(size, int)
    scale = f.attribute("scale", 0.0) or 1 / math.sqrt(size)
    grouped = f.reshaped(q, 0, shared, -1, size)
    scores = f.scaled(f("MatMul", grouped, f.swapped(k)), scale)
    scores = f("Reshape", scores, f.concatenated(f("Shape", q, end=3), f.extent(k, 2), axis=0))
    if cap := f.attribute("softcap", 0.0):
        scores = f.scaled(f("Tanh", f.scaled(scores, 1 / cap)), cap)
    scores = f.added(scores, mask)
    one = f.reshaped(f.cast(sink, f.dtype(q)), 1, count, 1, 1) if sink else f.reshaped(f.like(0, q), 1, 1, 1, 1)
    column = f("Expand", one, f.concatenated(f("Shape", q, end=3), f.ints(1), axis=0))
    weights = f.softmax(f.concatenated(scores, column, axis=-1))
    weights = f.sliced(weights, 3, 0, f.extent(k, 2))
    weights = f("Reshape", weights, f.concatenated(f.extent(q, 0), f.ints(shared, -1), f.extent(k, 2), axis=0))
    return f("Reshape", f("MatMul", weights, v), f.concatenated(f("Shape", q, end=3), f.extent(v, 3), axis=0))


add("GroupQueryAttention", _grouped)
