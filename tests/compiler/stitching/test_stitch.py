"""Stitching: outputs that are views, inputs, constants or doubled; passed constants; inlining and planning anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graft
from graft.compiler.api import compile_model
from graft.compiler.request import Request
from graft.compiler.stitching.procedure_builder import ProcedureBuilder
from graft.core.machine.target import CompileOptions
from graft.plugins.reference.backend import ReferenceBackend
from graft.runtime.dtypes import element_type
from graft.runtime.procedure import Call, Procedure, TensorSpec, contiguous_bytes
from tests.compiler.models import Vendor, check, model

OUTPUTS = {
    "an input": ("y = Identity(x)", "float[2,3] x", "float[2,3] y"),
    "an input and what is made of it": ("y = Identity(x)\n z = Neg(x)", "float[2,3] x", "float[2,3] y, float[2,3] z"),
    "one input twice": ("y = Identity(x)\n z = Identity(x)", "float[2] x", "float[2] y, float[2] z"),
    "a constant": ("y = Constant <value = float[2] {1, 2}> ()\n z = Neg(x)", "float[2] x", "float[2] y, float[2] z"),
    "one result twice": ("y = Neg(x)\n z = Identity(y)", "float[2] x", "float[2] y, float[2] z"),
    "a view of an input": (
        "s = Constant <value = int64[1] {6}> ()\n y = Reshape(x, s)", "float[2,3] x", "float[6] y",
    ),
    "a view of a result": (
        "s = Constant <value = int64[1] {6}> ()\n e = Exp(x)\n y = Reshape(e, s)", "float[2,3] x", "float[6] y",
    ),
    "a result and its view": (
        "s = Constant <value = int64[1] {6}> ()\n y = Exp(x)\n z = Reshape(y, s)",
        "float[2,3] x", "float[2,3] y, float[6] z",
    ),
    "two views of one result": (
        "s = Constant <value = int64[1] {6}> ()\n t = Constant <value = int64[2] {3, 2}> ()\n e = Exp(x)\n"
        "y = Reshape(e, s)\n z = Reshape(e, t)",
        "float[2,3] x", "float[6] y, float[3,2] z",
    ),
    "a view that is also read": (
        "s = Constant <value = int64[1] {6}> ()\n e = Exp(x)\n y = Reshape(e, s)\n z = Neg(y)",
        "float[2,3] x", "float[6] y, float[6] z",
    ),
    "a result that is also read": ("y = Exp(x)\n z = Neg(y)", "float[2] x", "float[2] y, float[2] z"),
    "an input that nobody reads": ("y = Exp(x)", "float[2] x, float[3] unused", "float[2] y"),
    "a scalar": ("y = Exp(x)", "float x", "float y"),
}  # fmt: skip


@pytest.mark.parametrize("backends", [["llvm"], ["reference"]], ids=["inlined", "module"])
@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_are_right_whatever_they_are(name: str, backends: list[str]) -> None:
    proto = model(*OUTPUTS[name])
    program = graft.compile(proto, backends, threads=1)
    check(program, proto)
    given = {value.name: np.ones(value.shape or (), value.dtype) for value in program.inputs}
    first = program.run(given)
    kept = {key: array.copy() for key, array in first.items()}
    program.run({key: np.asarray(array + 1, array.dtype) for key, array in given.items()})
    for key, array in first.items():  # the second call has not written into the first one's results
        np.testing.assert_array_equal(array, kept[key])
        assert not any(np.shares_memory(array, one) for one in given.values())


@pytest.mark.parametrize("ownership", ["embedded", "passed", "handed-over"])
def test_every_ownership_of_constants_gives_the_same(ownership: Any) -> None:
    class Owner(Vendor):
        constants = ownership

        def compile(self, region: graft.Region, options: CompileOptions) -> Any:
            module = ReferenceBackend().compile(region, options)
            data, handed = module.data, dict(module.constants)
            if ownership == "embedded":
                owned = ir.from_proto(onnx.load_model_from_string(data))
                for value in [one for one in owned.graph.inputs if one.name in handed]:
                    owned.graph.inputs.remove(value)
                    value.const_value = ir.tensor(handed[value.name or ""], name=value.name)
                    owned.graph.initializers.add(value)
                data = ir.to_proto(owned).SerializeToString()
            kept = handed if ownership == "handed-over" else {}
            return graft.Module(module.name, module.kind, module.functions, data, kept, "reference")

    body = "k = Constant <value = float[3,1] {1, 2, 3}> ()\n h = MatMul(x, k)\n y = Neg(h)"
    proto = model(body, "float[2,3] x", "float[2,1] y")
    program = graft.compile(proto, [Owner("MatMul"), "llvm"], threads=1)
    check(program, proto)
    call = next(call for call in program.description.procedures[0].calls if call.function.startswith("vendor"))
    assert len(call.inputs) == (2 if ownership == "passed" else 1)


def test_more_outputs_can_be_asked_of_a_compiled_model() -> None:
    compiled = compile_model(model(), Request([Vendor("MatMul"), "llvm"], threads=1))
    main = compiled.stitch(["h"]).procedures[0]
    assert [main.tensors[index].name for index in main.outputs] == ["y", "h"]


def arena(name: str) -> TensorSpec:
    return TensorSpec(name, "float32", (16,), "arena")


def region() -> Procedure:
    """x -> t -> y, in two calls of one module."""
    tensors = (
        TensorSpec("x", "float32", (16,), "input", index=0),
        arena("t"),
        TensorSpec("k", "float32", (16,), "constant", constant="key"),
        arena("y"),
    )
    calls = (
        Call("call", (0, 2), (1,), module=0, function="f"),
        Call("call", (1,), (3,), module=1, function="g"),
    )
    return Procedure("region", tensors, (0,), (3,), calls)


def test_an_inlined_region_is_renumbered() -> None:
    builder = ProcedureBuilder("main")
    x = builder.add_input("x", "float32", (16,))
    first = builder.inline(region(), [x], 5, {"key": "global"})
    second = builder.inline(region(), first, 7, {"key": "global"})
    procedure = builder.finish(second, ["y"])
    assert [(call.module, call.function) for call in procedure.calls] == [(5, "f"), (6, "g"), (7, "f"), (8, "g")]
    assert {spec.constant for spec in procedure.tensors if spec.storage == "constant"} == {"global"}
    output = procedure.tensors[procedure.outputs[0]]
    assert (output.name, output.storage, procedure.calls[-1].outputs) == ("y", "output", procedure.outputs)
    check_arena(procedure)


def test_a_region_can_be_written_into_existing_tensors() -> None:
    builder = ProcedureBuilder("main")
    x = builder.add_input("x", "float32", (16,))
    target = builder.result("kept", "float32", (16,))
    assert builder.inline(region(), [x], 0, {"key": "k"}, into=[target]) == [target]
    assert builder.calls[-1].outputs == (target,)


def test_a_region_that_returns_its_input_is_copied_into_existing_tensors() -> None:
    same = Procedure("same", (TensorSpec("x", "float32", (16,), "input", index=0),), (0,), (0,), ())
    builder = ProcedureBuilder("main")
    x = builder.add_input("x", "float32", (16,))
    target = builder.result("kept", "float32", (16,))
    builder.inline(same, [x], 0, {}, into=[target])
    assert builder.calls == [Call("copy", (x,), (target,))]


def test_planning_anew_keeps_inputs_and_outputs() -> None:
    builder = ProcedureBuilder("main")
    x = builder.add_input("x", "float32", (16,))
    first = builder.finish(builder.inline(region(), [x], 0, {"key": "k"}), ["y"])
    again = ProcedureBuilder.reopen(first).replan()
    assert again == first


def check_arena(procedure: Procedure) -> None:
    """Assert that tensors live at one time do not overlap."""
    spans: dict[int, list[int]] = {}
    for step, call in enumerate(procedure.calls):
        for index in (*call.inputs, *call.outputs):
            spans.setdefault(index, []).append(step)
    placed = [(i, spec) for i, spec in enumerate(procedure.tensors) if spec.storage == "arena"]
    for i, left in placed:
        for k, right in placed:
            apart = max(spans[i]) < min(spans[k]) or max(spans[k]) < min(spans[i])
            sizes = [contiguous_bytes(element_type(one.dtype).bytes, one.shape or ()) for one in (left, right)]
            beside = left.offset + sizes[0] <= right.offset or right.offset + sizes[1] <= left.offset
            assert i == k or apart or beside
