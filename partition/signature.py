"""The signature of a composite: its operands and results in the order in which its pattern is written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from graft.partition.copying import ValueMap, copy_value
from graft.partition.graph import IndexedGraph, unique_name
from graft.partition.merge_composite import Group
from graft.partition.units import Unit
from graft.patterns.graph_matching import roots_of
from graft.patterns.matcher import value_of
from graft.patterns.operands import Operand


def signature_text(operands: Sequence[Operand]) -> str:
    """Return the operands as JSON that `graft.partition.region.operands_of` reads: names, and which are absent."""
    rows = [{"names": one.names, **({} if one.value is not None else {"absent": True})} for one in operands]
    return json.dumps(rows, ensure_ascii=False)


def operands_of(graph: IndexedGraph, unit: Unit, group: Group) -> list[Operand]:
    """Return a composite's operands: those of its match, then whatever else its nodes read from outside."""
    body = {graph.nodes[index] for index in unit.body}
    found = list(group.match.operands)
    known = {place for operand in found for place in operand.places}
    for index in unit.body:
        node = graph.nodes[index]
        for place, value in enumerate(node.inputs):
            if value is not None and value.producer() not in body and (node, place) not in known:
                found.append(Operand(value, (), ((node, place),)))
    return found


def formal_inputs(operands: Sequence[Operand], inner: ValueMap, copies: Mapping[ir.Node, ir.Node]) -> list[ir.Value]:
    """Return a value for every operand that is present; operands that are one value become two inputs."""
    inputs: dict[ir.Value, None] = {}
    names = {value.name or "" for node in copies.values() for value in (*node.inputs, *node.outputs) if value}
    for operand in operands:
        if operand.value is None:
            continue
        formal = inner[operand.value]
        if formal in inputs:
            formal = copy_value(formal, formal.const_value)
            formal.name = unique_name(formal.name or "", names)
            for node, index in operand.places:
                copies[node].replace_input_with(index, formal)
        inputs[formal] = None
    return list(inputs)


def results_of(graph: IndexedGraph, unit: Unit, group: Group, needed: set[ir.Value]) -> list[ir.Value]:
    """Return a composite's results: the pattern's outputs, as it is written, whether they are needed or not.

    Behind them stand further outputs of the same nodes, of each up to the last one that is needed outside.
    """
    match = group.match
    roots = [value_of(pattern, match.bindings) for pattern in roots_of(group.composite.pattern)]
    own = {graph.nodes[index] for index in unit.nodes}
    found = dict.fromkeys(value for value in roots if value is not None and value.producer() in own)
    if not found:
        root = value_of(group.composite.pattern, match.bindings)
        found = dict.fromkeys([root if root is not None else match.root.node.outputs[0]])
    for node in dict.fromkeys(value.producer() for value in found):
        outputs = list(node.outputs) if node is not None else []
        last = max((index for index, value in enumerate(outputs) if value in needed), default=-1)
        found.update(dict.fromkeys(outputs[: last + 1]))
    written = (value for index in unit.nodes for value in graph.nodes[index].outputs if value in needed)
    return list(dict.fromkeys((*found, *written)))
