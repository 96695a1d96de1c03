"""The writer of passes: nodes before one that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir

from graft.core.operators.definition.phrases import Phrases
from graft.core.rewriting.node_pass import Names
from graft.core.rewriting.node_rewrite import add_constant, graph_of, origin_of

Dimensions: TypeAlias = "Sequence[int | ir.SymbolicDim] | ir.Shape"


@dataclass(slots=True)
class Writer(Phrases[ir.Value]):
    """Puts nodes before a node that they stand for, or that they are to replace."""

    node: ir.Node
    names: Names
    origins: Sequence[ir.Node] = ()
    """Others that they stand for."""
    after: bool = False
    """Whether nodes come right behind what their first input comes from."""

    def __call__(self, op_type: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        """Return the output of a new node, whose type and shape are inferred later."""
        return self.emit(op_type, inputs, None, None, **attributes)

    def emit(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        dtype: ir.DataType | None,
        shape: Dimensions | None,
        **attributes: Any,
    ) -> ir.Value:
        """Return the output, of a type and shape as far as they are known, of a new node."""
        stem = f"{self.node.name}_{op_type.lower()}"
        new = ir.node(op_type, inputs, attributes=attributes, name=self.names.fresh(stem))
        new.metadata_props.update(origin_of(*self.origins, self.node))
        source = inputs[0].producer() if self.after and inputs[0] is not None else None
        if source is None:
            graph_of(self.node).insert_before(self.node, new)
        else:
            graph_of(source).insert_after(source, new)
        output = new.outputs[0]
        output.name = self.names.fresh(f"{stem}_out")
        output.type = None if dtype is None else ir.TensorType(dtype)
        output.shape = shape if shape is None or isinstance(shape, ir.Shape) else ir.Shape(shape)
        return output

    def again(
        self,
        inputs: Sequence[ir.Value | None],
        dtype: ir.DataType | None,
        shape: Dimensions | None,
        **changed: Any,
    ) -> ir.Value:
        """Return the result of the node's own operator, some attributes ``changed``, over other inputs."""
        result = self.emit(self.node.op_type, inputs, dtype, shape, **{**self.node.attributes, **changed})
        maker = result.producer()
        assert maker is not None, result.name
        maker.domain = self.node.domain
        return result

    def ints(self, *values: int) -> ir.Value:
        """Return a constant vector of int64."""
        return self.constant("ints", np.array(values, np.int64))

    def constant(self, name: str, array: np.ndarray) -> ir.Value:
        """Return a new constant, named after the node."""
        return add_constant(graph_of(self.node), self.names.fresh(f"{self.node.name}_{name}"), array)

    def replace(self, value: ir.Value) -> None:
        """Let everything that read the node's output read ``value``, and remove the node."""
        output, graph = self.node.outputs[0], graph_of(self.node)
        value.shape = output.shape if output.shape is not None else value.shape
        is_output, name = output.is_graph_output(), output.name
        producer = value.producer()
        if is_output and (producer is None or producer.graph is not graph or value.is_graph_output()):
            value = self.emit("Identity", [value], value.dtype, value.shape)
        ir.convenience.replace_all_uses_with(output, value, replace_graph_outputs=True)
        if is_output:
            output.name = f"{name}_replaced"
            value.name = name
        graph.remove(self.node, safe=True)
