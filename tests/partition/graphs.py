"""What the tests of partitioning share: small models, toy backends, random models and the proof by running."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir as ir
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from graft.core.graph.view import NodeView
from graft.core.reject import Reject
from graft.partition.region import REGION_DOMAIN
from graft.patterns.composite import Composite


@dataclass(frozen=True)
class Toy:
    """A backend that takes the operators it is given."""

    name: str
    operators: frozenset[str] = frozenset()
    patterns: Sequence[Composite] = ()
    missing: str | None = None
    fallback: bool = False
    packed: bool = False
    answer: Callable[[NodeView], bool | Reject] | None = field(default=None, compare=False)

    def supports(self, node: NodeView) -> bool | Reject:
        if self.answer is not None:
            return self.answer(node)
        return node.op_type in self.operators or Reject("no-pattern", f"{self.name} has no rule for {node.op_type}")

    def available(self) -> str | None:
        return self.missing


def toy(name: str, *operators: str, patterns: Sequence[Composite] = ()) -> Toy:
    return Toy(name, frozenset(operators), tuple(patterns))


def everything(name: str = "rest", fallback: bool = False) -> Toy:
    return Toy(name, answer=lambda node: True, fallback=fallback, packed=True)


def model_of(text: str) -> ir.Model:
    """Return the model of ONNX text with types and shapes inferred."""
    proto = onnx.parser.parse_model(text)
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto, strict_mode=True))


def small(body: str, inputs: str = "float[2,3] x", outputs: str = "float[2,3] y") -> ir.Model:
    return model_of(f'<ir_version: 10, opset_import: ["" : 21]>\ng ({inputs}) => ({outputs}) {{\n{body}\n}}')


def run_reference(model: ir.Model, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Run a model in onnx.reference after the checker has passed it."""
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    outputs = ReferenceEvaluator(proto).run(None, inputs)
    return [np.asarray(output) for output in outputs]


def region_sets(model: ir.Model) -> set[frozenset[str]]:
    """Return the regions of the main graph as sets of the original nodes' names."""
    result = set()
    for call in model.graph:
        if call.domain == REGION_DOMAIN:
            result.add(frozenset(opened(model, call)))
    return result


def opened(model: ir.Model, call: ir.Node) -> list[str]:
    """Return the names of the nodes that a call stands for."""
    names: list[str] = []
    for node in model.functions[call.op_identifier()]:
        names.extend(opened(model, node) if node.op_identifier() in model.functions else [node.name or ""])
    return names


UNARY = ("Relu", "Tanh", "Neg", "Abs")
BINARY = ("Add", "Mul", "Max")


@st.composite
def random_models(draw: st.DrawFn, most: int = 14) -> ir.Model:
    """Draw a model of elementwise operators over values of one shape, in any wiring, with several outputs."""
    values = [
        ir.Value(name=f"x{i}", shape=ir.Shape([2, 3]), type=ir.TensorType(ir.DataType.FLOAT))
        for i in range(draw(st.integers(1, 2)))
    ]
    weight = ir.Value(
        name="w",
        shape=ir.Shape([2, 3]),
        type=ir.TensorType(ir.DataType.FLOAT),
        const_value=ir.tensor(np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), name="w"),
    )
    inputs = list(values)
    values.append(weight)
    nodes: list[ir.Node] = []
    for number in range(draw(st.integers(1, most))):
        binary = draw(st.booleans())
        operator = draw(st.sampled_from(BINARY if binary else UNARY))
        read = [values[draw(st.integers(0, len(values) - 1))] for _ in range(2 if binary else 1)]
        node = ir.Node("", operator, read, name=f"n{number}")
        node.outputs[0].name = f"v{number}"
        node.outputs[0].shape = ir.Shape([2, 3])
        node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
        nodes.append(node)
        values.append(node.outputs[0])
    outputs = [node.outputs[0] for node in nodes if not node.outputs[0].uses()]
    extra = draw(st.sampled_from(nodes)).outputs[0]
    if extra not in outputs:
        outputs.append(extra)
    graph = ir.Graph(inputs, outputs, nodes=nodes, initializers=[weight], opset_imports={"": 21}, name="random")
    return ir.Model(graph, ir_version=10)


def inputs_for(model: ir.Model) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {
        value.name or "": generator.uniform(-2, 2, [int(d) for d in value.shape or ()]).astype(np.float32)
        for value in model.graph.inputs
    }
