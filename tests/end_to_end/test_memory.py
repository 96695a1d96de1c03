"""Random graphs whose results share memory: the memory is sound, and the answer that of ONNX."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import graft
from graft.runtime.program import Program
from tests.memory import check_memory

SIDE = 5
UNARY = ("Relu", "Neg", "Sigmoid", "Conv", "MaxPool", "Half", "Reshape", "Twice")

step = st.one_of(
    st.tuples(st.sampled_from(UNARY), st.integers(0, 99), st.just(0)),
    st.tuples(st.sampled_from(("Add", "Mul", "Concat", "Concat", "Concat")), st.integers(0, 99), st.integers(0, 99)),
)


class Builder:
    """A graph of images of any number of channels under construction."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.channels = {"x": 2, "k": 3}
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.generator = np.random.default_rng(3)
        self.constant(self.generator.standard_normal((batch, 3, SIDE, SIDE)).astype(np.float32), "k")

    def constant(self, array: np.ndarray, name: str = "") -> str:
        self.constants.append(numpy_helper.from_array(array, name or f"c{len(self.constants)}"))
        return self.constants[-1].name

    def emit(self, operator: str, channels: int, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        self.channels[name] = channels
        return name

    def add(self, operator: str, first: int, second: int) -> None:
        values = list(self.channels)
        x, y = values[-1 - first % len(values)], values[-1 - second % len(values)]
        c, d = self.channels[x], self.channels[y]
        match operator:
            case "Conv":
                weights = self.generator.uniform(-0.5, 0.5, (4, c, 1, 1)).astype(np.float32)
                self.emit("Conv", 4, x, self.constant(weights))
            case "MaxPool":
                self.emit("MaxPool", c, x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
            case "Half":
                begin, end = (self.constant(np.array([bound])) for bound in (c // 2, c))
                self.emit("Slice", c - c // 2, x, begin, end, self.constant(np.array([1])))
            case "Reshape":
                flat = self.emit("Reshape", c, x, self.constant(np.array([self.batch, -1])))
                del self.channels[flat]
                self.emit("Reshape", c, flat, self.constant(np.array([self.batch, c, SIDE, SIDE])))
            case "Concat" if c + d <= 64:
                self.emit("Concat", c + d, x, y, axis=1)
            case "Add" | "Mul" if c == d:
                self.emit(operator, c, x, y)
            case "Twice":
                self.emit("Add", c, x, x)
            case "Relu" | "Neg" | "Sigmoid":
                self.emit(operator, c, x)

    def typed(self, name: str) -> onnx.ValueInfoProto:
        shape = (self.batch, self.channels[name], SIDE, SIDE)
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    def model(self, more: int) -> onnx.ModelProto:
        computed = [name for name in self.channels if name not in ("x", "k")]
        wanted = dict.fromkeys([*computed[-1:], *computed[:more:2]])
        graph = helper.make_graph(
            self.nodes,
            "g",
            [self.typed("x")],
            [self.typed(name) for name in wanted],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@settings(max_examples=25, deadline=None)
@given(st.lists(step, min_size=3, max_size=14), st.sampled_from((1, 1, 2)), st.integers(0, 5))
def test_memory_of_random_graphs_is_sound(steps: list[tuple[str, int, int]], batch: int, more: int) -> None:
    builder = Builder(batch)
    builder.emit("Relu", 2, "x")
    for one in steps:
        builder.add(*one)
    model = builder.model(more)
    x = np.random.default_rng(5).standard_normal((batch, 2, SIDE, SIDE)).astype(np.float32)
    expected = ReferenceEvaluator(model).run(None, {"x": x})
    program = graft.compile(model, ["llvm"], threads=1, strict=True)
    check_memory(program.description.procedures[0])
    for found, value in zip(results(program, x), expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-5)


def results(program: Program, x: np.ndarray) -> list[np.ndarray]:
    """Every output, of a second call, which finds what the first has left in the memory."""
    program.run({"x": x})
    return list(program.run({"x": x}).values())
