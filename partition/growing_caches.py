"""Growing caches: an input of the model with more rows behind it leaves the model as an output.

Such a decoder gets its output back as the next input. Where nothing else reads the input, the two may be one memory
(`graft.plugins.codegen.appends`). They are found by what is connected to what; names say nothing.
"""

from __future__ import annotations

from collections.abc import Collection
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


def caches_of_model(model: ir.Model) -> list[GrowingCache]:
    """Return the caches that the main graph of a model grows, one for each input and output."""
    graph = model.graph
    inputs = [value for value in graph.inputs if constant_tensor(value) is None]
    found: dict[ir.Value, GrowingCache] = {}
    taken: set[ir.Value] = set()
    for node in graph:
        cache = _grown(node, inputs)
        if (
            cache is not None
            and cache.present in graph.outputs
            and cache.past not in found
            and cache.present not in taken
        ):
            found[cache.past] = cache
            taken.add(cache.present)
    return list(found.values())


def caches_of_regions(model: ir.Model) -> dict[ir.Node, dict[str, int]]:
    """Return, by call, the outputs of its region by name that may be in the memory of an input, with the axis.

    The input is one of the model that this region alone reads, for its Concat alone; the output is one of the model
    that no other region reads. What only asks for shapes counts for nothing.
    """
    outputs = list(model.graph.outputs)
    found: dict[ir.Node, dict[str, int]] = {}
    for result in outputs:
        call = result.producer()
        function = None if call is None else model.functions.get(call.op_identifier())
        if call is None or function is None or result.uses() or outputs.count(result) != 1:
            continue
        own = function.outputs[call.outputs.index(result)]
        node = own.producer()
        cache = None if node is None else _grown(node, function.inputs, result)
        if cache is None or own is not cache.present or _is_read_elsewhere(cache, function):
            continue
        past = call.inputs[list(function.inputs).index(cache.past)]
        readers = {use.node for use in past.uses() if use.node.op_type != "Shape"} if past is not None else set()
        if past in model.graph.inputs and past not in outputs and readers == {call}:
            found.setdefault(call, {})[own.name or ""] = cache.axis
    return found


def _is_read_elsewhere(cache: GrowingCache, function: ir.Function) -> bool:
    """Whether a region reads the past for more than its Concat."""
    return [use.node for use in cache.past.uses()] != [cache.node] or cache.past in function.outputs


def _grown(node: ir.Node, inputs: Collection[ir.Value], result: ir.Value | None = None) -> GrowingCache | None:
    """Return the cache that a node grows if it is a Concat of an input and one thing more; ``result`` has its shape."""
    if len(node.inputs) != 2 or node.domain not in ("", "ai.onnx") or not has_trait(node, Trait.JOINING):
        return None
    past, shape = node.inputs[0], ValueView(result or node.outputs[0]).shape
    if past is None or past not in inputs or past is node.inputs[1] or not shape:
        return None
    axis = NodeView(node).attribute("axis") % len(shape)
    if isinstance(shape[axis], int):
        return None  # a program of numbers cannot take its output as its next input
    return GrowingCache(node, past, node.outputs[0], axis)
