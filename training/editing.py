"""A model with nodes of its own added: in a message without its large weights, which are given back afterwards."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from graft.core.graph.skeleton import is_large, skeleton_of_model
from graft.core.importer.load import load_skeleton
from graft.core.passes.eliminate_dead_code import EliminateDeadCode
from graft.errors import ModelError
from graft.runtime.tensor_info import did_you_mean


def edited(model: ir.Model, edit: Callable[[onnx.ModelProto], object], *, without: Collection[str] = ()) -> ir.Model:
    """Return a loaded model after an edit of its message, in which large weights are inputs; it is checked again.

    The weights in ``without`` remain what the edit makes of them.
    """
    tensors = {
        value.name or "": value.const_value
        for value in model.graph.initializers.values()
        if value.const_value is not None and is_large(value.const_value) and value.name not in without
    }
    proto = skeleton_of_model(model)
    edit(proto)
    loaded = load_skeleton(proto, tensors)
    EliminateDeadCode().run(loaded)
    return loaded


def values_of(model: ir.Model) -> dict[str, ir.Value]:
    """Return the values of a model's main graph by name."""
    return dict(ir.convenience.create_value_mapping(model.graph))


def named(values: Collection[str], name: str, what: str) -> str:
    """Return a name that is among those of values; raise ModelError for another."""
    if name not in values:
        raise ModelError(f"{what} '{name}' is no value of the model{did_you_mean(name, list(values))}", value=name)
    return name


def free(values: Collection[str], name: str) -> str:
    """Return a name that no value has; raise ModelError for one that is taken."""
    if name in values:
        raise ModelError(f"the model has a value '{name}' already; rename it", value=name)
    return name


@dataclass(slots=True)
class Writer:
    """Adds nodes of one output to a graph, named after its own name; ``dtype`` is that of its numbers."""

    graph: onnx.GraphProto
    name: str
    dtype: int

    def __call__(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Add a node and return its output."""
        output = f"{self.name}/{len(self.graph.node)}"
        self.graph.node.append(helper.make_node(op_type, inputs, [output], output, **attributes))
        return output

    def number(self, value: float, dtype: int | None = None) -> str:
        """Return a constant of one number, of the writer's type if not of another."""
        array = np.array(value, helper.tensor_dtype_to_np_dtype(self.dtype if dtype is None else dtype))
        name = f"{self.name}/{len(self.graph.node)}"
        self.graph.node.append(
            helper.make_node("Constant", [], [name], name, value=numpy_helper.from_array(array, name))
        )
        return name
