"""What oneDNN cannot compute: one predicate for each kind of primitive, each returning the reason or None."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from graft.core.affine.expressions import is_at_least, subtract
from graft.core.operators.definition.varying import known_late
from graft.core.reject import Reject, first
from graft.core.shapes.symbolic_shapes import dimensions_of
from graft.plugins.onednn.accuracy import ELTWISE, LIMIT, PRIMITIVES, Accuracy
from graft.plugins.onednn.operators import Row, row_of
from graft.plugins.onednn.pooling_windows import window
from graft.plugins.onednn.primitives import is_per_channel
from graft.runtime.extents import Extent

if TYPE_CHECKING:
    from graft.core.graph.view import NodeView, ValueView
    from graft.patterns.match import Match

MAX_RANK = 12
MAX_CONCAT = 64


def supported(node: NodeView) -> bool | Reject:
    """Return True if a primitive computes the node by itself, or why none does."""
    row = row_of(node)
    if not row.kind:
        return Reject("no-pattern", f"no oneDNN primitive computes {node.op_type}")
    refusal = _common(node)
    if refusal is None:
        refusal = first(CHECKS[row.kind](node, row), known_late(node))
    return True if refusal is None else refusal


def match_supported(match: Match) -> Reject | None:
    """Return why a composite's operators cannot become one primitive, None if they can."""
    anchor = match.node("anchor")
    refusal = supported(anchor)
    if isinstance(refusal, Reject):
        return refusal
    for node in match.nodes:
        reason = None if node.name == anchor.name else _common(node)
        if reason is not None:
            return reason
    shape = _target(anchor)
    reasons = (_operand(match, "bias", shape, anchor), _operand(match, "other", shape, anchor), _activation(match))
    return next((reason for reason in reasons if reason is not None), None)


def scale_shift_supported(match: Match) -> Reject | None:
    """Return why a product and a sum with constants are not one scale and one shift per channel."""
    anchor = match.node("anchor")
    refusal = written_out_supported(match)
    if refusal is not None:
        return refusal
    shape = _target(anchor)
    for name in ("scale", "shift"):
        given = _known(match[name])
        if len(shape) < 3 or given is None or not is_per_channel(given, shape, 1):
            return Reject("shape", f"'{match[name].name}' is not one value per channel of {_listed(shape)}")
    return None


def written_out_supported(match: Match) -> Reject | None:
    """Return why an activation that is written as several operators cannot be one primitive."""
    return next((reason for reason in map(_common, match.nodes) if reason is not None), None)


def _operand(match: Match, name: str, shape: tuple[Extent, ...], anchor: NodeView) -> Reject | None:
    """Check what is added to the result: one value per output channel, or a whole tensor of its shape."""
    if name not in match:
        return None
    value = match[name]
    if value.value.producer() in {node.node for node in match.nodes}:
        return Reject("fused-use", f"'{value.name}' is added to what is computed of it")
    channel = row_of(anchor).channel
    if channel == 1 and any(value.value is one for one in anchor.node.inputs):
        return None
    given = _known(value)
    if given == shape and name == "other":
        return None
    if given is None or not value.is_constant or not is_per_channel(given, shape, channel):
        return Reject("shape", f"a post-operation adds {_text(value)} to {_listed(shape)}")
    return None


def _activation(match: Match) -> Reject | None:
    if "activation" not in match:
        return None
    node = match.node("activation")
    row = row_of(node)
    return None if row.eltwise is None else _eltwise(node, row)


def _text(value: ValueView) -> str:
    return f"{value.dtype or 'unknown'}{list(value.shape) if value.shape is not None else '[?]'}"


def _is_quantized(value: ValueView) -> bool:
    """Whether a value comes from integers or goes to them."""
    producer = value.value.producer()
    users = (use.node.op_type for use in value.value.uses())
    return (producer is not None and producer.op_type == "DequantizeLinear") or "QuantizeLinear" in users


def _common(node: NodeView) -> Reject | None:
    """Check what every primitive needs: float32, a shape that is known when the region is called, elements."""
    row = row_of(node)
    read = [one for index, one in enumerate(node.inputs) if one is not None and index not in row.parameters]
    if any(_is_quantized(value) for value in (*read, *node.outputs)):
        return Reject("dtype", "float32 only; between DequantizeLinear and QuantizeLinear others compute in integers")
    for value in (*read, *node.outputs):
        if value.dtype != "float32":
            return Reject("dtype", f"float32 only, got {value.dtype or 'an unknown type'} for '{value.name}'")
        shape = _known(value)
        if shape is None:
            return Reject("dynamic-shape", f"the shape of '{value.name}' is not known when onednn is called")
        if 0 in shape:
            return Reject("size", f"'{value.name}' has no elements")
        if len(shape) > MAX_RANK:
            return Reject("rank", f"'{value.name}' has {len(shape)} axes, oneDNN takes at most {MAX_RANK}")
    if len(node.outputs) != 1 and row.kind != "split":
        return Reject("attribute", f"only the first output of {node.op_type} is computed")
    return None


