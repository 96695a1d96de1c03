"""Quantised regions in integer arithmetic: rewritten here, so that other backends saw the operators of the model."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.passes.integer.integer_arithmetic import IntegerArithmetic
from graft.core.passes.normalize import PASSES
from graft.core.passes.pipeline import Pipeline
from graft.core.passes.weights_k_major import WeightsKMajor
from graft.core.rewriting.fold_constants import GROWTH, FoldConstants
from graft.core.rewriting.node_pass import Names
from graft.core.rewriting.node_rewrite import hand_over
from graft.partition.region import Region
from graft.plugins.codegen.region_models import model_of, region_of

BEHIND = (
    "eliminate-identity", "canonicalize-operators", "canonicalize-shapes", "move-transposes",
    "eliminate-common-subexpressions", "eliminate-dead-code",
)  # fmt: skip
"""The standard passes that tidy up what the rewriting leaves."""
EIGHTHS = frozenset({"float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"})
"""Types that no kernel reads: numbers of them are widened when a region is compiled."""


def widens_eighths(node: NodeView) -> bool:
    """Whether a node widens constants of 8-bit floats, which `in_integers` does at compile time."""
    given = [value for value in node.inputs if value is not None]
    return node.op_type == "DequantizeLinear" and node.dtype in EIGHTHS and all(one.is_constant for one in given)


def in_integers(region: Region, without: Collection[str] = ()) -> Region:
    """Return a quantised region with its products in integers, any other as it is; the region's body is changed.

    ``without`` names optimisations and passes that are left out: without ``integer-arithmetic``, dequantised weights
    still become constants.
    """
    if not any("Linear" in node.op_type for node in region.function):
        return region
    model = model_of(region)
    eighths = _keep_from_outputs(model)
    first = () if IntegerArithmetic.name in without else (IntegerArithmetic(),)
    passes = (
        *first,
        WeightsKMajor(),
        FoldConstants(total=FoldConstants.total + GROWTH * eighths, dequantize=True),
        *(PASSES[name]() for name in BEHIND if name not in without),
    )
    Pipeline(passes).run(model, verify=False)
    return region_of(region, model)


def _keep_from_outputs(model: ir.Model) -> int:
    """Put an Identity behind each widening of 8-bit floats that is an output, so that it may become a constant.

    Return the bytes of the constants that are widened.
    """
    graph, names, constants = model.graph, Names(model), set()
    for node in [node for node in graph if widens_eighths(NodeView(node))]:
        constants.add(node.inputs[0])
        value = node.outputs[0]
        if value.is_graph_output():
            copy = ir.node("Identity", [value])
            graph.insert_after(node, copy)
            copy.outputs[0].type, copy.outputs[0].shape = value.type, value.shape
            hand_over(value, copy.outputs[0])
            copy.replace_input_with(0, value)
            value.name = names.fresh(f"{copy.outputs[0].name}_widened")
    return sum(one.const_value.nbytes for one in constants if one is not None and one.const_value is not None)
