"""Random small models with symbolic axes against `onnx.reference`, at several bindings of one program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import graft

BINDINGS = ((1, 1), (3, 5), (2, 17), (0, 4), (4, 0))
NODES = 9
CHOICES = (
    "unary", "binary", "row", "softmax", "norm", "reduce", "transpose", "concat", "slice", "split", "reshape",
    "gather", "expand", "where", "product", "weights",
)  # fmt: skip
Dims = tuple["int | str", ...]
"""Numbers, and a text for what varies: equal texts are equal extents."""


@dataclass
class Drawn:
    """A model while it is drawn, and its values with what is known of their shapes."""

    seed: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    values: list[tuple[str, Dims]] = field(default_factory=lambda: [("x", ("n", "m", 8)), ("y", ("n", "m", 8))])

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        while len(self.nodes) < NODES:
            self.step(str(self.rng.choice(CHOICES)))

    def model(self) -> onnx.ModelProto:
        inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", "m", 8]) for name in ("x", "y")]
        read = {name for node in self.nodes for name in node.input}
        ends = [(name, dims) for name, dims in self.values[2:] if name not in read]
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * len(dims)) for name, dims in ends]
        graph = helper.make_graph(self.nodes, f"seed_{self.seed}", inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)

    def constant(self, array: np.ndarray | Sequence[int]) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def floats(self, *shape: int) -> str:
        return self.constant(self.rng.uniform(-1, 1, shape).astype(np.float32))

    def node(self, kind: str, inputs: Sequence[str], count: int = 1, **attributes: object) -> str:
        outputs = [f"v{len(self.nodes)}_{number}" for number in range(count)]
        self.nodes.append(helper.make_node(kind, inputs, outputs, **attributes))
        return outputs[0]

    def keep(self, name: str, dims: Dims) -> None:
        self.values.append((name, dims))

    def step(self, kind: str) -> None:
        x, dims = self.values[int(self.rng.integers(len(self.values)))]
        like = [name for name, other in self.values if other == dims]
        y = like[int(self.rng.integers(len(like)))]
        axis = int(self.rng.integers(len(dims))) if dims else 0
        last = dims[-1] if dims else 0
        match kind:
            case "unary":
                self.keep(self.node(str(self.rng.choice(["Relu", "Neg", "Sigmoid", "Tanh"])), [x]), dims)
            case "binary":
                self.keep(self.node(str(self.rng.choice(["Add", "Mul", "Sub", "Max"])), [x, y]), dims)
            case "row" if isinstance(last, int) and dims:
                self.keep(self.node("Add", [self.floats(last), x]), dims)
            case "softmax" if dims:
                self.keep(self.node("Softmax", [x], axis=axis), dims)
            case "norm" if isinstance(last, int) and last > 1:
                self.keep(self.node("LayerNormalization", [x, self.floats(last), self.floats(last)]), dims)
            case "reduce" if len(dims) > 1:
                total = self.node("ReduceSum", [x, self.constant([axis])], keepdims=1)
                self.keep(self.node("Sub", [x, total]), dims)
                self.keep(self.node("Squeeze", [total, self.constant([axis])]), dims[:axis] + dims[axis + 1 :])
            case "transpose" if dims:
                order = [int(one) for one in self.rng.permutation(len(dims))]
                self.keep(self.node("Transpose", [x], perm=order), tuple(dims[one] for one in order))
            case "concat" if dims:
                joined = dims[axis] * 2 if isinstance(dims[axis], int) else f"2*({dims[axis]})"
                self.keep(self.node("Concat", [x, y], axis=axis), (*dims[:axis], joined, *dims[axis + 1 :]))
            case "slice" if dims:
                self.slice(x, dims, axis)
            case "split" if isinstance(last, int) and last % 2 == 0:
                self.keep(self.node("Split", [x], 2, axis=len(dims) - 1, num_outputs=2), (*dims[:-1], last // 2))
            case "reshape" if len(dims) > 1 and isinstance(last, int) and last % 2 == 0:
                if len(dims) < 4:
                    self.keep(self.node("Reshape", [x, self.constant([0] * (len(dims) - 1) + [-1, 2])]),
                              (*dims[:-1], last // 2, 2))  # fmt: skip
            case "gather" if isinstance(last, int) and last > 1:
                indices = self.constant(self.rng.integers(-last, last, 3))
                self.keep(self.node("Gather", [x, indices], axis=len(dims) - 1), (*dims[:-1], 3))
            case "expand" if 0 < len(dims) < 4:
                shape = self.node("Concat", [self.constant([2]), self.node("Shape", [y])], axis=0)
                self.keep(self.node("Expand", [x, shape]), (2, *dims))
            case "where":
                low = self.node("Less", [x, self.constant(np.float32(0.25))])
                self.keep(self.node("Where", [low, y, x]), dims)
            case "product" if len(dims) > 1:
                order = [*range(len(dims) - 2), len(dims) - 1, len(dims) - 2]
                self.keep(self.node("MatMul", [x, self.node("Transpose", [y], perm=order)]), (*dims[:-1], dims[-2]))
            case "weights" if len(dims) > 1 and isinstance(last, int):
                self.keep(self.node("MatMul", [x, self.floats(last, 6)]), (*dims[:-1], 6))
            case _:
                pass

    def slice(self, x: str, dims: Dims, axis: int) -> None:
        """Leave out the first and the last, or every second from the end."""
        start, end, step = ((1, -1, 1), (-1, -(2**31), -2))[int(self.rng.integers(2))]
        parts = [self.constant([number]) for number in (start, end, axis, step)]
        extent = dims[axis]
        left: int | str = f"({extent})[{step}]"
        if isinstance(extent, int):
            left = max(0, extent - 2) if step == 1 else (extent + 1) // 2
        self.keep(self.node("Slice", [x, *parts]), (*dims[:axis], left, *dims[axis + 1 :]))


@pytest.mark.parametrize("seed", [*range(14), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(14, 120))])
def test_a_program_of_any_shape_computes_what_the_reference_computes(seed: int) -> None:
    model = Drawn(seed).model()
    program = graft.compile(model, cache=False, tuned=False, threads=2)
    reference, rng = ReferenceEvaluator(model), np.random.default_rng(seed)
    for n, m in BINDINGS:
        feeds = {name: rng.standard_normal((n, m, 8)).astype(np.float32) for name in ("x", "y")}
        try:
            expected = reference.run(None, feeds)
        except ValueError:
            assert 0 in (n, m)  # NumPy has no maximum of nothing
            continue
        results = program.run(feeds)
        for value, array in zip(model.graph.output, expected, strict=True):
            scale = float(np.abs(array).max()) if array.size else 0.0
            where = f"seed {seed}, n {n}, m {m}, {value.name}"
            assert results[value.name].shape == array.shape, where
            np.testing.assert_allclose(results[value.name], array, rtol=1e-4, atol=1e-5 * (1 + scale), err_msg=where)
