"""Attributes with their defaults: those of the schema, and those that follow from shapes."""

from __future__ import annotations

from functools import cache

import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView
from graft.patterns.value_constraints import AttributeValue

ONES = ("strides", "dilations")
ZEROS = {"pads": 2, "output_padding": 1}
"""Attributes that are zeros, with how many numbers there are per axis."""

AXES = frozenset({"axis", "axes", "batch_axis", "time_axis"})
"""Attributes that are axes of the first input, negative ones counted from its end, in all operators of ONNX."""
AXES_OF_RESULT = frozenset({"OneHot"})
"""The operators whose axis is one of the result, which has an axis more."""


def from_front(node: ir.Node, name: str, value: AttributeValue) -> AttributeValue:
    """Return the value of an attribute with axes counted from the front, where it has some and the rank is known."""
    if name not in AXES or node.domain not in ("", "ai.onnx") or not node.inputs or node.inputs[0] is None:
        return value
    rank = ValueView(node.inputs[0]).rank
    if rank is None:
        return value
    rank += node.op_type in AXES_OF_RESULT
    if isinstance(value, int):
        return value + rank if value < 0 else value
    if isinstance(value, list | tuple) and all(isinstance(one, int) for one in value):
        return [one + rank if one < 0 else one for one in value]
    return value


def attribute_of(node: ir.Node, name: str) -> AttributeValue:
    """Return an attribute as a Python value, its default where it is left out, None where there is none.

    Defaults are those of the schema, in the version of the node's graph, and those that ONNX states in words: strides
    and dilations of 1, pads of 0 (unless ``auto_pad`` decides), the kernel's shape and the reversed permutation.
    """
    if name in node.attributes:
        value: AttributeValue = NodeView(node).attribute(name)
        return value
    version = node.version or (node.graph.opset_imports.get(node.domain) if node.graph is not None else None)
    schema = _schema_defaults(node.domain, node.op_type, version or 0)
    if name not in schema:
        return None
    return _derived(node, name) if schema[name] is None else schema[name]


def _derived(node: ir.Node, name: str) -> AttributeValue:
    """Return the default of an attribute that depends on shapes, None where that is not known or there is none."""
    rank = NodeView(node).inputs[0].rank if node.inputs and node.inputs[0] is not None else None  # type: ignore[union-attr]
    if node.op_type == "Transpose" and name == "perm":
        return None if rank is None else list(range(rank))[::-1]
    inputs = _inputs_of_window(node.domain, node.op_type)
    if inputs is None:
        return None
    weights = NodeView(node).input(inputs.index("W")) if "W" in inputs else None
    if name == "kernel_shape":
        return None if weights is None or weights.static_shape is None else list(weights.static_shape[2:])
    axes = (rank or (0 if weights is None else weights.rank) or 0) - 2
    if axes < 1:
        return None
    if name in ONES:
        return [1] * axes
    padded = attribute_of(node, "auto_pad") in ("SAME_UPPER", "SAME_LOWER")
    return [0] * (axes * ZEROS[name]) if name in ZEROS and not (padded and name == "pads") else None


@cache
def _inputs_of_window(domain: str, op_type: str) -> list[str] | None:
    """Return the names of inputs of an operator of ONNX that slides a window, ``W`` for its weights; None of others."""
    import onnx

    if domain or not onnx.defs.has(op_type):
        return None
    schema = onnx.defs.get_schema(op_type)
    return [one.name.upper() for one in schema.inputs] if "kernel_shape" in schema.attributes else None


@cache
def _schema_defaults(domain: str, op_type: str, version: int) -> dict[str, AttributeValue]:
    """Return an operator's attributes with their defaults, None without one; empty for an unknown operator."""
    import onnx

    try:
        schema = onnx.defs.get_schema(op_type, version or onnx.defs.onnx_opset_version(), domain)
    except onnx.defs.SchemaError:
        return {}
    defaults: dict[str, AttributeValue] = dict.fromkeys(schema.attributes)
    for name, attribute in schema.attributes.items():
        if attribute.default_value.type != onnx.AttributeProto.UNDEFINED:
            value = onnx.helper.get_attribute_value(attribute.default_value)
            defaults[name] = value.decode() if isinstance(value, bytes) else value
    return defaults
