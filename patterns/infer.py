"""Types and shapes of new nodes, as ONNX infers them one node at a time."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import onnx
import onnx_ir as ir

from graft.core.graph.exception_translation import tidy
from graft.core.graph.view import NodeView, constant_tensor
from graft.core.shapes.inference import SMALL_BYTES
from graft.errors import PatternError

Definitions: TypeAlias = "Mapping[tuple[str, str], ir.Function | onnx.defs.OpSchema]"
"""By (domain, operator): what defines an operator that ONNX does not have."""


def infer_types(nodes: Sequence[ir.Node], opsets: Mapping[str, int], definitions: Definitions | None = None) -> None:
    """Give the outputs of nodes, producers first, the types and shapes that ONNX infers, where they have none.

    An operator of another domain that neither ``definitions`` nor a plugin defines stays as it is. Raises PatternError
    for a node that ONNX says is wrong.
    """
    for node in nodes:
        defined = (definitions or {}).get((node.domain, node.op_type))
        if isinstance(defined, ir.Function):
            found = _of_call(node, opsets, definitions or {})
        elif defined is not None or onnx.defs.has(node.op_type, node.domain):
            found = _of_schema(node, opsets, defined)
        elif node.domain:
            continue
        else:
            near = difflib.get_close_matches(node.op_type, {one.name for one in onnx.defs.get_all_schemas()}, 1)
            hint = f"; did you mean '{near[0]}'?" if near else "; name the domain of another: op(..., domain=...)"
            raise PatternError(f"ONNX has no operator '{node.op_type}'{hint}", operator=node.op_type)
        for output in node.outputs:
            if output.name is not None and output.name in found:
                _learn(output, found[output.name])


def _of_schema(
    node: ir.Node, opsets: Mapping[str, int], schema: onnx.defs.OpSchema | None
) -> Mapping[str, onnx.TypeProto]:
    version = node.version or opsets.get(node.domain) or onnx.defs.onnx_opset_version()
    schema = schema or onnx.defs.get_schema(node.op_type, version, node.domain)
    read = {value.name or "": value for value in node.inputs if value is not None and value.type is not None}
    types = {name: ir.serde.serialize_value(value).type for name, value in read.items()}
    try:
        found: Mapping[str, onnx.TypeProto] = onnx.shape_inference.infer_node_outputs(
            schema,
            ir.serde.serialize_node(node),
            types,
            _contents(read),
            opset_imports=[onnx.helper.make_opsetid(node.domain, version)],
            ir_version=10,
        )
    except onnx.shape_inference.InferenceError as error:
        raise PatternError(f"{NodeView(node).where} is wrong: {tidy(error)}", node=node.name) from error
    return found


def _of_call(node: ir.Node, opsets: Mapping[str, int], definitions: Definitions) -> Mapping[str, onnx.TypeProto]:
    """Infer a call of a model-local function by its body."""
    functions = [one for one in definitions.values() if isinstance(one, ir.Function)]
    imports = {**opsets, **{one.domain: opsets.get(one.domain, 1) for one in functions}}
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [ir.serde.serialize_node(node)],
            "call",
            [ir.serde.serialize_value(value) for value in dict.fromkeys(node.inputs) if value is not None],
            [onnx.ValueInfoProto(name=output.name or "") for output in node.outputs],
        ),
        functions=[ir.serde.serialize_function(one) for one in functions],
        opset_imports=[onnx.helper.make_opsetid(domain, version) for domain, version in imports.items()],
        ir_version=10,
    )
    try:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    except onnx.shape_inference.InferenceError as error:
        raise PatternError(f"{NodeView(node).where} is wrong: {tidy(error)}", node=node.name) from error
    return {value.name: value.type for value in inferred.graph.output if value.type.WhichOneof("value")}


def _contents(read: Mapping[str, ir.Value]) -> dict[str, onnx.TensorProto]:
    """Return the contents of small constants: the shape operand of a Reshape and its like."""
    tensors = {name: constant_tensor(value) for name, value in read.items()}
    return {
        name: ir.serde.serialize_tensor(tensor)
        for name, tensor in tensors.items()
        if tensor is not None and tensor.nbytes <= SMALL_BYTES
    }


def _learn(value: ir.Value, proto: onnx.TypeProto) -> None:
    if value.type is None:
        value.type = ir.serde.deserialize_type_proto_for_type(proto)
    if value.shape is None:
        value.shape = ir.serde.deserialize_type_proto_for_shape(proto)
