"""The code generator of JSON backends: a region becomes a `JsonGraph`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView, constant_tensor, dtype_of
from graft.core.shapes.symbolic_shapes import dimensions_of
from graft.errors import CompileError
from graft.partition.region import Operand, Region
from graft.plugins.graph_symbols import GraphSymbols
from graft.plugins.json_graph import ABSENT, BodyOperator, Entry, JsonGraph, JsonNode


def serialize(region: Region, symbols: GraphSymbols | None = None) -> tuple[JsonGraph, dict[str, np.ndarray]]:
    """Return the region as a graph, and the contents of its constants by name.

    A composite becomes one kernel named after it, any other operator a kernel of its own; a Constant node becomes a
    constant. Shapes that vary are in terms of what the region's inputs say, or of ``symbols``. Raises
    CompileError for an operator that holds a graph (If, Loop, Scan) or a value of unknown dtype.
    """
    nodes: list[JsonNode] = []
    entries: dict[str, Entry] = {}
    constants: dict[str, np.ndarray] = {}
    shapes = [dimensions_of(value.value) for value in region.inputs]
    symbols = symbols or GraphSymbols.of([value.name for value in region.inputs], shapes)
    for value, shape in zip(region.inputs, shapes, strict=True):
        entries[value.name] = Entry(len(nodes))
        nodes.append(JsonNode("input", value.name, (value.dtype,), (symbols.shape(shape),)))
    for name, tensor in region.constants.items():
        entries[name] = Entry(len(nodes))
        nodes.append(_const(name, tensor))
        constants[name] = tensor.numpy()
    for node in region.nodes():
        entries |= {output.name: Entry(len(nodes), index) for index, output in enumerate(node.outputs)}
        contents = constant_tensor(node.node.outputs[0]) if node.op_type == "Constant" else None
        if contents is None:
            nodes.append(_kernel(region, node, entries, symbols))
        else:
            nodes.append(_const(node.outputs[0].name, contents))
            constants[node.outputs[0].name] = contents.numpy()
    heads = tuple(entries[value.name] for value in region.outputs)
    return JsonGraph(region.name, tuple(nodes), heads, tuple(symbols)), constants


def _const(name: str, tensor: ir.TensorProtocol) -> JsonNode:
    return JsonNode("const", name, (dtype_of(tensor.dtype),), (tuple(int(extent) for extent in tensor.shape.numpy()),))


def _kernel(region: Region, node: NodeView, entries: Mapping[str, Entry], symbols: GraphSymbols) -> JsonNode:
    composite = region.composite(node)
    operands = region.operands(node)
    present = [index for index, operand in enumerate(operands) if operand.value is not None]
    if composite is None:
        name, body = node.op_type, [node]
        inputs, outputs = [value for value in node.node.inputs if value is not None], list(node.node.outputs)
    else:
        name, function = composite
        body = [NodeView(inner) for inner in function]
        inputs, outputs = list(function.inputs), list(function.outputs)
    places = {value.name: (-1, index) for value, index in zip(inputs, present, strict=True)}
    operators = _body(body, places)
    return JsonNode(
        op="kernel",
        name=name,
        dtype=tuple(_dtype(node, value) for value in node.outputs),
        shape=tuple(symbols.shape(dimensions_of(value.value)) for value in node.outputs),
        inputs=tuple(Entry(ABSENT) if one.value is None else entries[one.value.name] for one in operands),
        attributes=_flat(operators),
        body=operators,
        results=tuple(places[value.name] for value in outputs),
        origin=tuple(inner.name for inner in body),
        operands=_positions(operands),
    )


def _positions(operands: Sequence[Operand]) -> dict[str, tuple[int, ...]]:
    """Return which operands every capture name stands for: several where a pattern repeats."""
    names = dict.fromkeys(name for operand in operands for name in operand.names)
    return {name: tuple(index for index, one in enumerate(operands) if name in one.names) for name in names}


def _body(nodes: Iterable[NodeView], places: dict[str | None, tuple[int, int]]) -> tuple[BodyOperator, ...]:
    """Return the operators of a kernel; ``places`` maps value names to where they come from, and is filled in."""
    operators = []
    for number, node in enumerate(nodes):
        sources = tuple(None if value is None else places[value.name] for value in node.inputs)
        operators.append(BodyOperator(node.op_type, sources, _attributes(node), node.domain))
        places |= {value.name: (number, index) for index, value in enumerate(node.outputs)}
    return tuple(operators)


def _flat(operators: tuple[BodyOperator, ...]) -> dict[str, Any]:
    names = [name for operator in operators for name in operator.attributes]
    pairs = [pair for operator in operators for pair in operator.attributes.items()]
    return {name: value for name, value in pairs if names.count(name) == 1}


def _dtype(node: NodeView, value: ValueView) -> str:
    if not value.dtype:
        raise CompileError(
            f"{node.where}: output '{value.name}' has no known dtype, but a JSON graph states one for every output; "
            "reject the node in supports()",
            node=node.name,
        )
    return value.dtype


def _attributes(node: NodeView) -> dict[str, Any]:
    """Return all attributes of a node, with the ONNX schema's defaults filled in, sorted by name."""
    values = _defaults(node)
    for name, attribute in node.node.attributes.items():
        if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
            raise CompileError(
                f"{node.where}: attribute '{name}' is a graph, which a JSON graph cannot hold; "
                "reject the node in supports()",
                node=node.name,
            )
        values[name] = _plain(attribute.value)
    return dict(sorted(values.items()))


def _defaults(node: NodeView) -> dict[str, Any]:
    import onnx
    from onnx import helper

    version = node.node.version
    graph = node.node.graph
    if version is None and graph is not None:
        version = graph.opset_imports.get(node.domain)
    try:
        schema = onnx.defs.get_schema(node.op_type, version or onnx.defs.onnx_opset_version(), node.domain)
    except onnx.defs.SchemaError:
        return {}
    rows = ((name, row.default_value) for name, row in schema.attributes.items() if row.default_value.name)
    return {name: _plain(helper.get_attribute_value(value)) for name, value in rows}


def _plain(value: Any) -> Any:
    """Return an attribute's value as JSON values."""
    match value:
        case bool() | int() | str() | None:
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return value.decode()
        case ir.TensorProtocol():
            array = value.numpy()
            return {
                "dtype": dtype_of(value.dtype),
                "shape": list(array.shape),
                "data": [_plain(item) for item in array.ravel().tolist()],
            }
        case _:
            return [_plain(item) for item in value]
