"""Growing caches: an input of the model with more rows behind it leaves the model as an output.

Such a decoder gets its output back as the next input. Where nothing else reads the input, the two may be one memory
(`graft.plugins.codegen.appends`). They are found by what is connected to what; names say nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView, constant_tensor
from graft.core.operators.definition.table import Trait
from graft.core.rewriting.node_rewrite import has_trait


@dataclass(frozen=True, slots=True)
class GrowingCache:
    """The Concat of an input ``past`` and what comes behind it along ``axis``, which is the output ``present``."""

    node: ir.Node
    past: ir.Value
    present: ir.Value
    axis: int


def growing_caches(
    nodes: Iterable[ir.Node], inputs: Collection[ir.Value], outputs: Collection[ir.Value]
) -> Iterator[GrowingCache]:
    """Yield the caches that nodes grow: Concats of an input and one thing more whose result is an output."""
    for node in nodes:
        if len(node.inputs) != 2 or node.domain not in ("", "ai.onnx") or not has_trait(node, Trait.JOINING):
            continue
        past, present = node.inputs[0], node.outputs[0]
        shape = ValueView(present).shape
        if past is None or past not in inputs or present not in outputs or past is node.inputs[1] or not shape:
            continue
        axis = NodeView(node).attribute("axis") % len(shape)
        if isinstance(shape[axis], int):
            continue  # a program of numbers cannot take its output as its next input
        yield GrowingCache(node, past, present, axis)


def caches_of_model(model: ir.Model) -> list[GrowingCache]:
    """Return the caches that the main graph of a model grows, one for each input and output."""
    graph = model.graph
    inputs = [value for value in graph.inputs if constant_tensor(value) is None]
    found: dict[ir.Value, GrowingCache] = {}
    taken: set[ir.Value] = set()
    for cache in growing_caches(graph, inputs, graph.outputs):
        if cache.past not in found and cache.present not in taken:
            found[cache.past] = cache
            taken.add(cache.present)
    return list(found.values())


def caches_of_region(model: ir.Model, call: ir.Node, function: ir.Function) -> dict[str, int]:
    """Return the outputs of a region, by name, that may be in the memory of one of its inputs, with the axis.

    The input is one of the model that this region alone reads, for its Concat alone; the output is one of the model
    that no other region reads. What only asks for shapes counts for nothing.
    """
    if call.graph is not model.graph:
        return {}
    given = dict(zip(function.inputs, call.inputs, strict=True))
    results = dict(zip(function.outputs, call.outputs, strict=True))
    found = {}
    for cache in growing_caches(function, function.inputs, function.outputs):
        past, present = given[cache.past], results[cache.present]
        readers = {use.node for use in past.uses() if use.node.op_type != "Shape"} if past is not None else set()
        is_input = past in model.graph.inputs and past not in model.graph.outputs
        is_output = list(model.graph.outputs).count(present) == 1 and not present.uses()
        own = [use.node for use in cache.past.uses()] == [cache.node] and cache.past not in function.outputs
        if is_input and is_output and own and readers == {call}:
            found[cache.present.name or ""] = cache.axis
    return found
