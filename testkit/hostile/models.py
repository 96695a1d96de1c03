"""Models that are damaged on purpose: in their bytes, or in names, types, shapes, attributes and numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
from onnx import AttributeProto, TensorProto, helper

from graft.testkit.models.model import model_of
from graft.testkit.models.options import Options
from graft.testkit.models.source import Source

NUMBERS = (-(2**63), -(2**31) - 1, -17, -1, 0, 1, 2, 7, 255, 2**16, 2**31, 2**40, 2**62, 2**63 - 1)
OPERATORS = ("Nonsense", *sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}))
GROWING = ("ConstantOfShape", "Expand", "Tile", "Range", "Pad", "OneHot", "EyeLike", "Resize")
"""Operators whose results may be as large as a constant says."""
SMALL = Options(nodes=(1, 6), special=0.0, older=0.2, symbolic=0.3, control=0.3)


def damaged_model(source: Source) -> bytes:
    """Return the bytes of a valid random model after one to four changes."""
    proto = model_of(source, 0, SMALL).proto
    for _ in range(source.integers(1, 5)):
        CHANGES[source.below(len(CHANGES))](source, proto)
    data = proto.SerializeToString()
    return damaged_bytes(source, data) if source.below(5) == 0 else data


def damaged_bytes(source: Source, data: bytes) -> bytes:
    """Return bytes with some changed, cut off, left out or doubled."""
    held = bytearray(data)
    for _ in range(source.integers(1, 9)):
        if not held:
            break
        start = source.below(len(held))
        match source.below(5):
            case 0:
                held[start] = source.below(256)
            case 1:
                held[start] ^= 1 << source.below(8)
            case 2 if source.below(4) == 0:
                del held[start:]
            case 3:
                del held[start : start + source.below(16)]
            case _:
                held[start:start] = held[start : start + source.below(16)]
    return bytes(held)


def _one(source: Source, things: Any) -> Any:
    return things[source.below(len(things))] if len(things) else None


def _graph(source: Source, proto: onnx.ModelProto) -> onnx.GraphProto:
    """Return the main graph, or a body."""
    graphs = [proto.graph]
    for graph in graphs:
        graphs += [one.g for node in graph.node for one in node.attribute if one.type == AttributeProto.GRAPH]
    found: onnx.GraphProto = _one(source, graphs)
    return found


def _names(graph: onnx.GraphProto) -> list[str]:
    made = [name for node in graph.node for name in node.output]
    return ["", "nothing", *made, *(one.name for one in (*graph.input, *graph.initializer))]


def rename(source: Source, proto: onnx.ModelProto) -> None:
    """Read or write another value: one that is not there, comes later, or has another type."""
    graph = _graph(source, proto)
    if (node := _one(source, graph.node)) is not None:
        names = node.output if source.below(3) == 0 else node.input
        if len(names):
            names[source.below(len(names))] = _one(source, _names(graph))


def move_node(source: Source, proto: onnx.ModelProto) -> None:
    """Leave a node out, write it twice, or make it another operator."""
    graph = _graph(source, proto)
    if not len(graph.node):
        return
    place = source.below(len(graph.node))
    match source.below(4):
        case 0:
            del graph.node[place]
        case 1:
            graph.node.add().CopyFrom(graph.node[place])
        case 2:
            graph.node[place].domain = _one(source, ("ai.onnx.ml", "com.microsoft", "graft.region", "x"))
        case _:
            graph.node[place].op_type = _one(source, OPERATORS)


def change_attribute(source: Source, proto: onnx.ModelProto) -> None:
    """Change a number, the type or the name of an attribute, or drop it."""
    graph = _graph(source, proto)
    node = _one(source, [one for one in graph.node if len(one.attribute)])
    if node is None:
        return
    place = source.below(len(node.attribute))
    attribute = node.attribute[place]
    match source.below(5):
        case 0:
            del node.attribute[place]
        case 1:
            attribute.type = _one(source, (0, 1, 2, 3, 4, 5, 6, 7, 8))
        case 2:
            attribute.name = _one(source, ("axis", "axes", "to", "perm", "kernel_shape", "body", "value"))
        case 3 if len(attribute.ints):
            attribute.ints[source.below(len(attribute.ints))] = _one(source, NUMBERS)
        case _:
            node.attribute[place].CopyFrom(helper.make_attribute(attribute.name or "axis", _one(source, NUMBERS)))


def change_tensor(source: Source, proto: onnx.ModelProto) -> None:
    """Change the type, the extents or the contents of an initialiser, or say that they are in a file."""
    tensor = _one(source, _graph(source, proto).initializer)
    if tensor is None:
        return
    match source.below(5):
        case 0:
            tensor.data_type = source.below(28)
        case 1 if len(tensor.dims):
            tensor.dims[source.below(len(tensor.dims))] = _one(source, NUMBERS)
        case 2:
            tensor.raw_data = tensor.raw_data[: source.below(len(tensor.raw_data) + 1)]
        case 3:
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value=_one(source, ("", "/etc/passwd", "../x", "x\0y")))
        case _:
            numbers = [_one(source, NUMBERS) for _ in range(source.below(5))]
            tensor.CopyFrom(helper.make_tensor(tensor.name, TensorProto.INT64, [len(numbers)], numbers))


def change_value(source: Source, proto: onnx.ModelProto) -> None:
    """Change the type or the shape of an input or an output."""
    graph = _graph(source, proto)
    value = _one(source, [*graph.input, *graph.output, *graph.value_info])
    if value is None:
        return
    kind = value.type.tensor_type
    match source.below(4):
        case 0:
            kind.elem_type = source.below(28)
        case 1:
            kind.ClearField("shape")
        case 2 if len(kind.shape.dim):
            kind.shape.dim[source.below(len(kind.shape.dim))].dim_value = _one(source, NUMBERS)
        case _:
            dim = kind.shape.dim.add()
            dim.dim_param = _one(source, ("n", "2 * n", "n//0", "(", "x0_0 - 9"))


def change_header(source: Source, proto: onnx.ModelProto) -> None:
    """Change versions, or import operator sets twice, or none."""
    match source.below(4):
        case 0:
            proto.ir_version = _one(source, (0, 1, 3, 9, 13, 14, 99, 2**40))
        case 1:
            proto.opset_import[0].version = _one(source, (-1, 0, 1, 6, 9, 13, 25, 27, 99))
        case 2:
            proto.opset_import.add(domain=_one(source, ("", "ai.onnx", "x")), version=source.below(30))
        case _:
            del proto.opset_import[:]
            proto.opset_import.add(domain="x", version=1)


def grow(source: Source, proto: onnx.ModelProto) -> None:
    """Add a constant result as large as a few bytes can say."""
    graph = proto.graph
    number = len(graph.node)
    sizes = [_one(source, (1, 2**8, 2**13, 2**16, 2**20, 2**31)) for _ in range(source.integers(1, 4))]
    graph.initializer.add().CopyFrom(helper.make_tensor(f"sizes{number}", TensorProto.INT64, [len(sizes)], sizes))
    graph.initializer.add().CopyFrom(helper.make_tensor(f"one{number}", TensorProto.FLOAT, [1] * len(sizes), [1.0]))
    name = f"grown{number}"
    kind = _one(source, GROWING[:3])
    inputs = [f"sizes{number}"] if kind == "ConstantOfShape" else [f"one{number}", f"sizes{number}"]
    graph.node.add().CopyFrom(helper.make_node(kind, inputs, [name]))
    graph.node.add().CopyFrom(helper.make_node(_one(source, ("Exp", "Neg", "ReduceMax", "Det")), [name], [f"{name}_y"]))
    graph.output.add().CopyFrom(helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None))


CHANGES: tuple[Callable[[Source, onnx.ModelProto], None], ...] = (
    rename, move_node, change_attribute, change_tensor, change_value, change_header, grow,
)  # fmt: skip
