"""What exporters leave out of a model or write twice, made good before ONNX's own checker sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from graft.core.graph.exception_translation import readable
from graft.core.graph.protos import canonical, constants_of, every_graph
from graft.core.importer.checks import is_early
from graft.core.operators.definition.function_body import MICROSOFT
from graft.core.shapes.inference import infer_proto, infer_shapes
from graft.errors import ModelError


def merge_imports(proto: onnx.ModelProto) -> str:
    """Import every operator set once, in place: the last version counts, as for ONNX Runtime; return a note."""
    notes = [note for holder in (proto, *proto.functions) if (note := _merge(holder.opset_import))]
    return "; ".join(notes)


def _merge(imports: Any) -> str:
    versions: dict[str, list[int]] = {}
    for entry in imports:
        versions.setdefault(canonical(entry.domain), []).append(entry.version)
    if len(imports) == len(versions) and all(entry.domain in versions for entry in imports):
        return ""
    del imports[:]
    imports.extend(onnx.OperatorSetIdProto(domain=domain, version=given[-1]) for domain, given in versions.items())
    return "; ".join(
        f"operator set '{domain or 'ai.onnx'}' was imported in versions {', '.join(map(str, given))}"
        for domain, given in versions.items()
        if len(given) > 1
    )


def name_domains(proto: onnx.ModelProto) -> list[str]:
    """Give operators that ONNX Runtime put among ai.onnx's its own domain, in place; return their names."""
    opsets = {canonical(entry.domain): entry.version for entry in proto.opset_import}
    names: dict[str, None] = {}
    for graph in every_graph(proto.graph):
        for node in graph.node:
            if is_early(node, opsets):
                node.domain = MICROSOFT
                names[node.op_type] = None
    if names and MICROSOFT not in opsets:
        proto.opset_import.add(domain=MICROSOFT, version=1)
    return list(names)


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


def say_halves(graph: onnx.GraphProto) -> list[str]:
    """Say of every STFT that leaves it out, in place, that it gives half a spectrum; return the names of its results.

    That is the operator's default, but ONNX's inference takes the whole one, and models state what it said: where the
    length of a frame is known, the stated extent becomes that of half a spectrum.
    """
    graphs = list(every_graph(graph))
    found: dict[str, int | None] = {}
    for node in (node for inner in graphs for node in inner.node):
        if node.op_type == "STFT" and not node.domain and all(one.name != "onesided" for one in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("onesided", 1))
            found |= dict.fromkeys(node.output[:1], _frame_length(node, graphs))
    for value in (value for inner in graphs for value in (*inner.output, *inner.value_info)) if found else ():
        length, shape = found.get(value.name), value.type.tensor_type.shape
        if length is not None and len(shape.dim) == 4:
            shape.dim[2].dim_value = length // 2 + 1
    return sorted(found)


def _frame_length(node: onnx.NodeProto, graphs: Sequence[onnx.GraphProto]) -> int | None:
    """Return the points of the frames of an STFT, as given or those of the window; None where they are not known."""
    window, given = (node.input[place] if len(node.input) > place else "" for place in (2, 3))
    tensors = {name: tensor for inner in graphs for name, tensor in constants_of(inner).items()}
    if given:
        with readable():
            array = onnx.numpy_helper.to_array(tensors[given]) if given in tensors else np.zeros(0)
        return int(array.reshape(-1)[0]) if array.size == 1 and array.dtype.kind in "iu" else None
    if window in tensors:
        return tensors[window].dims[0] if len(tensors[window].dims) == 1 else None
    for value in (value for inner in graphs for value in (*inner.input, *inner.value_info)):
        extents = value.type.tensor_type.shape.dim
        if value.name == window and len(extents) == 1 and extents[0].HasField("dim_value"):
            return int(extents[0].dim_value)
    return None


def complete_outputs(proto: onnx.ModelProto, prepared: Callable[[onnx.ModelProto], onnx.ModelProto]) -> list[str]:
    """Give outputs without a type or shape, in place, what inference finds; return their names.

    ``prepared`` writes in a copy what inference knows in the place of what it does not. Raises ModelError where it does
    not even find a rank.
    """
    missing = [value for value in proto.graph.output if _is_incomplete(value.type)]
    if not missing:
        return []
    scratch = onnx.ModelProto.FromString(proto.SerializeToString())
    with readable():
        values = {value.name: value for value in _inferred(prepared(scratch)).graph.outputs}
    for output in missing:
        value = values[output.name]
        if value.type is None or value.shape is None:
            _require_ranks(proto)
            raise ModelError(
                f"output '{output.name}' has no shape in the model, and none can be inferred: its rank depends on what "
                "is computed at run time; give it a shape, with names for the dimensions that vary",
                output=output.name,
            )
        output.CopyFrom(ir.serde.serialize_value(value))
    return [output.name for output in missing]


def _require_ranks(proto: onnx.ModelProto) -> None:
    """Raise ModelError for an input without a shape: it is why nothing is known behind it."""
    known = {tensor.name for tensor in proto.graph.initializer}
    for value in proto.graph.input:
        if value.name not in known and _is_incomplete(value.type):
            raise ModelError(
                f"input '{value.name}' has no shape in the model, so none behind it is known; give it one by "
                f"shapes={{'{value.name}': (...)}}",
                input=value.name,
            )


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
