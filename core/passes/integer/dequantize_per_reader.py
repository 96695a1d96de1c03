"""A DequantizeLinear for each reader: what a quantised layer reads and makes are integers, and nothing is shared.

Exporters let all readers of a tensor share one DequantizeLinear, and put views between it and them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from graft.core.passes.integer.quantized_tensors import Emitter, activation, quantization_of
from graft.core.rewriting.node_pass import Names
from graft.core.rewriting.node_rewrite import constant_of, is_operator, origin_of, sole_use

VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose")


@dataclass(frozen=True)
class DequantizePerReader:
    """Move dequantisation to what reads numbers, and quantisation to what makes them; nothing is computed otherwise.

    1. a DequantizeLinear that several nodes read becomes one for each
    2. a view of dequantised bytes becomes a view of bytes, dequantised
    3. quantised numbers of a view become a view of quantised numbers
    4. bytes that are dequantised and quantised alike are what they were
    """

    name: ClassVar[str] = "dequantize-per-reader"

    def run(self, model: ir.Model) -> bool:
        """Change ``model`` in place and return whether anything changed."""
        names, changed = Names(model), False
        for case in (_view_of_bytes, _bytes_of_view, _without_pair, _one_each):
            for node in list(model.graph):
                if node.graph is not None:
                    changed |= case(node, names)
        for node in reversed(list(model.graph)):
            output = node.outputs[0]
            if is_operator(node, "DequantizeLinear", *VIEWS) and not output.uses() and not output.is_graph_output():
                model.graph.remove(node, safe=True)
                changed = True
        return changed


def _one_each(node: ir.Node, names: Names) -> bool:  # case 1
    if not is_operator(node, "DequantizeLinear"):
        return False
    output, graph = node.outputs[0], node.graph
    assert graph is not None, f"'{node.name}' is in no graph"
    uses = list(output.uses())
    kept = 0 if output.is_graph_output() else 1
    inside = [use for use in uses[kept:] if use.node.graph is graph]
    for use in inside:
        attributes = [attribute for attribute in node.attributes.values() if isinstance(attribute, ir.Attr)]
        new = ir.Node(node.domain, node.op_type, node.inputs, attributes, name=names.fresh(f"{node.name}_again"))
        new.metadata_props.update(origin_of(node))
        graph.insert_before(use.node, new)
        copy = new.outputs[0]
        copy.name, copy.type, copy.shape = names.fresh(f"{output.name}_again"), output.type, output.shape
        use.node.replace_input_with(use.idx, copy)
    return bool(inside)


def _view_of_bytes(node: ir.Node, names: Names) -> bool:  # case 2
    if not is_operator(node, *VIEWS) or node.outputs[0].is_graph_output() or not node.outputs[0].uses():
        return False
    found = activation(node.inputs[0])
    if found is None or constant_of(found[0]) is not None:
        return False
    emitter, output = Emitter(node, names), node.outputs[0]
    view = emitter.emit(node.op_type, [found[0], *node.inputs[1:]], found[0].dtype, output.shape, **_attributes(node))
    emitter.replace(emitter.dequantize(view, found[1]))
    return True


def _bytes_of_view(node: ir.Node, names: Names) -> bool:  # case 3
    meaning = quantization_of(node, "QuantizeLinear")
    view = None if meaning is None or node.inputs[0] is None else node.inputs[0].producer()
    if meaning is None or not meaning.per_tensor or view is None or not is_operator(view, *VIEWS):
        return False
    source, output = view.inputs[0], node.outputs[0]
    if source is None or not sole_use(view.outputs[0]) or not sole_use(source) or output.dtype is None:
        return False
    emitter = Emitter(node, names)
    inner = emitter.quantize(source, float(meaning.factor), meaning.point, output.dtype)
    emitter.replace(
        emitter.emit(view.op_type, [inner, *view.inputs[1:]], output.dtype, output.shape, **_attributes(view))
    )
    return True


def _without_pair(node: ir.Node, names: Names) -> bool:  # case 4
    meaning, before = quantization_of(node, "QuantizeLinear"), activation(node.inputs[0] if node.inputs else None)
    if meaning is None or before is None or not before[1].equals(meaning):
        return False
    if before[0].dtype is not node.outputs[0].dtype:
        return False
    Emitter(node, names).replace(before[0])
    return True


def _attributes(node: ir.Node) -> dict[str, object]:
    return {name: attribute.value for name, attribute in node.attributes.items()}
