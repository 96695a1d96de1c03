"""Chains of operators: compiling takes time in proportion to their length, whatever each step reads twice."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper, numpy_helper

import graft
from graft.compiler.api import compile_model
from graft.compiler.request import Request
from graft.plugins.codegen.grouping.fusion import FusionLimits

SHAPE = (4, 4)
SECONDS = 20.0
"""Many times what a compilation needs, on a busy machine too; exponential growth needs years."""
CONSTANTS = {
    "half": np.float32(0.5),
    "one": np.float32(1),
    "root": np.float32(2**0.5),
    "w": np.eye(4, dtype=np.float32)[::-1].copy(),
    "first": np.array([0], np.int64),
    "second": np.array([2], np.int64),
    "end": np.array([9], np.int64),
    "axis": np.array([1], np.int64),
    "flat": np.array([16], np.int64),
    "square": np.array([4, 4], np.int64),
}


class Chain:
    """A model under construction: `add` appends a node and gives its output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []

    def add(self, operator: str, *inputs: str, **attributes: object) -> str:
        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [output], f"n{len(self.nodes)}", **attributes))
        return output

    def model(self, output: str) -> onnx.ModelProto:
        x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", output))
        used = {name for node in self.nodes for name in node.input}
        constants = [numpy_helper.from_array(np.asarray(a), name) for name, a in CONSTANTS.items() if name in used]
        graph = helper.make_graph(self.nodes, "g", [x], [y], constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


Step = Callable[[Chain, str], str]


def unary(chain: Chain, value: str) -> str:
    return chain.add("Tanh", chain.add("Neg", value))


def twice(chain: Chain, value: str) -> str:
    half = chain.add("Mul", value, "half")
    return chain.add("Add", half, half)


def silu(chain: Chain, value: str) -> str:
    return chain.add("Mul", value, chain.add("Sigmoid", value))


def gelu(chain: Chain, value: str) -> str:
    bell = chain.add("Add", chain.add("Erf", chain.add("Div", value, "root")), "one")
    return chain.add("Mul", chain.add("Mul", value, bell), "half")


def diamond(chain: Chain, value: str) -> str:
    left, right = chain.add("Sin", value), chain.add("Abs", value)
    return chain.add("Mul", chain.add("Add", chain.add("Mul", left, right), value), "half")


def transposed(chain: Chain, value: str) -> str:
    across = chain.add("Transpose", value, perm=[1, 0])
    return chain.add("Mul", chain.add("Add", across, value), "half")


def transposed_twice(chain: Chain, value: str) -> str:
    across = chain.add("Tanh", chain.add("Transpose", value, perm=[1, 0]))
    return chain.add("Mul", across, across)


def reshaped(chain: Chain, value: str) -> str:
    return chain.add("Reshape", chain.add("Tanh", chain.add("Reshape", value, "flat")), "square")


def rolled(chain: Chain, value: str) -> str:
    left = chain.add("Slice", value, "first", "second", "axis")
    return chain.add("Concat", chain.add("Slice", value, "second", "end", "axis"), left, axis=1)


def product(chain: Chain, value: str) -> str:
    return silu(chain, chain.add("MatMul", value, "w"))


def normalised(chain: Chain, value: str) -> str:
    return silu(chain, chain.add("Softmax", value, axis=1))


STEPS: tuple[Step, ...] = (
    unary, twice, silu, gelu, diamond, transposed, transposed_twice, reshaped, rolled, product, normalised,
)  # fmt: skip


def chained(step: Step, length: int) -> onnx.ModelProto:
    chain, value = Chain(), "x"
    for _ in range(length):
        value = step(chain, value)
    return chain.model(value)


@pytest.mark.parametrize("length", [3, 40])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_a_chain_is_compiled_quickly_and_right(step: Step, length: int) -> None:
    model = chained(step, length)
    started = time.process_time()
    program = graft.compile(model, ["llvm"], cache=False, threads=1)
    assert time.process_time() - started < SECONDS
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    (expected,) = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(program(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("step", [unary, twice, silu, diamond], ids=lambda step: step.__name__)
def test_a_long_chain_needs_no_deep_recursion(step: Step) -> None:
    model = chained(step, 400)
    started = time.process_time()
    compiled = compile_model(model, Request(["llvm"], cache=False, tuned=False, threads=1))
    assert time.process_time() - started < 2 * SECONDS
    calls = len(compiled.description.procedures[0].calls)
    assert calls <= 3 * len(model.graph.node) // FusionLimits().group, "long chains are still cut into few kernels"


def test_a_kernel_holds_no_more_operators_than_the_limit() -> None:
    compiled = compile_model(chained(unary, 100), Request(["llvm"], cache=False, tuned=False, threads=1))
    lengths = [len(call.origin) for call in compiled.description.procedures[0].calls]
    assert lengths == [64, 64, 64, 8]
    assert FusionLimits().group == 64
