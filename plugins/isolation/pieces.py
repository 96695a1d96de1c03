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

from graft.core.graph.view import constant_tensor
from graft.core.importer.upgrade import OPSET
from graft.partition.region import REGION_DOMAIN, Region, regions

IR_VERSION = 10


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
