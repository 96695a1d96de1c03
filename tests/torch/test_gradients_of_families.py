"""Gradients of whole networks beside PyTorch's autograd, in float64: families of the zoo by each weight and input."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import graft
from benchmarks.families.all import FAMILIES
from graft.core.graph.protos import every_graph, every_node
from graft.core.shapes.sample_inputs import sample_inputs
from graft.errors import GraftError
from graft.training.editing import edited

torch = pytest.importorskip("torch")

BOUND = 1e-8
"""How far a gradient may be from PyTorch's, relative to its largest element, or to a part of the largest of all."""
PART = 1e-4
"""That part: the gradient of what Softmax does not see, such as a bias of keys, is zero but for rounding."""


def in_doubles(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with float64 wherever it has float32, but for scales, which ONNX has as float32 alone."""
    graph = proto.graph
    scales = {node.input[2] for node in graph.node if node.op_type == "Resize" and len(node.input) > 2}
    for tensor in (one for part in every_graph(graph) for one in part.initializer):
        if tensor.data_type == TensorProto.FLOAT and tensor.name not in scales:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    for value in (one for part in every_graph(graph) for one in (*part.input, *part.output, *part.value_info)):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in every_node(graph.node):
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
    return proto


def with_loss(model: ir.Model) -> ir.Model:
    """Return a model with the sum of all results, each element by a drawn weight, as its one output."""
    rng = np.random.default_rng(3)

    def edit(proto: onnx.ModelProto) -> None:
        graph, parts = proto.graph, []
        for output in graph.output:
            if output.type.tensor_type.elem_type == TensorProto.DOUBLE:
                shape = [one.dim_value for one in output.type.tensor_type.shape.dim]
                graph.initializer.append(numpy_helper.from_array(rng.uniform(-1, 1, shape), f"{output.name}_w"))
                graph.node.append(helper.make_node("Mul", [output.name, f"{output.name}_w"], [f"{output.name}_p"]))
                graph.node.append(helper.make_node("ReduceSum", [f"{output.name}_p"], [f"{output.name}_s"], keepdims=0))
                parts.append(f"{output.name}_s")
        graph.node.append(helper.make_node("Sum", parts, ["loss"]))
        del graph.output[:]
        graph.output.append(helper.make_tensor_value_info("loss", TensorProto.DOUBLE, []))

    return edited(model, edit)


def weights_of(model: ir.Model) -> list[str]:
    """Return the constants of more than one finite number that a network is differentiated by."""
    found = []
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        assert tensor is not None
        is_read_as_number = not name.endswith("_w") and value.dtype == ir.DataType.DOUBLE and tensor.size > 1
        if is_read_as_number and np.isfinite(tensor.numpy()).all() and not _is_setting(value):
            found.append(name)
    return found


def _is_setting(value: ir.Value) -> bool:
    """Whether a node takes a constant that PyTorch has as an argument, or as a buffer."""
    settings = {"BatchNormalization": (3, 4), "Resize": (1, 2), "Clip": (1, 2), "Pad": (2,)}
    return any(use.idx in settings.get(use.node.op_type, ()) for use in value.uses())


def errors(name: str) -> dict[str, float]:
    """Return how far the gradients of a family are from PyTorch's, by value."""
    from graft.measure.peers.torch_compile import torch_module
    from tests.torch.onnx_operators import OPERATORS

    model = with_loss(graft.load(in_doubles(FAMILIES[name]())))
    feeds = sample_inputs(model)
    weights = weights_of(model)
    inputs = [one for one, array in feeds.items() if array.dtype == np.float64]
    program = graft.compile(graft.grad(model, wrt=[*weights, *inputs]), threads=1, cache=False)
    found = program.run(feeds)

    module = torch_module(model, weights, OPERATORS)
    arguments = [torch.from_numpy(array).requires_grad_(one in inputs) for one, array in feeds.items()]
    (loss,) = module(*arguments)
    loss.backward()
    assert abs(float(loss.detach()) - float(np.asarray(found["loss"]))) <= BOUND * abs(float(loss.detach()))
    theirs = {one: tensor.grad for one, tensor in zip(weights, module.parameters(), strict=True)}
    theirs |= {one: tensor.grad for one, tensor in zip(feeds, arguments, strict=True) if one in inputs}
    largest = max(float(one.abs().max()) for one in theirs.values() if one is not None)
    apart = {}
    for one, gradient in theirs.items():
        wanted = np.zeros_like(found[f"{one}_grad"]) if gradient is None else gradient.numpy()
        scale = max(float(np.abs(wanted).max()), PART * largest)
        apart[one] = float(np.abs(found[f"{one}_grad"] - wanted).max()) / scale
    return apart


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_are_those_of_autograd(name: str) -> None:
    try:
        found = errors(name)
    except GraftError as error:
        if not str(error).startswith("torch has no"):
            raise
        pytest.skip(str(error))
    assert {one: error for one, error in found.items() if not error <= BOUND} == {}
