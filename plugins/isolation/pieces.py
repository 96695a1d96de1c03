"""Pieces of a model as bytes, for a plugin in another process: nodes, what a pattern matched, a region.

A piece is an ONNX model of its own: what it reads from outside are typed inputs, or initialisers where it is constant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import onnx
import onnx_ir as ir

from graft.core.differentiation.reverse import pull
from graft.core.graph.view import constant_tensor
from graft.core.importer.upgrade import OPSET
from graft.core.operators.definition.adjoint import Adjoint, Vjp
from graft.core.operators.definition.function_body import Body
from graft.partition.region import REGION_DOMAIN, Region, regions

IR_VERSION = 10
LARGEST_CONSTANT = 64 << 10
"""Bytes of a constant that a derivative sees the contents of."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes of a model, producers before consumers; the last is the one that is asked about."""

    model: bytes
    captures: Mapping[str, str | None]
    """Of a match: the values that it captured, by the pattern's names."""


@dataclass(frozen=True, slots=True)
class RegionPiece:
    """A region: a partitioned model that calls it once, and what such a model does not say."""

    model: bytes
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Derivative:
    """What the derivative of a composite sees: a node that stands for it, and what is known of its values."""

    node: bytes
    types: Mapping[str, bytes]
    constants: Mapping[str, bytes]
    gradients: Mapping[str, str]
    varied: tuple[str, ...]


def write_adjoint(f: Adjoint) -> Derivative:
    """Return what a derivative sees as bytes; of constants those of at most 64 KiB."""
    gradients = {name: f.upstream(number) for number, name in enumerate(f.node.output) if f.has_gradient(number)}
    names = [name for name in (*f.node.input, *f.node.output, *gradients.values()) if name]
    constants = {name: f.data[name] for name in names if name in f.data and f.data[name].ByteSize() <= LARGEST_CONSTANT}
    return Derivative(
        f.node.SerializeToString(),
        {name: f.types[name].SerializeToString() for name in names if name in f.types},
        {name: tensor.SerializeToString() for name, tensor in constants.items()},
        gradients,
        tuple(name for name in f.inputs if f.is_varied(name)),
    )


def derivative_of(piece: Derivative, rule: Vjp) -> tuple[list[bytes], list[str]]:
    """Return the nodes that a rule writes, and the names of the gradients that it gives."""
    types = {name: onnx.TypeProto.FromString(data) for name, data in piece.types.items()}
    constants = {name: onnx.TensorProto.FromString(data) for name, data in piece.constants.items()}
    numbers, node = count(), onnx.NodeProto.FromString(piece.node)
    known = {*node.input, *node.output, *piece.gradients.values()}

    def fresh(stem: str) -> str:
        return next(name for number in numbers if (name := f"{stem}/{number}") not in known)

    f = Adjoint(node, Body(node, types, constants, fresh), piece.gradients, piece.varied, pull)
    gradients = list(rule(f))
    return [node.SerializeToString() for node in f.nodes], gradients


def add_derivative(f: Adjoint, nodes: Sequence[bytes], gradients: Sequence[str]) -> list[str]:
    """Write nodes of another process behind what a derivative has; return the gradients by their names here."""
    names: dict[str, str] = {}
    for data in nodes:
        node = onnx.NodeProto.FromString(data)
        node.input[:] = [names.get(name, name) for name in node.input]
        names.update({name: f.fresh(name) for name in node.output if name})
        node.output[:] = [names.get(name, "") for name in node.output]
        node.name = node.output[0]
        f.add(node)
    return [names.get(name, name) for name in gradients]


def write_nodes(nodes: Sequence[ir.Node], captures: Mapping[str, ir.Value | None]) -> Nodes | None:
    """Return nodes as bytes; None for control flow, whose bodies read values of any place."""
    kinds = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    if any(attribute.type in kinds for node in nodes for attribute in node.attributes.values()):
        return None
    numbers = count()
    values: dict[ir.Value, ir.Value] = {}

    def copy_of(value: ir.Value) -> ir.Value:
        if value not in values:
            new = ir.Value(name=value.name or f"unnamed_{next(numbers)}", shape=value.shape, type=value.type)
            values[value] = new
        return values[value]

    made = []
    for node in nodes:
        inputs = [None if value is None else copy_of(value) for value in node.inputs]
        outputs = [copy_of(value) for value in node.outputs]
        made.append(
            ir.Node(
                node.domain, node.op_type, inputs, list(node.attributes.values()), outputs=outputs, name=node.name,
                version=node.version,
            )
        )  # fmt: skip
        made[-1].metadata_props.update(node.metadata_props)
    inner = {value for node in nodes for value in node.outputs}
    outside = [value for value in values if value not in inner]
    constants = []
    for value in outside:
        tensor = constant_tensor(value)
        if tensor is not None:
            values[value].const_value = tensor
            constants.append(values[value])
    given = [values[value] for value in outside if constant_tensor(value) is None]
    results = [values[value] for value in nodes[-1].outputs]
    graph = ir.Graph(given, results, nodes=made, initializers=constants, opset_imports=_opsets(nodes), name="piece")
    named = {name: values[value].name if value in values else None for name, value in captures.items()}
    return Nodes(_bytes_of(ir.Model(graph, ir_version=IR_VERSION)), named)


def read_nodes(piece: Nodes) -> list[ir.Node]:
    """Return the nodes of a piece, producers before consumers."""
    return list(_model_of(piece.model).graph)


def write_region(region: Region) -> RegionPiece:
    """Return a region as bytes, constants included."""
    function = region.function.clone()
    values = {}
    for value in region.function.inputs:
        new = ir.Value(name=value.name, shape=value.shape, type=value.type)
        new.const_value = region.constants.get(value.name or "")
        values[value.name] = new
    results = [ir.Value(name=value.name, shape=value.shape, type=value.type) for value in region.function.outputs]
    call = ir.Node(REGION_DOMAIN, function.name, list(values.values()), outputs=results, name=function.name)
    given = [value for value in values.values() if value.const_value is None]
    constants = [value for value in values.values() if value.const_value is not None]
    composites = [composite.clone() for composite in region.composites.values()]
    domains = {REGION_DOMAIN: 1, **{composite.domain: 1 for composite in composites}, "": OPSET}
    graph = ir.Graph(given, results, nodes=[call], initializers=constants, opset_imports=domains, name="region")
    model = ir.Model(graph, ir_version=IR_VERSION, functions=[function, *composites])
    facts = {"origin": region.origin, "caches": dict(region.caches), "typical": dict(region.typical)}
    return RegionPiece(_bytes_of(model), facts)


def read_region(piece: RegionPiece) -> Region:
    """Return the region of a piece."""
    (region,) = regions(_model_of(piece.model))
    return replace(region, **piece.facts)


def _opsets(nodes: Sequence[ir.Node]) -> dict[str, int]:
    return {**{node.domain: node.version or 1 for node in nodes}, "": OPSET}


def _bytes_of(model: ir.Model) -> bytes:
    return bytes(ir.to_proto(model).SerializeToString())


def _model_of(data: bytes) -> ir.Model:
    model: ir.Model = ir.from_proto(onnx.ModelProto.FromString(data))
    return model
