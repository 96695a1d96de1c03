"""What exporters leave out of a model or write twice, made good before ONNX's own checker sees it."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
import onnx_ir as ir

from graft.core.model.check import canonical
from graft.core.model.shapes import infer_proto, infer_shapes
from graft.errors import ModelError


def merge_imports(proto: onnx.ModelProto) -> bool:
    """Import every operator set once, in place; return whether one stood there twice, as ``""`` and as ``ai.onnx``."""
    merged = [_merge(holder.opset_import) for holder in (proto, *proto.functions)]
    return any(merged)


def _merge(imports: Iterable[onnx.OperatorSetIdProto]) -> bool:
    seen: dict[str, int] = {}
    for entry in imports:
        seen.setdefault(canonical(entry.domain), entry.version)
    entries = list(imports)
    if len(entries) == len(seen):
        return False
    del imports[:]  # type: ignore[attr-defined]
    imports.extend(  # type: ignore[attr-defined]
        onnx.OperatorSetIdProto(domain=domain, version=version) for domain, version in seen.items()
    )
    return True


def drop_zip_maps(graph: onnx.GraphProto) -> list[str]:
    """Make outputs of ZipMap, in place, the tensors that it labels, one column per class; return what became of each.

    A program gives tensors, no dictionaries: the classes are told in the text that is returned.
    """
    outputs = {value.name: value for value in graph.output}
    notes = []
    for node in graph.node:
        if node.op_type != "ZipMap" or node.domain != "ai.onnx.ml" or node.output[0] not in outputs:
            continue
        name = node.output[0]
        labels = [label for attribute in node.attribute for label in (*attribute.ints, *attribute.strings)]
        shown = ", ".join(
            label.decode(errors="replace") if isinstance(label, bytes) else str(label) for label in labels
        )
        notes.append(f"'{name}' is a tensor with a column per class, which are {shown}")
        node.op_type, node.domain = "Identity", ""
        del node.attribute[:]
        columns = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [None, len(labels)])
        outputs[name].type.CopyFrom(columns)
    return notes


def complete_outputs(proto: onnx.ModelProto) -> list[str]:
    """Give outputs without a type or shape, in place, what inference finds; return their names.

    Raises ModelError where it does not even find a rank.
    """
    missing = [value for value in proto.graph.output if _is_incomplete(value.type)]
    if not missing:
        return []
    scratch = onnx.ModelProto.FromString(proto.SerializeToString())
    values = {value.name: value for value in _inferred(scratch).graph.outputs}
    for output in missing:
        value = values[output.name]
        if value.type is None or value.shape is None:
            raise ModelError(
                f"output '{output.name}' has no shape in the model, and none can be inferred: its rank depends on what "
                "is computed at run time; give it a shape, with names for the dimensions that vary",
                output=output.name,
            )
        output.CopyFrom(ir.serde.serialize_value(value))
    return [output.name for output in missing]


def _inferred(proto: onnx.ModelProto) -> ir.Model:
    model = ir.from_proto(infer_proto(proto))
    if any(value.shape is None for value in model.graph.outputs):
        infer_shapes(model)
    return model


def _is_incomplete(kind: onnx.TypeProto) -> bool:
    which = kind.WhichOneof("value")
    return which is None or (
        which == "tensor_type" and not (kind.tensor_type.HasField("shape") and kind.tensor_type.elem_type)
    )
