"""A model of an open batch as a Scan over its samples, for backends that compute one sample at a time.

That each sample is for itself is proven by the operators' own lowerings, as it is for kernels that are scheduled by
the image (`graft.core.schedule.loops.one_image`); a model of which it is not proven stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from graft.core.graph.view import NodeView, ValueView
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.table import Trait
from graft.core.operators.definition.varying import refused
from graft.core.operators.lower import buffer_of, lower, lowering_of
from graft.core.rewriting.node_pass import Names
from graft.core.rewriting.node_rewrite import add_constant
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.loops.one_image import one_image


@dataclass(frozen=True)
class SampleLoop:
    """Move all nodes into the body of a Scan, where the batch is 1; what is made of constants stays with its readers.

    1. the first axis of all inputs is one symbol, which stands on no other axis
    2. each operator makes a sample of its result of that sample of its operands
    3. all outputs are of samples
    """

    name: ClassVar[str] = "sample-loop"

    def run(self, model: ir.Model) -> bool:
        """Change ``model`` in place and return whether anything changed."""
        batch = _batch_of(model.graph)
        nodes = list(model.graph)
        made = {output for node in nodes for output in node.outputs}
        if batch is None or not made.issuperset(model.graph.outputs):
            return False
        if not all(_has_samples(value, batch) for value in model.graph.outputs):
            return False
        if not all(_is_apart(NodeView(node), batch) for node in nodes if _of_samples(node, batch)):
            return False
        _Loop(model.graph, Names(model), batch).write(nodes)
        return True


def _batch_of(graph: ir.Graph) -> str | None:
    """Return the symbol that is the first axis of all inputs and no other one of theirs."""
    shapes = [ValueView(value).shape for value in graph.inputs if value.const_value is None]
    firsts = {shape[0] if shape else None for shape in shapes}
    batch = firsts.pop() if len(firsts) == 1 else None
    if not isinstance(batch, str) or not batch.isidentifier():
        return None
    return batch if all(_stands_first(shape, batch) for shape in shapes) else None


def _stands_first(shape: Sequence[int | str | None] | None, batch: str) -> bool:
    """Whether a symbol stands on no axis but the first, by itself."""
    if shape is None or None in shape:
        return False
    is_named = [bool(re.search(rf"\b{batch}\b", str(extent))) for extent in shape]
    return not any(is_named[1:]) and (not is_named or not is_named[0] or shape[0] == batch)


def _has_samples(value: ir.Value | None, batch: str) -> bool:
    shape = None if value is None else ValueView(value).shape
    return bool(shape) and shape is not None and shape[0] == batch


def _of_samples(node: ir.Node, batch: str) -> bool:
    return any(_has_samples(value, batch) for value in (*node.inputs, *node.outputs))


def _is_apart(node: NodeView, batch: str) -> bool:
    """Whether a node makes each sample of its results of the same one of its operands."""
    values = [one for one in (*node.inputs, *node.outputs) if one is not None and one.name]
    row = OPERATORS.of(node)
    if row is None or row.lower is None or not all(_stands_first(one.shape, batch) for one in values):
        return False
    if not all(_has_samples(one.value, batch) for one in node.outputs if one.name):
        return False
    if Trait.VIEW in row.traits:
        return _has_samples(node.node.inputs[0], batch)
    if refused(node, OPERATORS) is not None or (row.accepts is not None and row.accepts(node) is not None):
        return False
    lowering = lowering_of(node, partial(buffer_of, extents={}))
    inputs = tuple(one for one in lowering.inputs if one is not None)
    outputs = tuple(one for one in lowering.outputs if one is not None)
    kernel = Kernel(node.name, inputs, outputs, lower(lowering), Trait.ELEMENTWISE)
    return one_image(kernel) is not None


@dataclass(frozen=True, slots=True)
class _Loop:
    graph: ir.Graph
    names: Names
    batch: str

    def write(self, moved: Sequence[ir.Node]) -> None:
        """Replace nodes by a Scan over the samples of the inputs."""
        inputs = [value for value in self.graph.inputs if _has_samples(value, self.batch)]
        results = list(self.graph.outputs)
        axes = add_constant(self.graph, self.names.fresh("sample_axes"), np.array([0], np.int64))
        body = ir.Graph([], [], nodes=[], name=self.names.fresh("sample"), opset_imports=dict(self.graph.opset_imports))
        inside = set(moved)
        for value in inputs:
            row = self._like(value, "row", 1)
            body.inputs.append(row)
            one = self._node(body, "Unsqueeze", row, axes, self._like(value, "sample", 0))
            for use in list(value.uses()):
                if use.node in inside:
                    use.node.replace_input_with(use.idx, one)
        outputs = [self._like(value, "batch", None) for value in results]
        self.graph.remove(list(moved))
        body.extend(moved)
        for node in moved:
            for value in node.outputs:
                value.shape = self._shape(value, 0)
        for number, (value, whole) in enumerate(zip(results, outputs, strict=True)):
            body.outputs.append(self._node(body, "Squeeze", value, axes, self._like(value, "result", 1)))
            self.graph.outputs[number] = whole
            whole.name, value.name = value.name, self.names.fresh(f"{value.name}_sample")
        attributes = [ir.AttrGraph("body", body), ir.AttrInt64("num_scan_inputs", len(inputs))]
        self.graph.append(ir.Node("", "Scan", inputs, attributes, outputs=outputs, name=self.names.fresh("samples")))

    def _node(self, body: ir.Graph, kind: str, value: ir.Value, axes: ir.Value, made: ir.Value) -> ir.Value:
        body.append(ir.Node("", kind, [value, axes], outputs=[made], name=self.names.fresh(f"{made.name}_view")))
        return made

    def _like(self, value: ir.Value, stem: str, begin: int | None) -> ir.Value:
        """Return a new value: the whole one, or of one sample, with its axis (0) or without (1)."""
        shape = value.shape if begin is None else self._shape(value, begin)
        return ir.Value(name=self.names.fresh(f"{value.name}_{stem}"), type=value.type, shape=shape)

    def _shape(self, value: ir.Value, begin: int) -> ir.Shape:
        assert value.shape is not None, value.name
        first = 1 if _has_samples(value, self.batch) else value.shape[0]
        return ir.Shape([first, *value.shape[1:]][begin:])
