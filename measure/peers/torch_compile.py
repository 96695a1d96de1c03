"""torch.compile as a peer: a model's graph as a PyTorch graph, which inductor compiles with its weights frozen.

Frozen weights are constants to inductor: it folds normalisations into convolutions and packs what oneDNN multiplies by.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
import torch._inductor.config as inductor

from graft.core.graph.view import NodeView, ValueView
from graft.errors import GraftError
from graft.measure.peers.torch_operators import FIXED, TORCH_OPERATORS, TorchOperator


def torch_run(model: ir.Model, feeds: Mapping[str, np.ndarray], threads: int) -> Callable[[], object]:
    """Return a call of the compiled model, which gives the list of outputs; inputs and outputs are not copied.

    PyTorch computes on ``threads`` threads from here on, in the whole process.
    """
    torch.set_num_threads(threads)
    arguments = [torch.from_numpy(np.ascontiguousarray(feeds[value.name or ""])) for value in _free_inputs(model)]
    inductor.freezing = True  # for the whole process: Dynamo, too, asks this
    compiled = torch.compile(torch_module(model), fullgraph=True, dynamic=False)

    def run() -> list[np.ndarray]:
        with torch.no_grad():  # while it compiles, inference_mode turns gradients on, and then nothing is frozen
            return [result.numpy() for result in compiled(*arguments)]

    return run


def torch_module(
    model: ir.Model, trained: Sequence[str] = (), operators: Mapping[str, TorchOperator] = TORCH_OPERATORS
) -> Any:
    """Return a torch.fx.GraphModule of a model: one call per node, constants folded, the rest of them as buffers.

    The weights in ``trained`` are its parameters, in this order; ``operators`` are those that it knows. Raises
    GraftError for an operator, attribute or computed argument that PyTorch cannot be given here.
    """
    return _Translation(model, trained, operators).module()


def _free_inputs(model: ir.Model) -> list[ir.Value]:
    return [value for value in model.graph.inputs if value.name not in model.graph.initializers]


class _Translation:
    """The values of a model so far: tensors where they are constant, else nodes of the PyTorch graph."""

    def __init__(self, model: ir.Model, trained: Sequence[str], operators: Mapping[str, TorchOperator]) -> None:
        self._model, self._trained, self._operators = model, trained, operators
        self._root, self._graph = torch.nn.Module(), torch.fx.Graph()
        self._values: dict[ir.Value, Any] = {}
        self._buffers: dict[ir.Value, Any] = {}

    def module(self) -> Any:
        """Translate every node, in order."""
        for index, value in enumerate(_free_inputs(self._model)):
            self._values[value] = self._graph.placeholder(f"input_{index}")
        for index, name in enumerate(self._trained):
            value = self._model.graph.initializers[name]
            array = np.array(ValueView(value).constant)
            self._root.register_parameter(f"weight_{index}", torch.nn.Parameter(torch.from_numpy(array)))
            self._values[value] = self._graph.get_attr(f"weight_{index}")
        for node in self._model.graph:
            if node.op_type != "Constant":
                self._node(NodeView(node))
        self._graph.output([self._operand(value) for value in self._model.graph.outputs])
        return torch.fx.GraphModule(self._root, self._graph)

    def _node(self, node: NodeView) -> None:
        outputs = node.node.outputs
        measured = node.input(0)
        shape = measured.static_shape if node.op_type == "Shape" and measured is not None else None
        if shape is not None:
            self._values[outputs[0]] = torch.tensor(shape[node.attribute("start", 0) : node.attribute("end")])
            return
        translated = _operator(node, self._operators)
        attributes = _attributes(node, translated)
        if any(isinstance(one, torch.fx.Node) for one in map(self._found, node.node.inputs)):
            operands = [
                self._static(node, index) if index in translated.static else self._operand(value)
                for index, value in enumerate(node.node.inputs)
            ]
            result: Any = self._graph.call_function(translated.function, tuple(operands), attributes)
            if translated.several:
                result = [self._graph.call_function(operator.getitem, (result, i)) for i in range(len(outputs))]
        else:
            found = enumerate(map(self._found, node.node.inputs))
            operands = [_plain(one) if index in translated.static else one for index, one in found]
            result = translated.function(*operands, **attributes)
        self._values.update(zip(outputs, result if translated.several else [result], strict=False))

    def _found(self, value: ir.Value | None) -> Any:
        """Return the tensor of a constant, the node of another value, None for none."""
        if value is None or value in self._values:
            return None if value is None else self._values[value]
        constant = ValueView(value).constant
        if constant is None:
            raise GraftError(f"torch does not compute '{value.name}' here", peer="torch")
        self._values[value] = torch.from_numpy(np.array(constant))
        return self._values[value]

    def _operand(self, value: ir.Value | None) -> Any:
        """Return what a call of the graph takes: a node, the number of a scalar constant, or None."""
        found = self._found(value)
        if value is None or not isinstance(found, torch.Tensor):
            return found
        if found.dim() == 0:
            return found.item()
        if value not in self._buffers:
            name = f"constant_{len(self._buffers)}"
            self._root.register_buffer(name, found)
            self._buffers[value] = self._graph.get_attr(name)
        return self._buffers[value]

    def _static(self, node: NodeView, index: int) -> Any:
        found = self._found(node.node.inputs[index])
        if isinstance(found, torch.fx.Node):
            raise GraftError(
                f"torch takes input {index} of {node.where} as a constant here, but it is computed", peer="torch"
            )
        return _plain(found)


def _plain(value: Any) -> Any:
    """Return a tensor as Python numbers."""
    return value.tolist() if isinstance(value, torch.Tensor) else value


def _operator(node: NodeView, operators: Mapping[str, TorchOperator]) -> TorchOperator:
    """Return how PyTorch computes a node; refuse operators and inputs that it does not know here."""
    name = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    if name not in operators:
        raise GraftError(f"torch has no '{name}' here (node '{node.name}')", peer="torch", op_type=name)
    for index in operators[name].absent:
        if node.input(index) is not None:
            raise GraftError(f"torch has no input {index} of {node.where} here", peer="torch", op_type=name)
    return operators[name]


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
