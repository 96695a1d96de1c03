"""Types and shapes of new nodes, as ONNX infers them one node at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import onnx_ir as ir

from graft.core.model.shapes import SMALL_BYTES
from graft.core.model.soundness import tidy
from graft.core.model.view import NodeView, constant_tensor
from graft.errors import PatternError


def infer_types(nodes: Sequence[ir.Node], opsets: Mapping[str, int]) -> None:
    """Give the outputs of nodes, producers first, the types and shapes that ONNX infers, where they have none.

    Operators of other domains stay as they are. Raises PatternError for a node that ONNX says is wrong.
    """
    for node in nodes:
        version = node.version or opsets.get(node.domain) or onnx.defs.onnx_opset_version()
        if not onnx.defs.has(node.op_type, node.domain):
            if not node.domain:
                raise PatternError(f"ONNX has no operator '{node.op_type}'", operator=node.op_type)
            continue
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
        read = {value.name or "": value for value in node.inputs if value is not None and value.type is not None}
        types = {name: ir.serde.serialize_value(value).type for name, value in read.items()}
        try:
            found = onnx.shape_inference.infer_node_outputs(
                schema,
                ir.serde.serialize_node(node),
                types,
                _contents(read),
                opset_imports=[onnx.helper.make_opsetid(node.domain, version)],
                ir_version=10,
            )
        except onnx.shape_inference.InferenceError as error:
            raise PatternError(f"{NodeView(node).where} is wrong: {tidy(error)}", node=node.name) from error
        for output in node.outputs:
            if output.name in found:
                _learn(output, found[output.name])


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
