"""Models that a pattern nearly matches: an instance of it with one thing changed.

Whether the backend takes such a model is its own affair; what it takes must be right.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graft.testkit.conformance.cases.outcome import Trial
from graft.testkit.conformance.cases.variants import TYPES, is_valid, retyped, with_symbols

UNARY = frozenset({"Relu", "Sigmoid", "Tanh", "Gelu", "Exp", "Abs", "Neg", "Elu", "LeakyRelu", "HardSwish", "Softplus"})
BINARY = frozenset({"Add", "Mul", "Sub", "Div", "Max", "Min"})


def near_misses(trial: Trial) -> Iterator[tuple[str, Trial]]:
    """Give the near misses of an instance, with their names; those that are no valid models are left out."""
    for name, proto, feeds in (
        *_leaks(trial), *_constants_fed(trial), *_other_operators(trial), *_swapped(trial), *_attributes(trial)
    ):  # fmt: skip
        if is_valid(proto):
            yield name, Trial(proto, feeds)
    for name in ("float64", "float16"):
        other = retyped(trial, *TYPES[name])
        if other is not None:
            yield f"in-{name}", other
    symbolic = with_symbols(trial)
    if symbolic is not None:
        yield "symbolic", Trial(symbolic.proto, symbolic.feeds)


Changed = tuple[str, onnx.ModelProto, dict[str, np.ndarray]]


def _copy(trial: Trial) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    proto.CopyFrom(trial.proto)
    del proto.graph.value_info[:]
    return proto


def _leaks(trial: Trial) -> Iterator[Changed]:
    """A value inside the pattern is an output of the model, or is read by another operator."""
    final = trial.proto.graph.output[0].name
    for node in trial.proto.graph.node:
        name = node.output[0]
        if name == final:
            continue
        proto = _copy(trial)
        proto.graph.output.append(helper.make_empty_tensor_value_info(name))
        yield f"output-{name}", _inferred(proto), dict(trial.feeds)
        proto = _copy(trial)
        proto.graph.node.append(helper.make_node("Neg", [name], ["leak"], name="leak"))
        proto.graph.output.append(helper.make_empty_tensor_value_info("leak"))
        yield f"read-{name}", _inferred(proto), dict(trial.feeds)


def _constants_fed(trial: Trial) -> Iterator[Changed]:
    """A constant comes as an input."""
    for tensor in trial.proto.graph.initializer:
        proto = _copy(trial)
        kept = [one for one in proto.graph.initializer if one.name != tensor.name]
        del proto.graph.initializer[:]
        proto.graph.initializer.extend(kept)
        array = numpy_helper.to_array(tensor)
        proto.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, array.shape))
        yield f"fed-{tensor.name}", _inferred(proto), {**trial.feeds, tensor.name: array}


def _other_operators(trial: Trial) -> Iterator[Changed]:
    """An operator is another one of its kind; no Div, which magnifies what rounding leaves of a zero."""
    for number, node in enumerate(trial.proto.graph.node):
        family = UNARY if node.op_type in UNARY else BINARY if node.op_type in BINARY else frozenset[str]()
        for other in sorted(family - {node.op_type, "Div"})[:3]:
            proto = _copy(trial)
            proto.graph.node[number].op_type = other
            del proto.graph.node[number].attribute[:]
            yield f"{node.name}-{other}", _inferred(proto), dict(trial.feeds)


def _swapped(trial: Trial) -> Iterator[Changed]:
    """The operands of an operator change places."""
    for number, node in enumerate(trial.proto.graph.node):
        if len(node.input) == 2 and node.op_type in (*BINARY, "Pow", "MatMul"):
            proto = _copy(trial)
            changed = proto.graph.node[number]
            changed.input[0], changed.input[1] = node.input[1], node.input[0]
            yield f"{node.name}-swapped", _inferred(proto), dict(trial.feeds)


def _attributes(trial: Trial) -> Iterator[Changed]:
    """An attribute has another value: strides and dilations of 2, a dropped pad, a factor that is no 1."""
    for number, node in enumerate(trial.proto.graph.node):
        schema = onnx.defs.get_schema(node.op_type, 24)
        spatial = next((len(one.ints) for one in node.attribute if one.name == "kernel_shape"), 0)
        changes: dict[str, object] = {}
        for name in schema.attributes:
            if name in ("alpha", "beta", "epsilon", "gamma"):
                changes[name] = 0.625
            elif name in ("strides", "dilations") and spatial:
                changes[name] = [2] * spatial
            elif name == "pads" and spatial:
                changes[name] = [0] * spatial + [2] * spatial
            elif name == "auto_pad" and spatial:
                changes[name] = "SAME_UPPER"
            elif name in ("transA", "transB", "ceil_mode", "count_include_pad"):
                changes[name] = 1
        for name, value in changes.items():
            proto = _copy(trial)
            dropped = (name, "pads") if name == "auto_pad" else (name,)
            kept = [one for one in node.attribute if one.name not in dropped]
            del proto.graph.node[number].attribute[:]
            proto.graph.node[number].attribute.extend([*kept, helper.make_attribute(name, value)])
            yield f"{node.name}-{name}", _inferred(proto), dict(trial.feeds)


def _inferred(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with the types of its outputs; as it is where they cannot be inferred."""
    for value in proto.graph.output:
        if value.type.tensor_type.elem_type == TensorProto.UNDEFINED or value.type.tensor_type.HasField("shape"):
            value.ClearField("type")
    try:
        return onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
    except onnx.shape_inference.InferenceError:
        return proto
