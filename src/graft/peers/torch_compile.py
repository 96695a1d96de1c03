"""torch.compile as a peer: a model's graph as a PyTorch graph, which inductor compiles with its weights frozen.

Frozen weights are constants to inductor: it folds normalisations into convolutions and packs what oneDNN multiplies by.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from graft.core.view import NodeView, ValueView
from graft.errors import GraftError
from graft.peers.torch_operators import FIXED, TORCH_OPERATORS, TorchOperator


def torch_run(model: ir.Model, feeds: Mapping[str, np.ndarray], threads: int) -> Callable[[], object]:
    """Return a call of the compiled model, which gives the list of outputs; inputs and outputs are not copied.

    PyTorch computes on ``threads`` threads from here on, in the whole process.
    """
    torch.set_num_threads(threads)
    arguments = [torch.from_numpy(np.ascontiguousarray(feeds[value.name or ""])) for value in _free_inputs(model)]
    compiled = torch.compile(torch_module(model), fullgraph=True, dynamic=False, options={"freezing": True})

    def run() -> list[np.ndarray]:
        with torch.inference_mode():
            return [result.numpy() for result in compiled(*arguments)]

    return run


def torch_module(model: ir.Model) -> Any:
    """Return a torch.fx.GraphModule of a model: one call per node, constants folded, the rest of them as buffers.

    Raises GraftError for an operator, attribute or computed argument that PyTorch cannot be given here.
    """
    return _Translation(model).module()


def _free_inputs(model: ir.Model) -> list[ir.Value]:
    return [value for value in model.graph.inputs if value.name not in model.graph.initializers]


class _Translation:
    """The values of a model so far: tensors where they are constant, else nodes of the PyTorch graph."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._root, self._graph = torch.nn.Module(), torch.fx.Graph()
        self._values: dict[ir.Value, Any] = {}
        self._attributes: dict[ir.Value, Any] = {}

    def module(self) -> Any:
        """Translate every node, in order."""
        for index, value in enumerate(_free_inputs(self._model)):
            self._values[value] = self._graph.placeholder(f"input_{index}")
        for node in self._model.graph:
            self._node(NodeView(node))
        self._graph.output([self._operand(value) for value in self._model.graph.outputs])
        return torch.fx.GraphModule(self._root, self._graph)

    def _node(self, node: NodeView) -> None:
        outputs = node.node.outputs
        if node.op_type == "Constant" and node.domain == "":
            return
        if node.op_type == "Shape" and node.domain == "":
            shape = node.input(0).static_shape  # type: ignore[union-attr]
            if shape is not None:
                window = slice(node.attribute("start", 0), node.attribute("end"))
                self._values[outputs[0]] = torch.tensor(shape[window], dtype=torch.int64)
                return
        translated = TORCH_OPERATORS.get(node.op_type) if node.domain == "" else None
        if translated is None:
            name = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            raise GraftError(f"torch has no '{name}' here (node '{node.name}')", peer="torch", op_type=name)
        attributes = _attributes(node, translated)
        inputs = [None if value is None else self._value(value) for value in node.node.inputs]
        static = [index in translated.static for index in range(len(inputs))]
        if not any(isinstance(one, torch.fx.Node) for one in inputs):
            operands = [_plain(one) if fixed else one for one, fixed in zip(inputs, static, strict=True)]
            result: Any = translated.function(*operands, **attributes)
        else:
            operands = [
                self._static(node, index) if fixed else self._operand(value)
                for index, (value, fixed) in enumerate(zip(node.node.inputs, static, strict=True))
            ]
            result = self._graph.call_function(translated.function, tuple(operands), attributes)
        if not translated.several:
            self._values[outputs[0]] = result
            return
        for index, value in enumerate(outputs):
            if isinstance(result, torch.fx.Node):
                self._values[value] = self._graph.call_function(operator.getitem, (result, index))
            else:
                self._values[value] = result[index]

    def _value(self, value: ir.Value) -> Any:
        """Return the tensor of a constant, the node of another value."""
        if value not in self._values:
            constant = ValueView(value).constant
            if constant is None:
                raise GraftError(f"torch does not compute '{value.name}' here", peer="torch")
            self._values[value] = torch.from_numpy(np.array(constant))
        return self._values[value]

    def _operand(self, value: ir.Value | None) -> Any:
        """Return what a call of the graph takes: a node, the number of a scalar constant, or None."""
        found = None if value is None else self._value(value)
        if not isinstance(found, torch.Tensor):
            return found
        if found.dim() == 0:
            return found.item()
        if value not in self._attributes:
            name = f"constant_{len(self._attributes)}"
            self._root.register_buffer(name, found)
            self._attributes[value] = self._graph.get_attr(name)
        return self._attributes[value]

    def _static(self, node: NodeView, index: int) -> Any:
        value = node.node.inputs[index]
        found = None if value is None else self._value(value)
        if isinstance(found, torch.fx.Node):
            raise GraftError(
                f"torch takes input {index} of {node.where} as a constant here, but it is computed", peer="torch"
            )
        return _plain(found)


def _plain(value: Any) -> Any:
    """Return a tensor as Python numbers."""
    return value.tolist() if isinstance(value, torch.Tensor) else value


def _attributes(node: NodeView, translated: TorchOperator) -> dict[str, Any]:
    """Return the attributes that the function takes; refuse others that mean something."""
    taken: dict[str, Any] = {}
    for name in node.node.attributes:
        value = node.attribute(name)
        if name in translated.attributes:
            taken[name] = value
        elif name not in FIXED or FIXED[name] not in (None, value):
            raise GraftError(f"torch has no {name}={value} of {node.where} here", peer="torch", op_type=node.op_type)
    return taken
