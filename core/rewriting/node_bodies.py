"""The nodes that stand for one: the function by which its row in the table, or ONNX, defines an operator.

Most depend on the types and attributes of a node, so bodies are asked for node by node.
"""

from __future__ import annotations

from typing import Any

import onnx

from graft.core.graph.protos import canonical, every_node
from graft.core.graph.renaming import Fresh, renamed
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.adjoint import Through
from graft.core.operators.definition.function_body import Body, Function
from graft.core.operators.definition.table import Operator
from graft.errors import ModelError

Types = dict[str, onnx.TypeProto]
Opsets = dict[str, int]


def body_of(
    node: onnx.NodeProto, opsets: Opsets, types: Types, data: dict[str, onnx.TensorProto], fresh: Fresh
) -> list[onnx.NodeProto] | None:
    """Return the nodes that stand for one, None where that cannot be said (yet)."""
    own = function_of(OPERATORS.get(node.op_type, node.domain))
    if own is not None:
        return _own_body(node, own, types, data, fresh)
    body = _body(node, opsets, types)
    return None if body is None else _inlined(node, body, fresh)


def function_of(operator: Operator | None) -> Function | None:
    """Return the function that a row has: its own, or the one that the operator is differentiated through."""
    if operator is None or operator.function is not None:
        return None if operator is None else operator.function
    return operator.vjp.function if isinstance(operator.vjp, Through) else None


def is_function(operator: Operator | None) -> bool:
    """Whether its row, or ONNX, has a function of an operator."""
    if function_of(operator) is not None:
        return True
    if operator is None or not onnx.defs.has(operator.name, operator.domain):
        return False
    schema: Any = onnx.defs.get_schema(operator.name, operator.domain)
    return bool(schema.function_opset_versions or schema.context_dependent_function_opset_versions)


def _own_body(
    node: onnx.NodeProto, function: Function, types: Types, data: dict[str, onnx.TensorProto], fresh: Fresh
) -> list[onnx.NodeProto] | None:
    if any(name and (name not in types or not types[name].tensor_type.HasField("shape")) for name in node.input):
        return None
    body = Body(node, types, data, fresh)
    try:
        function(body)
    except ModelError:
        if canonical(node.domain).startswith("ai.onnx"):  # which `reference` computes as it is
            return None
        raise
    return body.nodes


def _body(node: onnx.NodeProto, opsets: Opsets, types: Types) -> onnx.FunctionProto | None:
    """Return the function of a node, None if there is none; domains that it adds join ``opsets``."""
    domain = canonical(node.domain)
    if domain not in opsets or not onnx.defs.has(node.op_type, opsets[domain], node.domain):
        return None
    schema: Any = onnx.defs.get_schema(node.op_type, opsets[domain], node.domain)
    given = [types.get(name) for name in node.input]
    if any(name and kind is None for name, kind in zip(node.input, given, strict=True)):
        return None
    data = b""
    if schema.context_dependent_function_opset_versions:
        version = max(schema.context_dependent_function_opset_versions)
        kinds = [(onnx.TypeProto() if kind is None else kind).SerializeToString() for kind in given]
        data = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), kinds)
    elif schema.function_opset_versions:
        data = schema.get_function_with_opset_version(max(schema.function_opset_versions))
    body: onnx.FunctionProto = onnx.FunctionProto.FromString(data)
    if not body.node:
        return None
    asked = {canonical(entry.domain): entry.version for entry in body.opset_import}
    for one in every_node(body.node):
        place = canonical(one.domain)
        if place in opsets and not _is_same(one, asked.get(place, opsets[place]), opsets[place]):
            return None
    for place, version in asked.items():
        opsets.setdefault(place, version)
    return body


def _is_same(node: onnx.NodeProto, old: int, new: int) -> bool:
    """Whether a node of one opset means the same in another: its operator takes as many inputs, and its attributes."""
    if not onnx.defs.has(node.op_type, old, node.domain) or not onnx.defs.has(node.op_type, new, node.domain):
        return False
    before, after = (onnx.defs.get_schema(node.op_type, one, node.domain) for one in (old, new))
    same_inputs = [one.name for one in before.inputs] == [one.name for one in after.inputs]
    return before.since_version == after.since_version or (
        same_inputs and before.attributes.keys() <= after.attributes.keys()
    )


def _inlined(node: onnx.NodeProto, body: onnx.FunctionProto, fresh: Fresh) -> list[onnx.NodeProto]:
    """Return the nodes of a body between the values of the node that they stand for, with names of their own.

    Absent inputs and attributes are absent in the body too; attributes have their defaults.
    """
    names = {"": "", **dict.fromkeys(body.input, ""), **dict(zip(body.input, node.input, strict=False))}
    names |= {formal: actual for formal, actual in zip(body.output, node.output, strict=False) if actual}
    attributes = {one.name: one for one in node.attribute}
    schema = onnx.defs.get_schema(node.op_type, domain=node.domain)
    for name, attribute in schema.attributes.items():
        if name not in attributes and attribute.default_value.type != onnx.AttributeProto.UNDEFINED:
            attributes[name] = attribute.default_value
    return [renamed(one, names, attributes, node.name or node.output[0], fresh) for one in body.node]
