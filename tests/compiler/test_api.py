"""`graft.load`, `plan`, `compile` and `Program`, as the README shows them, and what they say to bad input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graft
from graft.compiler.api import compile_model
from graft.compiler.request import Request
from graft.core.passes.fold_batch_normalization import FoldBatchNormalization
from graft.core.passes.pipeline import record_of
from graft.errors import ArtifactError, GraftError, InputError, ModelError, PlanError, PluginError, UnsupportedError
from tests.compiler.models import Vendor, check, feeds, kinds, model, raising

OTHER_SHAPE = "; compile the model for this shape, or pass that one"


def message_of(kind: type[GraftError], *arguments: Any, **options: Any) -> str:
    """Compile, which must fail, and return the message."""
    with pytest.raises(kind) as caught:
        graft.compile(*arguments, threads=1, **options)
    return caught.value.message


@pytest.mark.parametrize("loaded", [False, True])
def test_a_pass_that_breaks_the_model_is_named(monkeypatch: pytest.MonkeyPatch, loaded: bool) -> None:
    def run(self: FoldBatchNormalization, model: ir.Model) -> bool:
        model.graph.node(0).op_type = "Nonsense"
        return True

    monkeypatch.setattr(FoldBatchNormalization, "run", run)
    source = graft.load(model()) if loaded else model()
    with pytest.raises(AssertionError, match="pass 'fold-batch-normalization' left a model that is not valid ONNX: "):
        graft.plan(source)


def test_the_way_that_the_readme_shows(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model(), path)
    loaded = graft.load(str(path))
    plan = graft.plan(loaded, backends=["llvm"])
    assert plan.summary().startswith("llvm 3/3 ops (100.0 %")
    program = graft.compile(loaded, backends=["llvm"], threads=1)
    check(program, model())
    y = program(*feeds(model()).values())
    assert isinstance(y, np.ndarray)
    program.save(tmp_path / "m.graft")
    check(graft.runtime.load(tmp_path / "m.graft", threads=1), model())
    assert not (tmp_path / "m.graft.part").exists()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["m.graft", "m.onnx"]


@pytest.mark.parametrize("form", ["path", "string", "bytes", "proto", "loaded"])
def test_every_form_of_a_model_is_taken(form: str, tmp_path: Path) -> None:
    proto, path = model(), tmp_path / "m.onnx"
    onnx.save(proto, path)
    given: Any = {
        "path": path,
        "string": str(path),
        "bytes": proto.SerializeToString(),
        "proto": proto,
        "loaded": graft.load(path),
    }[form]
    check(graft.compile(given, ["llvm"], threads=1), proto)


def test_compiling_leaves_the_model_as_it_was() -> None:
    proto = model()
    before, loaded = proto.SerializeToString(), graft.load(proto)
    nodes, record = [node.name for node in loaded.graph], list(record_of(loaded))
    graft.compile(proto, ["llvm"], threads=1)
    compiled = compile_model(loaded, Request(["llvm"], threads=1))
    assert proto.SerializeToString() == before
    assert [node.name for node in loaded.graph] == nodes
    assert record_of(loaded) == record
    assert record_of(compiled.normalized)[: len(record)] == record


def test_many_outputs_come_as_a_tuple_in_the_models_order() -> None:
    proto = model("z = Neg(x)\n y = Exp(x)", "float[2] x", "float[2] y, float[2] z")
    y, z = graft.compile(proto, ["llvm"], threads=1)(np.array([1, 2], np.float32))
    np.testing.assert_allclose(y, np.exp([1, 2]), rtol=1e-6)
    np.testing.assert_array_equal(z, [-1, -2])


def test_wrong_inputs_are_told() -> None:
    program = graft.compile(model(), ["llvm"], threads=1)
    x, w = feeds(model()).values()
    for call, expected in (
        (lambda: program.run({"x": x, "v": w}), "no input 'v'; the program takes 'x', 'w'"),
        (lambda: program.run({"x": x}), "missing input 'w'; the program takes 'x', 'w'"),
        (lambda: program(x, w, x=x), "input 'x' is given twice: by position and by name"),
        (lambda: program(x, x), f"input 'w' must be float32[3,4], got float32[2,3]{OTHER_SHAPE}"),
        (
            lambda: program(x, w.astype(np.float64)),
            "input 'w' must be float32[3,4], got float64[3,4]; convert it to float32",
        ),
    ):
        with pytest.raises(InputError) as caught:
            call()
        assert caught.value.message == expected


def test_an_operator_that_nobody_takes_is_told_with_every_reason() -> None:
    assert message_of(UnsupportedError, model(), [Vendor("MatMul")]) == (
        "no backend takes Relu (node 'r') (and 1 more): vendor: no-pattern: vendor has no rule for Relu; add "
        "'llvm' to the backends"
    )


def test_the_backend_that_is_named_to_take_what_is_left_takes_it() -> None:
    text = '<ir_version: 10, opset_import: ["" : 20]> g (float[2, n, 1] x) => (float[2, n, 2] y) { y = DFT (x) }'
    with pytest.raises(UnsupportedError) as caught:
        graft.compile(onnx.parser.parse_model(text), ["llvm"])
    assert caught.value.message == (
        "no backend takes DFT (node 'y'): llvm: dynamic-shape: axis 1 of 'x' is n; DFT wants a number; "
        "add 'irregular' to the backends"
    )


def test_unknown_operators_and_domains_are_told() -> None:
    proto = model()
    proto.graph.node[1].op_type = "Rleu"
    assert "Rleu" in message_of(ModelError, proto)
    proto = model()
    proto.graph.node[1].domain = "com.example"
    proto.opset_import.add(domain="com.example", version=1)
    assert message_of(ModelError, proto, ["llvm", "reference"]) == (
        "Relu (node 'r'): unknown domain 'com.example'; known are ai.onnx, ai.onnx.ml, ai.onnx.preview, "
        "ai.onnx.preview.training, the model's own functions and what plugins register"
    )


def test_types_that_no_program_takes_are_told() -> None:
    proto = model("y = Identity(x)", "complex128[2] x", "complex128[2] y")
    assert message_of(UnsupportedError, proto, ["reference"]) == (
        "input 'x' is of type complex128; a program takes and returns tensors of bool, int8, int16, int32, int64, "
        "uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64, float8e4m3fn, float8e4m3fnuz, float8e5m2, "
        "float8e5m2fnuz, complex64, strings and narrower numbers, and sequences and optionals of these: cut the model "
        "there"
    )


def test_symbolic_dimensions_may_be_given_values_in_two_ways() -> None:
    proto = model("y = Relu(x)", "float[N,4] x", "float[N,4] y")
    for program in (
        graft.compile(proto, ["llvm"], shapes={"x": (3, 4)}, threads=1),
        graft.compile(proto, ["llvm"], dims={"N": 3}, threads=1),
        graft.compile(proto, dims={"N": (1, 3)}, threads=1),
    ):
        assert program(np.zeros((3, 4), np.float32)).shape == (3, 4)


def test_a_shape_outside_of_the_range_is_an_error() -> None:
    program = graft.compile(model("y = Relu(x)", "float[N,4] x", "float[N,4] y"), dims={"N": (1, 3)}, threads=1)
    with pytest.raises(InputError) as caught:
        program(np.zeros((4, 4), np.float32))
    assert "dimension 'N' is at most 3" in str(caught.value)


def test_wrong_options_are_told() -> None:
    with pytest.raises(GraftError) as caught:
        graft.compile(model(), ["llvm"], threads=0)
    assert caught.value.message == "threads must be at least 1, got 0"
    assert message_of(UnsupportedError, model(), []) == (
        "no backend was chosen; `graft backends doctor` says which are installed"
    )
    assert message_of(PlanError, model(), ["llvm", "llvm"]) == (
        "backend 'llvm' is listed twice; list each backend once"
    )
    assert message_of(PlanError, model(), [Vendor("Relu"), Vendor("Neg"), "llvm"]) == (
        "backend 'vendor' is listed twice; list each backend once"
    )
    said = message_of(PlanError, model(), ["lvm"])
    assert said.startswith("unknown backend 'lvm'; did you mean 'llvm'? known backends are ")


# Backend objects and plans


def test_a_backend_object_is_used_and_its_modules_name_it() -> None:
    vendor = Vendor("MatMul")
    program = graft.compile(model(), [vendor, "llvm"], threads=1)
    assert vendor.compiled
    assert sorted(kinds(program)) == ["native", "reference"]
    check(program, model())


def test_what_a_backend_object_raises_names_it() -> None:
    vendor = Vendor("MatMul", supports=KeyError("k"))
    assert message_of(PluginError, model(), [vendor, "llvm"]) == (
        "plugin 'vendor' raised KeyError in supports(MatMul (node 'h')): 'k'"
    )
    vendor = Vendor("MatMul", supports=7)
    assert message_of(PluginError, model(), [vendor, "llvm"]) == (
        "backend 'vendor': supports(MatMul (node 'h')) returned int 7; return True or graft.Reject(code, text)"
    )


def test_a_backend_object_without_a_name_is_refused() -> None:
    class Nameless(Vendor):
        name = ""

    assert message_of(PluginError, model(), [Nameless("MatMul"), "llvm"]) == (
        "backend object Nameless: backend Nameless has the name ''; set name to letters, digits, '_' and '-', as in "
        'name = "npu"'
    )


@pytest.mark.parametrize(
    ("compile_", "text"),
    [
        (raising(OSError("no license")), "plugin 'vendor' raised OSError in compile of region 'vendor_0': no license"),
        (
            lambda region: "object code",
            "backend 'vendor': compile of region 'vendor_0' returned str; return a graft Module or CompiledRegion",
        ),
        (raising(SystemExit(3)), "plugin 'vendor' raised SystemExit in compile of region 'vendor_0': 3"),
    ],
)
def test_a_region_that_cannot_be_compiled_goes_to_the_next_backend(compile_: Any, text: str) -> None:
    vendor = Vendor("MatMul", compile_=compile_)
    compiled = compile_model(model(), Request([vendor, "llvm"], threads=1))
    placement = compiled.plan["h"]
    assert placement.backend == "llvm"
    assert placement.reasons["vendor"].code == "compile-failed"
    assert placement.reasons["vendor"].text.startswith(text)
    assert message_of(PluginError, model(), [vendor, "llvm"], strict=True) == text


class Unloadable(graft.JsonBackend):
    """A backend whose regions compile, and whose engine does not start."""

    name = "unloadable"

    @graft.supports("Relu")
    def relu(self, node: Any) -> bool:
        return True

    def load(self, graph: Any, constants: Any) -> Any:
        raise OSError("no device")


def test_a_region_that_cannot_be_loaded_goes_to_the_next_backend(caplog: pytest.LogCaptureFixture) -> None:
    program = graft.compile(model(), [Unloadable(), "llvm"], threads=1)
    check(program, model())
    plan = graft.Plan.of(program)
    placement = plan["r"]
    assert plan.summary().startswith("unloadable 0/") and "unloadable failed to compile 1" in plan.summary()
    assert placement.backend == "llvm"
    assert placement.reasons["unloadable"].code == "compile-failed"
    assert "no device" in placement.reasons["unloadable"].text
    assert caplog.records[0].getMessage().endswith("; the region goes to the next backend")


def test_a_region_that_cannot_be_loaded_is_an_error_where_it_may_not_go_elsewhere() -> None:
    said = message_of(ArtifactError, model(), [Unloadable(), "llvm"], strict=True)
    assert "no device" in said
    plan = graft.plan(model(), [Unloadable(), "llvm"])
    assert "no device" in message_of(ArtifactError, model(), [Unloadable(), "llvm"], plan=plan)


def test_a_region_that_nobody_can_compile_is_an_error_with_every_reason() -> None:
    vendor = Vendor("MatMul", "Relu", "Neg", compile_=raising(OSError("no license")))
    said = message_of(UnsupportedError, model(), [vendor])
    assert said.startswith(
        "no backend takes MatMul (node 'h') (and 2 more): vendor: compile-failed: plugin 'vendor' raised OSError in "
        "compile of region 'vendor_0': no license (models.py:"
    )
    assert said.endswith(" in compile_); add 'llvm' to the backends")


def test_a_plan_is_followed_and_refused_for_another_model() -> None:
    vendor = Vendor("MatMul", "Relu")
    policy = graft.Policy(exclude_node=("vendor:h",))
    plan = graft.plan(model(), [vendor, "llvm"], policy=policy)
    assert (plan["h"].backend, plan["r"].backend) == ("llvm", "vendor")
    saved = graft.Plan.from_json(plan.to_json())
    compiled = compile_model(model(), Request([vendor, "llvm"], plan=saved, threads=1))
    assert [row.backend for row in compiled.plan.placements] == [row.backend for row in plan.placements]
    other = model("y = Relu(x)", "float[2] x", "float[2] y")
    said = message_of(PlanError, other, [vendor, "llvm"], plan=saved)
    assert said.startswith("the plan is for another model: its fingerprint is ")
    assert message_of(PlanError, model(), ["llvm"], plan=saved) == (
        "the plan places Relu (node 'r') on backend 'vendor', which is not among llvm"
    )


def test_a_plan_that_cannot_be_compiled_is_not_left() -> None:
    plan = graft.plan(model(), [Vendor("MatMul"), "llvm"])
    broken = Vendor("MatMul", compile_=raising(OSError("no license")))
    assert message_of(PluginError, model(), [broken, "llvm"], plan=plan) == (
        "plugin 'vendor' raised OSError in compile of region 'vendor_0': no license"
    )


def test_a_reshape_that_moves_elements_between_fused_operators_is_no_alias() -> None:
    body = """s = Constant <value = int64[3] {3, 4, 4}> ()
      e = Exp(x)  r = Reshape(e, s)  y = Mul(r, w)"""
    proto = model(body, "float[3,2,8] x, float[1,4,1] w", "float[3,4,4] y")
    check(graft.compile(proto, ["llvm"], threads=1), proto)


def test_empty_tensors_are_computed() -> None:
    body = """a = Constant <value = int64[1] {1}> ()
      e = Exp(x)  s = ReduceSum(e, a)  y = Add(s, s)  z = Neg(x)"""
    proto = model(body, "float[2,0,4] x", "float[2,1,4] y, float[2,0,4] z")
    check(graft.compile(proto, ["llvm"], threads=1), proto)


def test_an_operator_with_a_body_that_the_executor_cannot_run_goes_to_a_backend() -> None:
    body = """s = SequenceConstruct(x, w)
      t = SequenceMap (s) < body = b (float[2] e) => (float[2] f) { f = Exp(e) } >
      i = Constant <value = int64 {1}> ()
      y = SequenceAt(t, i)"""
    proto = model(body, "float[2] x, float[2] w", "float[2] y")
    check(graft.compile(proto, ["llvm", "reference"], threads=1), proto)


def test_public_names_are_those_that_are_documented() -> None:
    for name in graft.__all__:
        assert callable(getattr(graft, name))
    assert set(graft.__all__) <= set(dir(graft))
    with pytest.raises(AttributeError) as caught:
        graft.compil  # noqa: B018
    assert str(caught.value) == (
        f"module 'graft' has no attribute 'compil'; the public names are {', '.join(graft.__all__)}"
    )
