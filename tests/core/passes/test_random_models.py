"""Random graphs: whatever the standard pipeline does to them, they compute the same."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from graft.core.importer.load import load
from graft.core.passes.normalize import PASSES, normalize

CHANNELS, SIDE = 3, 4
SHAPE = (1, CHANNELS, SIDE, SIDE)
UNARY = ("Relu", "Neg", "Identity", "Dropout", "Transpose", "Reshape", "ReshapeTwice", "Cast", "Pad")
WITH_CONSTANT = ("Add", "Sub", "Mul", "Div", "BatchNormalization", "Conv", "ConvBias")
BINARY = ("Add", "Mul", "Sum", "Max")

step = st.one_of(
    st.tuples(st.sampled_from(UNARY), st.integers(0, 99), st.just(0)),
    st.tuples(st.sampled_from(WITH_CONSTANT), st.integers(0, 99), st.integers(0, 9)),
    st.tuples(st.sampled_from(BINARY), st.integers(0, 99), st.integers(0, 99)),
)


class Builder:
    """A graph under construction; every value has the shape `SHAPE`."""

    def __init__(self) -> None:
        self.values = ["x"]
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.generator = np.random.default_rng(7)

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def draw(self, *shape: int) -> str:
        return self.constant(self.generator.uniform(0.5, 2, shape).astype(np.float32))

    def emit(self, operator: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def add(self, operator: str, first: int, second: int) -> None:
        x = self.values[first % len(self.values)]
        match operator:
            case "Dropout" | "Relu" | "Neg" | "Identity":
                y = self.emit(operator, x)
            case "Transpose":
                y = self.emit("Transpose", self.emit("Transpose", x, perm=[0, 1, 3, 2]), perm=[0, 1, 3, 2])
            case "Reshape":
                y = self.emit("Reshape", x, self.constant(np.array([0, -1, SIDE, SIDE])))
            case "ReshapeTwice":
                flat = self.emit("Reshape", x, self.constant(np.array([-1])))
                y = self.emit("Reshape", flat, self.constant(np.array(SHAPE)))
            case "Cast":
                y = self.emit("Cast", x, to=TensorProto.FLOAT)
            case "Pad":
                y = self.emit("Pad", x, self.constant(np.zeros(8, np.int64)))
            case "BatchNormalization":
                y = self.emit(operator, x, *(self.draw(CHANNELS) for _ in range(4)))
            case "Conv" | "ConvBias":
                bias = [self.draw(CHANNELS)] if operator == "ConvBias" else []
                y = self.emit("Conv", x, self.draw(CHANNELS, CHANNELS, 1, 1), *bias)
            case "Sub" | "Div" | "Add" | "Mul" if operator in WITH_CONSTANT and second < 10 and first % 2:
                shape = [(), (1,), (CHANNELS, 1, 1), (1, CHANNELS, 1, 1), (SIDE,), SHAPE][second % 6]
                y = self.emit(operator, x, self.draw(*shape))
            case _:
                other = self.values[second % len(self.values)]
                y = self.emit("Add" if operator in ("Sub", "Div") else operator, x, other)
        self.values.append(self.emit("Mul", y, self.constant(np.float32(0.5))) if first % 7 == 0 else y)

    def model(self) -> onnx.ModelProto:
        outputs = [self.emit("Identity", self.values[-1]), self.values[len(self.values) // 2]]
        outputs = [name for name in dict.fromkeys(outputs) if name != "x"]
        graph = helper.make_graph(
            self.nodes,
            "random",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in outputs],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def evaluate(model: ir.Model) -> list[np.ndarray]:
    x = np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32)
    return [np.asarray(result) for result in ReferenceEvaluator(ir.to_proto(model)).run(None, {"x": x})]


@settings(max_examples=60, deadline=None)
@given(st.lists(step, min_size=1, max_size=14), st.sets(st.sampled_from(sorted(PASSES)), max_size=3))
def test_the_pipeline_keeps_what_a_random_graph_computes(steps: list[tuple[str, int, int]], disabled: set[str]) -> None:
    builder = Builder()
    for operator, first, second in steps:
        builder.add(operator, first, second)
    model = load(builder.model())
    names = [value.name for value in model.graph.outputs]
    expected = evaluate(model)
    normalize(model, disable=disabled)
    assert [value.name for value in model.graph.outputs] == names
    for old, new in zip(expected, evaluate(model), strict=True):
        if np.isfinite(old).all():
            scale = float(np.abs(old).max()) + 1e-6
            np.testing.assert_allclose(new / scale, old / scale, rtol=1e-4, atol=1e-5)
