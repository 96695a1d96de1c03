"""What XNNPACK computes: composites, and what its operators cannot do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from graft.core.operators.images.windows import windows_of
from graft.core.reject import Reject, first
from graft.patterns import is_constant, is_op, wildcard
from graft.patterns.composite import Composite
from graft.patterns.language import Operator, Pattern
from graft.plugins.product_patterns import gemm, matmul, matmul_bias
from graft.plugins.xnnpack.operators import NO_ROW, ROWS

if TYPE_CHECKING:
    from graft.core.graph.view import NodeView, ValueView
    from graft.patterns.match import Match

LARGEST_RANK = 6


# ---- Composites ----


def _of(kind: str) -> Operator:
    return is_op(*(name for name, row in ROWS.items() if row.kind == kind))


CONV = _of("convolution")(wildcard(), is_constant(), ...).named("anchor")
MATMUL, MATMUL_BIAS, GEMM = matmul(is_constant()), matmul_bias(is_constant()), gemm(is_constant())
BINARY = _of("binary")(wildcard(), wildcard()).named("anchor")


def _relu(x: Pattern) -> Pattern:
    return is_op("Relu")(x).named("activation")


def _clip(x: Pattern) -> Pattern:
    return is_op("Clip")(x, ...).named("activation")


def _supported(match: Match) -> Reject | None:
    anchor = match.node("anchor")
    if (refusal := refused(anchor)) is not None:
        return refusal
    if "bias" in match:
        shape, columns = match["bias"].static_shape or (), (anchor.outputs[0].static_shape or (0,))[-1]
        if not shape or (*(1 for _ in shape[1:]), columns) != shape:
            return Reject("shape", f"'{match['bias'].name}' is not one value per column")
    return refused(match.node("activation")) if "activation" in match else None


PATTERNS = (
    Composite("xnnpack.conv_relu", _relu(CONV), _supported),
    Composite("xnnpack.conv_clip", _clip(CONV), _supported),
    Composite("xnnpack.matmul_bias_relu", _relu(MATMUL_BIAS), _supported),
    Composite("xnnpack.matmul_bias_clip", _clip(MATMUL_BIAS), _supported),
    Composite("xnnpack.matmul_bias", MATMUL_BIAS, _supported),
    Composite("xnnpack.matmul_relu", _relu(MATMUL), _supported),
    Composite("xnnpack.gemm_relu", _relu(GEMM), _supported),
    Composite("xnnpack.gemm_clip", _clip(GEMM), _supported),
    Composite("xnnpack.binary_relu", _relu(BINARY), _supported),
    Composite("xnnpack.binary_clip", _clip(BINARY), _supported),
)


# ---- What is refused ----


def refused(node: NodeView) -> Reject | None:
    """Return why no operator of XNNPACK computes a node, None if one does."""
    row = ROWS.get(node.op_type, NO_ROW) if node.domain in ("", "ai.onnx") else NO_ROW
    if not row.kind:
        return Reject("no-pattern", f"XNNPACK has no call for {node.op_type}")
    if len(node.outputs) != 1:
        return Reject("attribute", f"only the first output of {node.op_type} is computed")
    for value in (*(value for value in node.inputs if value is not None and value.name), *node.outputs):
        shape = value.static_shape
        if value.dtype != "float32":
            return Reject("dtype", f"float32 only, got {value.dtype or 'an unknown type'} for '{value.name}'")
        if shape is None:
            return Reject("dynamic-shape", f"the shape of '{value.name}' is not known before a run")
        if 0 in shape:
            return Reject("size", f"'{value.name}' has no elements")
    return _CHECKS[row.kind](node)


def _constant(node: NodeView, *indices: int) -> Reject | None:
    for index in indices:
        value = node.input(index)
        if value is not None and not value.is_constant:
            return Reject("constant-required", f"input '{value.name}' of {node.op_type} is computed at run time")
    return None


def _shape(value: ValueView | None) -> tuple[int, ...]:
    shape = None if value is None else value.static_shape
    assert shape is not None, "shapes were checked before"
    return shape


def _elementwise(node: NodeView) -> Reject | None:
    return None


def _clamp(node: NodeView) -> Reject | None:
    if (refusal := _constant(node, 1, 2)) is not None:
        return refusal
    low, high = (None if (value := node.input(index)) is None else value.constant for index in (1, 2))
    if low is not None and high is not None and not low.item() < high.item():
        return Reject("attribute", f"XNNPACK needs a minimum below the maximum, got {low.item()} and {high.item()}")
    return None


def _leaky_relu(node: NodeView) -> Reject | None:
    slope = node.attribute("alpha", 0.01)
    return None if 0 < slope < 1 else Reject("attribute", f"XNNPACK needs a slope between 0 and 1, got {slope:g}")


def _elu(node: NodeView) -> Reject | None:
    alpha = node.attribute("alpha", 1.0)
    return None if alpha > 0 else Reject("attribute", f"XNNPACK needs an alpha above 0, got {alpha:g}")


def _binary(node: NodeView) -> Reject | None:
    rank = len(_shape(node.outputs[0]))
    if rank > LARGEST_RANK:
        return Reject("rank", f"'{node.outputs[0].name}' has {rank} axes, XNNPACK takes at most {LARGEST_RANK}")
    return None


def _softmax(node: NodeView) -> Reject | None:
    rank = len(_shape(node.outputs[0]))
    axis = node.attribute("axis", -1)
    return None if axis in (-1, rank - 1) else Reject("attribute", f"Softmax over axis {axis} of {rank}; the last only")


def _matmul(node: NodeView) -> Reject | None:
    left, right = _shape(node.input(0)), _shape(node.input(1))
    if len(left) < 2 or len(right) != 2:
        return Reject("rank", f"MatMul of {len(left)} and {len(right)} axes; XNNPACK multiplies with one matrix")
    return _constant(node, 1)


def _gemm(node: NodeView) -> Reject | None:
    if node.attribute("transA", 0) or node.attribute("alpha", 1.0) != 1 or node.attribute("beta", 1.0) != 1:
        return Reject("attribute", "XNNPACK has no transA, alpha and beta")
    if (added := node.input(2)) is not None:
        shape = _shape(added)
        if not shape or (*(1 for _ in shape[1:]), _shape(node.outputs[0])[-1]) != shape:
            return Reject("shape", f"'{added.name}' is not one value per column")
    return _constant(node, 1, 2)


def _image(node: NodeView) -> Reject | None:
    rank = len(_shape(node.input(0)))
    return None if rank == 4 else Reject("rank", f"{node.op_type} of {rank} axes; XNNPACK takes images, of 4")


def _conv(node: NodeView) -> Reject | None:
    return first(_image(node), _constant(node, 1, 2))


def _pool(node: NodeView) -> Reject | None:
    if (refusal := _image(node)) is not None:
        return refusal
    size, source, target = list(node.attribute("kernel_shape")), _shape(node.input(0))[2:], _shape(node.outputs[0])[2:]
    if size == [1, 1]:
        return Reject("attribute", "XNNPACK has no window of one element")
    w = windows_of(node, source, size, target)
    for axis in range(2):
        extent = (size[axis] - 1) * w.dilations[axis] + 1
        whole = (source[axis] + w.begins[axis] + w.ends[axis] - extent) // w.strides[axis] + 1
        if whole != target[axis]:
            return Reject("attribute", "ceil_mode has windows that leave the padding; XNNPACK has none")
    padded = any((*w.begins, *w.ends))
    if node.op_type == "AveragePool" and padded and node.attribute("count_include_pad", 0):
        return Reject("attribute", "XNNPACK does not count padding, as count_include_pad asks")
    if node.op_type == "MaxPool" and padded and any(one != 1 for one in w.dilations):
        return Reject("attribute", "XNNPACK's padded maxima with dilations read what lies beside the window")
    if node.op_type == "AveragePool" and any(one != 1 for one in w.dilations):
        return Reject("attribute", "XNNPACK has no dilation of averages")
    return None


_CHECKS: Mapping[str, Callable[[NodeView], Reject | None]] = {
    "convolution": _conv,
    "matmul": _matmul,
    "gemm": _gemm,
    "pool": _pool,
    "global pool": _image,
    "softmax": _softmax,
    "binary": _binary,
    "unary": _elementwise,
    "clamp": _clamp,
    "slope": _leaky_relu,
    "elu": _elu,
}
"""By the kind of operator."""
