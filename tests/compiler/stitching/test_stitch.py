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
from graft.compiler.stitching.stitch import Stitcher, captured_values
from graft.core.machine.target import CompileOptions
from graft.errors import UnsupportedError
from graft.plugins.backend import CompiledRegion
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


CONTROL = {
    "branches that read from outside": (
        "k = Constant <value = float[2] {1, 2}> ()\n h = Exp(x)\n"
        "y = If(c) <then_branch = t () => (float[2] a) { a = Add(h, k) }, else_branch = e () => (float[2] b) "
        "{ n = Neg(k) b = Mul(n, x) }>",
        "bool c, float[2] x", "float[2] y",
    ),
    "a branch that is a value from outside": (
        "h = Exp(x)\n y = If(c) <then_branch = t () => (float[2] a) { a = Neg(h) }, else_branch = e () => (float[2] b) "
        "{ b = If(c) <then_branch = tt () => (float[2] d) { d = Exp(h) }, else_branch = ee () => (float[2] f) "
        "{ f = Identity(x) }> }>",
        "bool c, float[2] x", "float[2] y",
    ),
    "a loop with state and a scanned output": (
        "n = Constant <value = int64 {3}> ()\n always = Constant <value = bool {1}> ()\n h = Exp(x)\n"
        "y, z = Loop(n, always, x) <body = l (int64 i, bool go, float[2] s) => (bool on, float[2] next, float[2] seen) "
        "{ on = Identity(go) next = Add(s, h) seen = Neg(next) }>",
        "float[2] x", "float[2] y, float[3,2] z",
    ),
}  # fmt: skip


@pytest.mark.parametrize("backends", [["llvm"], ["reference"]], ids=["inlined", "module"])
@pytest.mark.parametrize("name", CONTROL)
def test_bodies_are_procedures_that_get_what_they_read_from_outside(name: str, backends: list[str]) -> None:
    check(graft.compile(model(*CONTROL[name]), backends, threads=1), model(*CONTROL[name]))


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("is_backwards", [False, True])
def test_a_scan_reads_and_writes_along_its_axes_in_their_directions(is_last: bool, is_backwards: bool) -> None:
    axis, shape = int(is_last), "[2,3]" if is_last else "[3,2]"
    given = {"x": np.array([1, 2], np.float32), "m": np.arange(6, dtype=np.float32).reshape(2, 3)}
    given["m"] = given["m"] if is_last else given["m"].T.copy()
    for backwards in ("input", "output"):
        attributes = f"scan_input_axes = [{axis}], scan_output_axes = [{axis}], " if is_last else ""
        attributes += f"scan_{backwards}_directions = [1], " if is_backwards else ""
        body = "(float[2] s, float[2] row) => (float[2] next, float[2] seen) { next = Add(s, row) seen = Mul(next, x) }"
        text = f"y, z = Scan <num_scan_inputs = 1, {attributes} body = l {body}> (x, m)"
        program = graft.compile(model(text, f"float[2] x, float{shape} m", f"float[2] y, float{shape} z"), ["llvm"])
        rows = np.moveaxis(given["m"], axis, 0)
        sums = given["x"] + np.cumsum(rows[::-1] if is_backwards and backwards == "input" else rows, 0)
        seen = (sums[::-1] if is_backwards and backwards == "output" else sums) * given["x"]
        found = program.run(given)
        np.testing.assert_array_equal(found["y"], sums[-1])
        np.testing.assert_array_equal(found["z"], np.moveaxis(seen, 0, axis))


def test_values_that_a_body_reads_from_outside_are_in_the_order_of_their_use() -> None:
    text = """
    y = If(c) <then_branch = t () => (float[2] a) <float[2] k = {1, 2}> {
        m = Mul(w, k) n = If(d) <then_branch = tt () => (float[2] g) { g = Add(v, m) },
        else_branch = ee () => (float[2] u) {}> a = Add(n, w) }, else_branch = e () => (float[2] v) {}>"""
    head = '<ir_version: 10, opset_import: ["" : 21]> g (bool c, bool d, float[2] u, float[2] v, float[2] w)'
    proto = onnx.parser.parse_model(f"{head} => (float[2] y) {{ {text} }}")
    node = ir.from_proto(proto).graph[0]
    branches = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    assert [[value.name for value in captured_values(branch)] for branch in branches] == [["w", "d", "v", "u"], ["v"]]


def test_a_node_that_no_backend_took_is_refused_by_its_name() -> None:
    graph = ir.from_proto(model("y = Neg(x)", "float[2] x", "float[2] y")).graph
    with pytest.raises(UnsupportedError) as caught:
        Stitcher({}, {}).stitch(graph)
    assert str(caught.value) == "Neg (node 'y'): no backend takes this node; add one that does"


@pytest.mark.parametrize("ownership", ["embedded", "passed"])
@pytest.mark.parametrize("backend", ["vendor", "llvm"])
def test_the_functions_of_a_regions_modules_can_be_asked_for_alone(backend: str, ownership: Any) -> None:
    owner = Vendor("MatMul", "Exp")
    owner.constants = ownership
    text = "k = Constant <value = float[3,1] {1, 2, 3}> ()\n h = MatMul(x, k)\n y = Exp(h)"
    passed = frozenset({"vendor"} if ownership == "passed" else ())
    backends = [owner, "llvm"] if backend == "vendor" else ["llvm"]
    compiled = compile_model(model(text, "float[2,3] x", "float[2,1] y"), Request(backends, threads=1))
    (region,) = compiled.regions.values()
    stitcher = Stitcher(compiled.regions, compiled.modules, passed)
    description = stitcher.stitch_modules(region)
    (procedure,) = description.procedures
    own = compiled.modules[region.name]
    wanted = [call for call in compiled.description.procedures[0].calls if call.kind == "call"]
    assert [(call.function, len(call.inputs), call.module) for call in procedure.calls] == [
        (call.function, len(call.inputs), call.module) for call in wanted
    ]
    assert all(number == -1 for call in procedure.calls for number in call.inputs)
    assert [number for call in procedure.calls for number in call.outputs] == list(range(len(procedure.tensors)))
    assert description.modules == (own.modules if isinstance(own, CompiledRegion) else (own,))
    graft.runtime.program.Program.from_description(description)


def test_a_region_alone_has_numbers_for_the_symbols_that_its_inputs_do_not_tell() -> None:
    proto = model("h = MatMul(x, w)\n y = Neg(h)", "float[n,3] x, float[3,4] w", "float[n,4] y")
    compiled = compile_model(proto, Request(["llvm"], threads=1))
    (region,) = compiled.regions.values()
    (bound,) = Stitcher(compiled.regions, compiled.modules).stitch_region(region, {"n": 5}).procedures
    assert [one.shape for one in bound.tensors if one.storage in ("input", "output")] == [(5, 3), (3, 4), (5, 4)]
    (free,) = Stitcher(compiled.regions, compiled.modules).stitch_region(region).procedures
    assert [one.name for one in free.symbols] == ["n"]


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
