"""Constant weights of float4e2m1, and scales of float8e8m0: kept as types that every backend has.

Twice a number of float4e2m1 is a whole one, from -12 to 12: DequantizeLinear of int8, by half the scale, gives the same
(but for the sign of 0). A scale of float8e8m0 is a power of two, which float32 holds.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from graft.core.graph.traversal import all_graphs
from graft.core.rewriting.node_pass import Names
from graft.core.rewriting.node_rewrite import add_constant, constant_of, is_operator

ELEMENTS, SCALE, POINT = range(3)
FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


Known = dict[tuple[ir.Value, bool, np.dtype[np.generic]], ir.Value]
"""The constants that stand for others now, by whether they are for float4e2m1, and their type."""


def widen_small_floats(model: ir.Model) -> int:
    """Widen the constants of DequantizeLinear that can be, in place; return how many nodes have others now."""
    count, known = 0, Known()
    names = Names(model)
    for graph in all_graphs(model):
        for node in graph:
            if is_operator(node, "DequantizeLinear") and isinstance(graph, ir.Graph):
                count += _widen(node, graph, names, known)
    return count


def _widen(node: ir.Node, graph: ir.Graph, names: Names, known: Known) -> bool:
    elements, scale = node.inputs[ELEMENTS], node.inputs[SCALE]
    kind = node.outputs[0].dtype
    is_small = elements is not None and elements.dtype is ir.DataType.FLOAT4E2M1
    is_power = scale is not None and scale.dtype is ir.DataType.FLOAT8E8M0
    factors, numbers = constant_of(scale), constant_of(elements)
    if not (is_small or is_power) or factors is None or scale is None or elements is None or kind not in FLOATS:
        return False
    if is_small and (numbers is None or (len(node.inputs) > POINT and node.inputs[POINT] is not None)):
        return False
    wide = factors.astype(np.float32) * np.float32(0.5 if is_small else 1)
    exact = wide.astype(kind.numpy()) if is_power else wide.astype(factors.dtype)
    if not np.array_equal(exact.astype(np.float32), wide, equal_nan=True):
        return False

    def replace(place: int, old: ir.Value, array: np.ndarray) -> None:
        key = (old, is_small, array.dtype)
        if key not in known:
            known[key] = add_constant(graph, names.fresh(f"{old.name}_widened"), array)
        node.replace_input_with(place, known[key])
        if old.name is not None and old.name in graph.initializers and not (old.uses() or old.is_graph_output()):
            del graph.initializers[old.name]

    replace(SCALE, scale, exact)
    if is_small and numbers is not None:
        replace(ELEMENTS, elements, (numbers.astype(np.float32) * 2).astype(np.int8))
    return True
