"""A region's body as the graph of a model, for passes that rewrite it, and back."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from graft.core.graph.view import ValueView
from graft.partition.region import Region


def model_of(region: Region) -> ir.Model:
    """Return a model whose graph is the region's body; what is constant becomes an initialiser."""
    graph = region.function.graph
    for value in [value for value in graph.inputs if value.const_value is not None]:
        graph.inputs.remove(value)
        graph.initializers.add(value)
    graph.opset_imports.update(region.function.opset_imports)
    return ir.Model(graph, ir_version=10)


def region_of(region: Region, model: ir.Model) -> Region:
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
