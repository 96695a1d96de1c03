"""The base class of backends that generate code: what a subclass gets, and what it may decide."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graft
from graft.core.graph.view import NodeView
from graft.core.machine.target import CompileOptions, Target, host_target
from graft.core.reject import Reject
from graft.core.rewriting.fold_constants import FoldConstants
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.tensor_ir.ir import Function
from graft.plugins.backend import CompiledRegion
from graft.plugins.codegen.grouping.fusion import FusionLimits
from graft.plugins.registry.manager import PluginManager
from tests.plugins.llvm.graphs import region_of

TEXT = "g (float[3,4] x) => (float[3,4] z) { y = Relu(x) z = Tanh(y) }"


class Printing(graft.TensorIrBackend):
    """Emits the text of the tensor IR."""

    name = "printing"

    def emit(self, functions: Sequence[Function], target: Target) -> graft.Module:
        names = tuple(function.name for function in functions)
        return graft.Module("", "printed", names, "\n".join(map(str, functions)).encode())


def compiled(backend: graft.TensorIrBackend) -> CompiledRegion:
    return backend.compile(region_of(TEXT), CompileOptions(host_target()))


def test_a_region_is_handed_to_emit_as_fused_and_scheduled_functions() -> None:
    result = compiled(Printing())
    (module,), (call,) = result.modules, result.procedure.calls
    assert (module.name, module.kind, module.plugin) == ("r", "printed", "printing")
    assert module.functions == (call.function,)
    assert len(call.origin) == 2, "both operators in one kernel"


TWICE = """
import numpy as np
import graft
from graft.core.tensor_ir import ir
from graft.runtime.loaders import PythonLoader


class Twice(graft.TensorIrBackend):
    name = "twice"
    operators = ("Add",)

    def supports(self, node):
        return super().supports(node) if node.op_type in self.operators else graft.Reject("no-pattern", "only Add")

    def emit(self, functions, target):
        return graft.Module("", "twice", tuple(function.name for function in functions), b" ".join(
            function.name.encode() for function in functions))


def load(name, data, constants):
    return {symbol.decode(): lambda inputs: [inputs[0] * 2] for symbol in data.split()}


@graft.hookimpl
def graft_backends():
    return [Twice]


@graft.hookimpl
def graft_module_loaders():
    return [PythonLoader("twice", load)]
"""


def test_a_backend_of_a_plugin_with_another_name_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(TWICE, encoding="utf-8")
    manager = PluginManager()
    manager.load_file(tmp_path / "other.py")
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[3] x) => (float[3] y) { y = Add(x, x) }'
    )
    program = graft.compile(model, ["twice", "llvm"], manager=manager, cache=False)
    assert [module.plugin for module in program.description.modules] == ["other"]
    np.testing.assert_array_equal(program(np.float32([1, 2, 3])), [2, 4, 6])


def test_limits_of_fusion_are_the_backends() -> None:
    class Alone(Printing):
        fusion = FusionLimits(group=1)

    assert [len(call.origin) for call in compiled(Alone()).procedure.calls] == [1, 1]


def test_a_schedule_of_ones_own_goes_before_grafts() -> None:
    class Renaming(Printing):
        def schedule(self, kernel: Kernel, target: Target, parameters: object = None) -> Scheduled:
            from dataclasses import replace

            return super().schedule(replace(kernel, name="mine"), target)

    assert compiled(Renaming()).modules[0].functions == ("mine",)


def test_a_subclass_without_emit_says_so() -> None:
    class Mute(graft.TensorIrBackend):
        name = "mute"

    with pytest.raises(TypeError) as caught:
        compiled(Mute())
    assert str(caught.value) == "backend 'mute' does not define emit(functions, target)"


def test_refusals_name_the_backend() -> None:
    value = ir.Value(name="x", type=ir.TensorType(ir.DataType.COMPLEX64), shape=ir.Shape((2,)))
    answer = Printing().supports(NodeView(ir.Node("", "Relu", [value], name="it")))
    assert answer == Reject("dtype", "'x' is complex64; printing computes numbers and bool")


EIGHTHS = ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ")


def widening(kind: ir.DataType, sides: Sequence[int] = (16, 8)) -> onnx.ModelProto:
    """Products by matrices of 8-bit floats with a scale for each column; the last of them widened is an output, too."""
    drawn, nodes, tensors, last = np.random.default_rng(0), [], [], "x"
    for number, (rows, columns) in enumerate(pairwise(sides)):
        numbers = ir.Tensor(drawn.standard_normal((rows, columns)).astype(kind.numpy()), dtype=kind, name=f"w{number}")
        scales = ir.tensor(drawn.random(columns, np.float32), name=f"s{number}")
        tensors += [ir.to_proto(numbers), ir.to_proto(scales)]
        nodes += [
            f"d{number} = DequantizeLinear<axis=1>(w{number}, s{number})",
            f"y{number} = MatMul({last}, d{number})",
        ]
        last = f"y{number}"
    outputs = f"float[n,{sides[-1]}] {last}, float[{sides[-2]},{sides[-1]}] d{len(sides) - 2}"
    header = '<ir_version: 10, opset_import: ["" : 23]>'
    model = onnx.parser.parse_model(f"{header} g (float[n,{sides[0]}] x) => ({outputs}) {{ {' '.join(nodes)} }}")
    model.graph.initializer.extend(tensors)
    return model


@pytest.mark.parametrize("kind", EIGHTHS)
def test_constants_of_8_bit_floats_are_widened_where_a_region_is_compiled(kind: str) -> None:
    x, model = np.ones((3, 16), np.float32), widening(ir.DataType[kind])
    program, expected = graft.compile(model, ["llvm"]), graft.compile(model, ["reference"])(x)
    for found, wanted in zip(program(x), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_as_many_8_bit_floats_are_widened_as_the_constants_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FoldConstants, "total", 0)
    model = widening(ir.DataType.FLOAT8E4M3FN, (512, 256, 512, 128))
    assert graft.compile(model, ["llvm"])(np.ones((1, 512), np.float32))[0].shape == (1, 128)


def test_8_bit_floats_that_come_at_run_time_are_refused() -> None:
    values = [ir.Value(name=name, type=ir.TensorType(kind), shape=ir.Shape(())) for name, kind in
              (("x", ir.DataType.FLOAT8E5M2), ("s", ir.DataType.FLOAT))]  # fmt: skip
    answer = Printing().supports(NodeView(ir.Node("", "DequantizeLinear", values, name="it")))
    assert answer == Reject("dtype", "'x' is float8e5m2; printing computes numbers and bool")
