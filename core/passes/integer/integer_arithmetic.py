"""Quantised models compute in integers, whichever way they say it: QDQ or QLinear operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from graft.core.graph.traversal import all_graphs
from graft.core.passes.eliminate_dead_code import EliminateDeadCode
from graft.core.passes.integer.integer_products import rewrite_product
from graft.core.passes.integer.move_layouts import sink_transpositions
from graft.core.passes.integer.requantization import (
    make_unsigned,
    may_stay_in_floats,
    move_integers,
    pool_integers,
    simplify_quantization,
    stay_in_floats,
)
from graft.core.rewriting.node_pass import Names


@dataclass(frozen=True)
class IntegerArithmetic:
    """Rewrite quantised models of 8 bits, with scales and zero points that are constant.

    1. int8 activations that are only dequantised become uint8
    2. what only moves elements, or takes the largest, does so before they are dequantised
    3. Conv, MatMul and Gemm of a dequantised activation and constant dequantised weights, QLinearConv and
       QLinearMatMul become ConvInteger or MatMulInteger of uint8 and int8, a shift, a factor
    4. GlobalAveragePool becomes a sum of integers
    5. quantising takes in the factor before it, and Relu and Clip where numbers saturate
    6. convolutions in the plane have their channels last; so has what lies between them
    7. what is quantised only to be dequantised again is rounded and clamped as floats, behind its product

    What QLinear operators compute stays the same to the bit (5: QuantizeLinear by 1). In QDQ form results differ by
    rounding in float32 before they are quantised: by one step of the scale at most.
    """

    name: ClassVar[str] = "integer-arithmetic"

    def run(self, model: ir.Model) -> bool:
        """Change ``model`` in place and return whether anything changed."""
        changed = False
        for graph in list(all_graphs(model)):
            if any("Linear" in node.op_type for node in graph):
                changed |= _rewrite(graph, Names(model))
        if changed:
            EliminateDeadCode().run(model)
        return changed


def _rewrite(graph: ir.Graph, names: Names) -> bool:
    changed = False
    for node in list(graph):
        changed |= make_unsigned(node, names)  # case 1
    for node in list(graph):
        # A node that is replaced is in no graph any more; the next steps look at what is new in the next round.
        changed |= move_integers(node, names) or rewrite_product(node, names) or pool_integers(node, names)  # cases 2-4
    for node in list(graph):
        while node.graph is graph and simplify_quantization(node, names):  # case 5
            changed = True
    changed |= sink_transpositions(graph, names)  # case 6
    order = {node: number for number, node in enumerate(graph)}
    chosen = [node for node in order if may_stay_in_floats(node, order)]
    for node in chosen:  # case 7
        stay_in_floats(node, names)
    return changed or bool(chosen)
