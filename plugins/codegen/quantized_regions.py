"""Quantised regions in integer arithmetic: rewritten here, so that other backends saw the operators of the model."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import onnx_ir as ir

from graft.core.model.normalize import PASSES
from graft.core.model.passes.fold_constants import FoldConstants
from graft.core.model.passes.integer_arithmetic import IntegerArithmetic
from graft.core.model.passes.pipeline import Pipeline
from graft.core.model.passes.terms_first import TermsFirst
from graft.core.model.view import ValueView
from graft.partition.region import Region

BEHIND = (
    "eliminate-identity", "canonicalize-operators", "canonicalize-shapes", "move-transposes",
    "eliminate-common-subexpressions", "eliminate-dead-code",
)  # fmt: skip
"""The standard passes that tidy up what the rewriting leaves."""


def in_integers(region: Region, without: Collection[str] = ()) -> Region:
    """Return a quantised region with its products in integers, any other as it is; the region's body is changed.

    ``without`` names optimisations and passes that are left out: without ``integer-arithmetic``, dequantised weights
    still become constants.
    """
    if not any("Linear" in node.op_type for node in region.function):
        return region
    model = _model_of(region)
    first = () if IntegerArithmetic.name in without else (IntegerArithmetic(),)
    passes = (
        *first,
        TermsFirst(),
        FoldConstants(dequantize=True),
        *(PASSES[name]() for name in BEHIND if name not in without),
    )
    Pipeline(passes).run(model, verify=False)
    return _region_of(region, model)


def _model_of(region: Region) -> ir.Model:
    """Return a model whose graph is the region's body; what is constant becomes an initialiser."""
    graph = region.function.graph
    for value in [value for value in graph.inputs if value.const_value is not None]:
        graph.inputs.remove(value)
        graph.initializers.add(value)
    graph.opset_imports.update(region.function.opset_imports)
    return ir.Model(graph, ir_version=10)


def _region_of(region: Region, model: ir.Model) -> Region:
    """Return the region with the model's graph as its body."""
    graph = model.graph
    constants = {name: value.const_value for name, value in graph.initializers.items() if value.const_value is not None}
    for name, value in list(graph.initializers.items()):
        graph.initializers.pop(name)
        graph.inputs.append(value)
    known = region.function
    body = ir.Function(known.domain, known.name, known.overload, graph=graph, attributes=known.attributes.values())
    body.metadata_props.update(known.metadata_props)
    inputs = tuple(ValueView(value) for value in graph.inputs if value.const_value is None)
    outputs = tuple(ValueView(value) for value in graph.outputs)
    return replace(region, function=body, inputs=inputs, outputs=outputs, constants=constants)
