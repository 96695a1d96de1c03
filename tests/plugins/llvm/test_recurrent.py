"""RNN, GRU and LSTM in chunks of hidden units, against ONNX Runtime, on one thread and on two."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graft
from graft.core.graph.view import NodeView
from graft.core.machine.target import host_target, target_named
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.build import index
from graft.core.operators.products.recurrent_layer import GATES
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.selection.select import schedule
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from graft.core.tensor_ir.ir import For
from graft.core.tensor_ir.verifying.verifier import verify, verify_stages
from graft.core.tensor_ir.visit import walk_statements
from graft.plugins.codegen.grouping.fusion import fuse
from graft.plugins.codegen.grouping.lowerings import Lowerings
from graft.plugins.codegen.lowered_groups import Values
from graft.plugins.llvm.emit import module_ir
from graft.runtime.program import Program

onnxruntime = pytest.importorskip("onnxruntime")
STEPS, INPUTS = 5, 24


def arrays(kind: str, hidden: int, batch: int) -> dict[str, np.ndarray]:
    random, rows = np.random.default_rng(hidden), GATES[kind] * hidden
    shapes = {"w": (2, rows, INPUTS), "r": (2, rows, hidden), "b": (2, 2 * rows)}
    weights = {name: random.uniform(-0.2, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}
    x, h = random.standard_normal((STEPS, batch, INPUTS)), random.standard_normal((2, batch, hidden))
    lengths = np.array([STEPS, 2, 3][:batch], np.int32)
    return {"x": x.astype(np.float32), **weights, "n": lengths, "h": h.astype(np.float32)}


def network(kind: str, values: dict[str, np.ndarray], constant: bool, **attributes: int) -> onnx.ModelProto:
    hidden = values["r"].shape[-1]
    node = helper.make_node(
        kind, ["x", "w", "r", "b", "n", "h"], ["y", "last"], hidden_size=hidden, direction="bidirectional", **attributes
    )
    fixed = {name: numpy_helper.from_array(values[name], name) for name in ("w", "r", "b") if constant}
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in values.items()
        if name not in fixed
    ]
    batch = values["x"].shape[1]
    shapes = {"y": (STEPS, 2, batch, hidden), "last": (2, batch, hidden)}
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    graph = helper.make_graph([node], "recurrent", given, outputs, list(fixed.values()))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def compiled(model: onnx.ModelProto, threads: int) -> Program:
    return graft.compile(model, ["llvm"], threads=threads, strict=True)


@pytest.mark.parametrize("constant", [True, False], ids=["packed", "given"])
@pytest.mark.parametrize(
    ("kind", "hidden", "batch", "attributes"),
    [
        ("LSTM", 200, 1, {}),  # 13 vectors: the last chunk is half empty
        ("LSTM", 208, 3, {}),  # a vector of nothing but padding
        ("GRU", 144, 1, {}),
        ("GRU", 150, 3, {"linear_before_reset": 1}),
        ("RNN", 272, 2, {}),
    ],
)
def test_recurrent_layers_agree_with_onnxruntime_on_any_threads(
    kind: str, hidden: int, batch: int, attributes: dict[str, int], constant: bool
) -> None:
    values = arrays(kind, hidden, batch)
    model = network(kind, values, constant, **attributes)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {one.name: values[one.name] for one in session.get_inputs()}
    expected = dict(zip(("y", "last"), session.run(None, feeds), strict=True))
    results = [compiled(model, threads).run(feeds) for threads in (1, 2)]
    for name, value in expected.items():
        np.testing.assert_allclose(results[0][name], value, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(results[1][name], results[0][name])


def test_threads_share_the_hidden_units_of_a_step() -> None:
    kernel = kernel_of(network("LSTM", arrays("LSTM", 256, 1), constant=False))
    function = schedule(kernel, target_named("x86-64-v4")).function
    steps = [one for one in walk_statements(function.body) if isinstance(one, For) and one.extent == index(STEPS)]
    shared = [[one.extent for one in walk_statements(step) if getattr(one, "kind", "") == "parallel"] for step in steps]
    assert shared.count([index(16)]) == 2
    assert module_ir((function,), host_target()).count("define internal i32 @") >= 4


def kernel_of(model: onnx.ModelProto) -> Kernel:
    """The only node of a model as a kernel."""
    graph = graft.load(model).graph
    node = NodeView(graph.node(-1))
    (group,) = fuse([node], graph.outputs, OPERATORS)
    return Values(Lowerings(OPERATORS)).lower_group(group, "layer", graph.outputs).kernel


def check(kernel: Kernel, machine: str, values: dict[str, np.ndarray]) -> None:
    """What is scheduled does what the stages say."""
    verify_stages(kernel.stages)
    given = dict(zip(kernel.inputs, (values[buffer.name] for buffer in kernel.inputs), strict=True))
    expected = run_stages(kernel.stages, given)
    scheduled = schedule(kernel, target_named(machine))
    function = scheduled.function
    verify(function)
    arrays = [scheduled.packed.get(buffer, array) for buffer, array in given.items()]
    for buffer, found in zip(kernel.outputs, run_function(function, arrays), strict=True):
        np.testing.assert_allclose(found, expected[buffer], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("machine", "constant"), [("riscv64", False), ("x86-64", False), ("x86-64-v4", True)])
@pytest.mark.parametrize(
    ("kind", "attributes"),
    [("RNN", {}), ("GRU", {}), ("GRU", {"linear_before_reset": 1}), ("LSTM", {}), ("LSTM", {"input_forget": 1})],
)
def test_vectors_and_plain_loops_do_what_the_stages_say(
    kind: str, attributes: dict[str, int], machine: str, constant: bool
) -> None:
    values = arrays(kind, 5, 3)
    check(kernel_of(network(kind, values, constant, **attributes)), machine, values)


@pytest.mark.parametrize(("machine", "strategy"), [("x86-64-v4", "recurrent_layers"), ("riscv64", "sequential_loops")])
def test_a_layer_runs_in_vectors_where_the_machine_has_some(machine: str, strategy: str) -> None:
    kernel = kernel_of(network("GRU", arrays("GRU", 16, 1), constant=True))
    assert schedule(kernel, target_named(machine)).strategy == strategy
