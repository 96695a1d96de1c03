"""The machine to compile for: by either argument, unknown, or one that no backend generates code for."""

import onnx
import pytest

import graft
from graft.compiler.api import compile_model, machine_wanted
from graft.compiler.request import Request
from graft.errors import GraftError, MachineError, UnsupportedError

TEXT = '<ir_version: 10, opset_import: ["" : 21]> g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }'


@pytest.fixture
def model() -> onnx.ModelProto:
    return onnx.parser.parse_model(TEXT)


@pytest.mark.parametrize("target", [{"cpu": "x86-64-v5"}, {"target": "x86-64-v5"}])
def test_an_unknown_target_is_refused_with_the_nearest(model: onnx.ModelProto, target: dict[str, str]) -> None:
    with pytest.raises(
        MachineError, match=r"^unknown target 'x86-64-v5'; did you mean 'x86-64-v4'\? there are native,"
    ):
        graft.compile(model, ["llvm"], **target)


def test_two_names_of_two_machines_are_refused(model: onnx.ModelProto) -> None:
    with pytest.raises(GraftError) as caught:
        graft.compile(model, ["llvm"], cpu="x86-64-v3", target="armv8-a")
    assert str(caught.value) == "cpu 'x86-64-v3' and target 'armv8-a' name two machines; give one of them"


def test_a_target_that_no_backend_generates_code_for_is_refused(model: onnx.ModelProto) -> None:
    with pytest.raises(UnsupportedError) as caught:
        graft.compile(model, ["llvm", "reference"], target="generic")
    assert str(caught.value) == (
        "no backend generates code for target 'generic'; llvm: it generates code for x86_64, aarch64, riscv64, wasm32, "
        "thumb, not for generic"
    )


def test_backends_that_generate_no_code_are_for_every_target(model: onnx.ModelProto) -> None:
    assert compile_model(model, Request(["reference"], target="riscv64")).description.targets[0]["arch"] == "riscv64"


@pytest.mark.parametrize(("name", "feature"), [("x86-64-v4", "avx512cd"), ("x86-64-v3+avxvnni", "avxvnni")])
def test_a_program_needs_what_it_was_compiled_for(model: onnx.ModelProto, name: str, feature: str) -> None:
    (needed,) = compile_model(model, Request(["llvm"], target=name)).description.targets
    assert {feature, "avx2", "bmi2"} <= set(needed["features"])


def test_a_program_for_no_machine_in_particular_names_none(model: onnx.ModelProto) -> None:
    assert compile_model(model, Request(["reference"], target="generic")).description.targets == ()
    assert graft.compile(model, ["reference"], target="generic").outputs[0].name == "y"


@pytest.mark.parametrize("target", [{"cpu": "armv8-a"}, {"target": "armv8-a"}, {"cpu": "armv8-a", "target": "armv8-a"}])
def test_a_target_has_two_names(model: onnx.ModelProto, target: dict[str, str]) -> None:
    compiled = compile_model(model, Request(["llvm"], target=machine_wanted(target.get("cpu"), target.get("target"))))
    assert [target["arch"] for target in compiled.description.targets] == ["aarch64"]