def _constants(node: NodeView, *indices: int) -> Reject | None:
    for index in indices:
        value = node.input(index)
        if value is not None and not value.is_constant:
            return Reject("constant-required", f"input '{value.name}' of {node.op_type} is computed at run time")
    return None


def _known(value: ValueView) -> tuple[Extent, ...] | None:
    """Return a shape whose extents are numbers or expressions, None where one is not known at all."""
    shape = value.static_shape
    if shape is not None:
        return shape
    extents = dimensions_of(value.value) or ()
    sizes = tuple(extent for extent in extents if extent is not None)
    return sizes if value.rank == len(sizes) else None


def _listed(shape: Sequence[Extent]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _shape(node: NodeView, index: int) -> tuple[Extent, ...]:
    value = node.input(index)
    shape = None if value is None else _known(value)
    assert shape is not None, f"{node.where}: input {index} was checked before"
    return shape


def _target(node: NodeView) -> tuple[Extent, ...]:
    shape = _known(node.outputs[0])
    assert shape is not None, f"{node.where}: the output was checked before"
    return shape


def _attributes(node: NodeView) -> dict[str, object]:
    names = ("auto_pad", "strides", "dilations", "pads", "kernel_shape")
    return {name: node.attribute(name) for name in names if node.attribute(name) is not None}


def _spatial(node: NodeView, row: Row) -> Reject | None:
    rank = len(_shape(node, 0))
    return None if 3 <= rank <= 5 else Reject("rank", f"{node.op_type} of rank {rank}; oneDNN takes 3 to 5")


def _convolution(node: NodeView, row: Row) -> Reject | None:
    refusal = _spatial(node, row)
    return refusal if refusal is not None else _constants(node, 1, 2)


def _pooling(node: NodeView, row: Row) -> Reject | None:
    refusal = _spatial(node, row)
    if refusal is not None or row.kind == "global pooling":
        return refusal
    source, target = _shape(node, 0), _target(node)
    shape = window(_attributes(node), node.attribute("kernel_shape"), source[2:], target[2:])
    counts_pads = row.algorithm == "average" and node.attribute("count_include_pad", 0)
    if counts_pads and node.attribute("ceil_mode", 0) and not all(isinstance(one, int) for one in source[2:]):
        return Reject("dynamic-shape", "ceil_mode with count_include_pad counts as the extents say")
    if counts_pads and shape.overhang:
        return Reject("attribute", "ceil_mode with count_include_pad counts cells that ONNX does not count")
    is_half = str(node.attribute("auto_pad")).startswith("SAME")
    sizes = _extents(node.attribute("kernel_shape"), shape.dilates)
    if not is_half and any(
        not is_at_least(subtract(size, pad), 1) for pad, size in zip(shape.padding_l, sizes, strict=True)
    ):
        return Reject("attribute", "the padding is as large as the window")
    if row.algorithm == "average" and any(shape.dilates):
        return Reject("attribute", "dilated average pooling")
    return None


def _extents(kernel: Sequence[int], dilates: tuple[int, ...]) -> list[int]:
    return [(size - 1) * (dilate + 1) + 1 for size, dilate in zip(kernel, dilates, strict=True)]


def _matmul(node: NodeView, row: Row) -> Reject | None:
    ranks = len(_shape(node, 0)), len(_shape(node, 1))
    return (
        Reject("rank", f"MatMul of ranks {ranks[0]} and {ranks[1]}; oneDNN takes 2 and more")
        if min(ranks) < 2
        else None
    )


def _gemm(node: NodeView, row: Row) -> Reject | None:
    if node.attribute("alpha", 1.0) != 1.0 or (node.input(2) is not None and node.attribute("beta", 1.0) != 1.0):
        return Reject("attribute", "Gemm with alpha or beta other than 1")
    if node.input(2) is not None and not is_per_channel(_shape(node, 2), _target(node), -1):
        return Reject("shape", f"Gemm adds {_listed(_shape(node, 2))}; oneDNN takes one value per column")
    return None


def _layer_normalization(node: NodeView, row: Row) -> Reject | None:
    rank = len(_shape(node, 0))
    if node.attribute("axis", -1) % rank != rank - 1:
        return Reject("attribute", "LayerNormalization over more than the last axis")
    if any(len(_shape(node, index)) != 1 for index in (1, 2) if node.input(index) is not None):
        return Reject("shape", "scale and bias must have one axis")
    for index in (1, 2):
        if node.input(index) is not None and _shape(node, index)[0] != _shape(node, 0)[-1]:
            return Reject("shape", "scale and bias must have one value for each element of a row")
    return None


def _lrn(node: NodeView, row: Row) -> Reject | None:
    size = node.attribute("size")
    return None if size % 2 == 1 else Reject("attribute", f"LRN of even size {size}")


def _batch_normalization(node: NodeView, row: Row) -> Reject | None:
    if node.attribute("training_mode", 0):
        return Reject("attribute", "BatchNormalization in training mode")
    return None if len(_shape(node, 0)) >= 2 else Reject("rank", "BatchNormalization of rank 1")


def _concat(node: NodeView, row: Row) -> Reject | None:
    count = len(node.inputs)
    return None if count <= MAX_CONCAT else Reject("size", f"Concat of {count} inputs; at most {MAX_CONCAT} are taken")


def _slice(node: NodeView, row: Row) -> Reject | None:
    refusal = _constants(node, 1, 2, 3, 4)
    steps = node.input(4)
    if refusal is None and steps is not None and steps.constant is not None and (steps.constant != 1).any():
        return Reject("attribute", f"Slice with steps {steps.constant.tolist()}")
    return refusal


def _mean(node: NodeView, row: Row) -> Reject | None:
    refusal = _spatial(node, row)
    if refusal is None:
        refusal = _constants(node, 1)
    if refusal is not None:
        return refusal
    rank, axes = len(_shape(node, 0)), node.input(1)
    over = () if axes is None or axes.constant is None else tuple(sorted(int(axis) % rank for axis in axes.constant))
    if over != tuple(range(2, rank)) or not node.attribute("keepdims", 1):
        return Reject("attribute", "ReduceMean over other than the spatial axes, or without keeping them")
    return None


def _shaped(node: NodeView, row: Row) -> Reject | None:
    """Check an operator whose second input says what its output's shape is."""
    return _constants(node, 1)


def _squeezed(node: NodeView, row: Row) -> Reject | None:
    source = node.inputs[0]
    if node.input(1) is None and (source is None or source.static_shape is None):
        return Reject("shape", "without axes, which extents are 1 must be known before it runs")
    return _shaped(node, row)


def _always(node: NodeView, row: Row) -> Reject | None:
    return None


def _binary(node: NodeView, row: Row) -> Reject | None:
    if len(node.inputs) != 2:
        return Reject("attribute", f"{node.op_type} of {len(node.inputs)} inputs; oneDNN takes 2")
    left, right, target = _shape(node, 0), _shape(node, 1), _target(node)
    if left == target or (right == target and row.is_commutative):
        return None
    return Reject("shape", f"{node.op_type} broadcasts its first input {_listed(left)} to {_listed(target)}")


def _eltwise(node: NodeView, row: Row) -> Reject | None:
    values = [None if value is None else value.constant for value in node.inputs]
    known = [np.empty(0) if value is None else one for value, one in zip(node.inputs, values, strict=True)]
    names = ("alpha", "beta", "approximate")
    attributes = {name: node.attribute(name) for name in names if node.attribute(name) is not None}
    assert row.eltwise is not None, f"{node.op_type} is elementwise"
    found = row.eltwise(attributes, [None, *known[1:]])
    if found is None:
        return Reject("constant-required", f"{node.op_type} with parameters that are computed at run time")
    if node.op_type == "Pow" and _target(node) != _shape(node, 0):
        return Reject("shape", "Pow broadcasts its first input")
    return _accurate(node, ELTWISE[found.algorithm])


def _accurate(node: NodeView, stated: Accuracy) -> Reject | None:
    """Refuse what is less accurate than is claimed; the last of all checks, for the user may allow it."""
    text = f"{node.op_type} is computed within {stated}, and {LIMIT} is asked for"
    return None if stated.within(LIMIT) else Reject("accuracy", text)


def _softmax(node: NodeView, row: Row) -> Reject | None:
    return _accurate(node, PRIMITIVES[row.algorithm])


CHECKS: Mapping[str, Callable[[NodeView, Row], Reject | None]] = {
    "convolution": _convolution,
    "matmul": _matmul,
    "gemm": _gemm,
    "pooling": _pooling,
    "global pooling": _spatial,
    "mean": _mean,
    "softmax": _softmax,
    "layer normalization": _layer_normalization,
    "batch normalization": _batch_normalization,
    "local response normalization": _lrn,
    "reshape": _shaped,
    "squeeze": _squeezed,
    "transpose": _always,
    "concat": _concat,
    "split": _shaped,
    "slice": _slice,
    "binary": _binary,
    "eltwise": _eltwise,
}
"""By the kind of primitive."""
