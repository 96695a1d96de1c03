"""A backend of one sample: a model of an open batch is a loop over samples, where each is for itself."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import onnx
import pytest

import graft
from graft.core.importer.load import load
from graft.partition.sample_loop import SampleLoop

WEIGHTS = {"w": (4, 3, 3, 3), "v": (4, 5), "b": (5,), "m": (6, 7)}


def model_of(body: str, inputs: str = "float[n,3,8,8] x", outputs: str = "float[n,4,6,6] y") -> onnx.ModelProto:
    made = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => ({outputs}) {{ {body} }}'
    )
    random = np.random.default_rng(0)
    read = {name for node in made.graph.node for name in node.input}
    made.graph.initializer.extend(
        onnx.numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)
        for name, shape in WEIGHTS.items()
        if name in read
    )
    made.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.array(numbers), name)
        for name, numbers in {"flat": [-1, 4], "zero": [0], "one": [1], "joined": [-1]}.items()
        if name in read
    )
    return made


WHOLE = (
    "a = Conv(x, w) r = Relu(a) c = Add(r, z) d = MaxPool<kernel_shape=[6,6]>(c) f = Reshape(d, flat) "
    "s = Softmax<axis=1>(f) y = Gemm(s, v, b)"
)


class Npu(graft.JsonBackend):
    """A vendor whose machine computes one sample at a time, by onnx.reference here; it is not asked for Add."""

    name = "npu"
    shapes = "static"
    one_sample = True
    batches: ClassVar[set[int]] = set()

    @graft.supports("Conv", "Relu", "MaxPool", "Gemm", "Softmax")
    def one(self, node: Any) -> bool:
        return True

    def load(self, graph: Any, constants: Any) -> Any:
        return lambda inputs: graph.run(inputs, constants, self.kernel)

    def kernel(self, node: Any, arrays: list[np.ndarray]) -> list[np.ndarray]:
        self.batches.add(len(arrays[0]))
        (row,) = node.body
        names = [f"x{place}" for place, _ in enumerate(arrays)]
        made = onnx.helper.make_node(row.op, names, ["y"], **{k: v for k, v in row.attributes.items() if v is not None})
        types = [onnx.helper.make_tensor_value_info(name, 1, None) for name in [*names, "y"]]
        graph = onnx.helper.make_graph([made], "g", types[:-1], types[-1:])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)])
        found: list[np.ndarray] = onnx.reference.ReferenceEvaluator(model).run(
            None, dict(zip(names, arrays, strict=True))
        )
        return found


def test_any_number_of_samples_goes_one_by_one(tmp_path: Any) -> None:
    inputs, outputs = "float[n,3,8,8] x, float[n,4,1,1] z", "float[n,5] y, float[n,4,6,6] r"
    model = model_of(WHOLE, inputs, outputs)
    Npu.batches.clear()
    program = graft.compile(model, [Npu(), "llvm"], strict=True)
    plan = graft.Plan.of(program)
    assert {row.node for row in plan.placements if row.backend == "npu"} == {"a", "r", "d", "s", "y"}
    program.save(tmp_path / "m.graft")
    reference = onnx.reference.ReferenceEvaluator(model)
    random = np.random.default_rng(1)
    for run in (program, graft.runtime.load(tmp_path / "m.graft", loaders=[Npu])):
        for count in (1, 5, 3):
            x = random.standard_normal((count, 3, 8, 8)).astype(np.float32)
            z = random.standard_normal((count, 4, 1, 1)).astype(np.float32)
            for made, wanted in zip(run(x, z), reference.run(None, {"x": x, "z": z}), strict=True):
                np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)
        assert [one.shape for one in run(x[:0], z[:0])] == [(0, 5), (0, 4, 6, 6)]
    assert Npu.batches == {1}


@pytest.mark.parametrize(
    ("body", "inputs", "outputs"),
    [
        ("a = Conv(x, w) y = Softmax<axis=0>(a)", "float[n,3,8,8] x", "float[n,4,6,6] y"),
        ("a = Conv(x, w) s = ReduceSum<keepdims=1>(a, zero) y = Sub(a, s)", "float[n,3,8,8] x", "float[n,4,6,6] y"),
        ("y = CumSum(x, zero)", "float[n,3] x", "float[n,3] y"),
        ("y = Transpose<perm=[1,0]>(x)", "float[n,3] x", "float[3,n] y"),
        ("y = Concat<axis=0>(x, x)", "float[n,3] x", "float[k,3] y"),
        ("y = Reshape(x, joined)", "float[n,3] x", "float[k] y"),
        ("s = Shape(x) y = Cast<to=1>(s)", "float[n,3] x", "float[2] y"),
        ("y = MatMul(x, z)", "float[n,n] x, float[n,n] z", "float[n,n] y"),
        ("y = Add(x, z)", "float[n,3] x, float[3] z", "float[n,3] y"),
        ("y = Add(x, z)", "float[n,3] x, float[k,3] z", "float[n,3] y"),
        ("y = Relu(x)", "float[2,3] x", "float[2,3] y"),
        ("y = Relu(x)", "float[2,n] x", "float[2,n] y"),
        ("y = Relu(x)", "float x", "float y"),
        ("y = ReduceSum<keepdims=0>(x, zero)", "float[n,3] x", "float[3] y"),
    ],
)
def test_what_is_not_of_each_sample_alone_stays(body: str, inputs: str, outputs: str) -> None:
    model = load(model_of(body, inputs, outputs))
    assert not SampleLoop().run(model)


def test_integers_of_a_quantised_model_go_in_one_piece() -> None:
    body = (
        "q = QuantizeLinear(x, s, p) d = DequantizeLinear(q, s, p) a = MaxPool<kernel_shape=[2,2]>(d) "
        "e = QuantizeLinear(a, s, p) y = DequantizeLinear(e, s, p)"
    )
    model = model_of(body, outputs="float[n,3,7,7] y")
    model.graph.initializer.extend(
        [onnx.numpy_helper.from_array(np.float32(0.1), "s"), onnx.numpy_helper.from_array(np.int8(3), "p")]
    )

    class Integers(Npu):
        name = "integers"
        quantized = True

    text = str(graft.plan(model, [Integers(), "llvm"]).summary())
    assert text.startswith("integers 1/")
