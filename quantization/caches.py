"""Caches: keys and values that a decoder takes as inputs, and gives with new rows as outputs.

A cache is found by the operator that adds the rows: Concat, TensorScatter, or Attention with a past.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from graft.core.operators.definition.table import Trait
from graft.core.rewriting.node_rewrite import has_trait, is_operator

PAST: Mapping[str, Mapping[int, int]] = {"TensorScatter": {0: 0}, "Attention": {1: 4, 2: 5}}
"""By operator: the outputs that are caches, each with the input that it was before; one that joins has its first."""


@dataclass(frozen=True, slots=True)
class Cache:
    """An input of a model, and the output that has new rows as well."""

    past: ir.Value
    present: ir.Value


def caches_made(node: ir.Node) -> Iterator[Cache]:
    """Yield the caches of a model that a node adds rows to."""
    known = PAST[node.op_type] if is_operator(node, *PAST) else {0: 0} if has_trait(node, Trait.JOINING) else {}
    for output, place in known.items():
        past = node.inputs[place] if place < len(node.inputs) else None
        present = node.outputs[output] if output < len(node.outputs) else None
        if past is None or present is None or past.dtype is not ir.DataType.FLOAT:
            continue
        if past.is_graph_input() and not past.is_initializer() and present.is_graph_output():
            yield Cache(past, present)


def caches_of(graph: ir.Graph) -> Iterator[Cache]:
    """Yield the caches of a graph."""
    for node in graph:
        yield from caches_made(node)


def with_inputs_of(codes: ir.Model, floats: ir.Model) -> ir.Model:
    """Return a quantised model that takes and gives the caches of its float model: floats where it has codes."""
    kinds = {value.name: value.dtype for value in (*floats.graph.inputs, *floats.graph.outputs)}
    if all(kinds.get(value.name, value.dtype) is value.dtype for value in (*codes.graph.inputs, *codes.graph.outputs)):
        return codes
    whole = codes.clone()
    graph = whole.graph
    for place, value in enumerate(graph.inputs):
        if kinds.get(value.name, value.dtype) is not value.dtype:
            given = ir.Value(name=value.name, type=ir.TensorType(ir.DataType.FLOAT), shape=value.shape)
            value.name = f"{value.name}_codes"
            kind = {"output_dtype": int(value.dtype)} if value.dtype is not None else {}
            there = ir.node("QuantizeLinear", [given, *_scale_of(value)], attributes=kind, name=f"{value.name}_given")
            there.outputs[0].type, there.outputs[0].shape = value.type, value.shape
            graph.inputs[place] = given
            graph.insert_before(graph[0], there)
            value.replace_all_uses_with(there.outputs[0])
    for place, value in enumerate(graph.outputs):
        if kinds.get(value.name, value.dtype) is not value.dtype:
            back = ir.node("DequantizeLinear", [value, *_scale_of(value)], name=f"{value.name}_given")
            back.outputs[0].type, back.outputs[0].shape = ir.TensorType(ir.DataType.FLOAT), value.shape
            back.outputs[0].name, value.name = value.name, f"{value.name}_codes"
            graph.append(back)
            graph.outputs[place] = back.outputs[0]
    return whole


def _scale_of(value: ir.Value) -> list[ir.Value | None]:
    """Return what codes are scaled by, as a DequantizeLinear or QuantizeLinear beside them has it."""
    users = [use.node for use in value.uses()]
    node = next((one for one in users if is_operator(one, "DequantizeLinear")), value.producer())
    if node is None:  # an input whose codes are joined to those of new rows
        return _scale_of(users[0].outputs[0])
    return list(node.inputs[1:])
