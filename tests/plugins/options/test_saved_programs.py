"""Options from the command line or Python to a loaded program, for backends of every kind, here and isolated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import graft
from graft.cli.main import main
from graft.errors import ArtifactError, OptionError, PluginError
from graft.plugins.llvm.backend import LlvmBackend
from graft.plugins.registry.manager import PluginManager
from graft.runtime.artifact import read
from graft.runtime.loaders import PythonLoader
from graft.testkit.conformance.suite import suite_of

MODEL = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 21]> g (float[3] x) => (float[3] y) { r = Relu(x) y = Neg(r) }'
)
X = np.float32([1, 2, 3])
PLUGIN = """
from dataclasses import dataclass
import numpy as np
import graft

@dataclass(frozen=True)
class Options:
    bits: int = graft.option(0, help="added to each element")
    token: str | None = graft.option(None, secret=True)

class Npu(graft.JsonBackend):
    name = "{name}"
    options = Options

    @graft.supports("Relu")
    def relu(self, node): return self.options.bits < 100 or graft.Reject("cost", f"{{self.options.bits}} bits")

    def load(self, graph, constants):
        shift = np.float32(self.options.bits + len(self.options.token or ""))
        return lambda inputs: [np.maximum(inputs[0], 0) + shift]
"""


@dataclass(frozen=True)
class Bits:
    bits: int = 0


class Relus:
    @graft.supports("Relu")
    def relu(self, node: Any) -> bool:
        return True


class Json(Relus, graft.JsonBackend):
    name, options = "json_npu", Bits

    def load(self, graph: Any, constants: Any) -> Any:
        return lambda inputs: [np.maximum(inputs[0], 0) + np.float32(self.options.bits)]


class Plain(Relus, graft.Backend):
    name, options = "plain_npu", Bits

    def compile(self, region: Any, options: Any) -> graft.Module:
        return graft.Module(region.name, "plain_npu", (region.name,), b"")

    def module_loaders(self) -> list[PythonLoader]:
        shift = np.float32(self.options.bits)
        return [PythonLoader("plain_npu", lambda name, *_: {name: lambda inputs: [np.maximum(inputs[0], 0) + shift]})]


class Source(Relus, graft.CSourceBackend):
    name, options = "source_npu", Bits
    helpers = (
        "static inline void shifted(const float *x, float *y, int n, float by) {\n  for (int i = 0; i < n; i++) "
        "y[i] = (x[i] > 0 ? x[i] : 0) + by;\n}\n"
    )

    def call(self, kernel: Any) -> str:
        return f"shifted({{X}}, {{Y}}, {{Y.size:int}}, {self.options.bits}.0f)"


class Emitter(LlvmBackend):
    name, options = "emitting_npu", Bits

    def supports(self, node: Any) -> Any:
        return node.op_type == "Relu" and super().supports(node)

    def fingerprint(self) -> str:
        return "one"


@pytest.fixture(autouse=True)
def _quiet(recwarn: pytest.WarningsRecorder) -> Iterator[None]:
    yield
    assert not recwarn.list


@pytest.mark.parametrize("kind", [Json, Plain, Source])
def test_a_loaded_program_has_the_options_that_it_was_compiled_with(kind: Any, tmp_path: Path) -> None:
    program = graft.compile(MODEL, [kind(bits=8), "llvm"])
    assert program(X).tolist() == [-9, -10, -11]
    program.save(tmp_path / "a.graft")
    (module,) = (one for one in read(tmp_path / "a.graft").modules if one.backend)
    assert (module.backend, module.options) == (kind.name, {"bits": 8})
    loaded = graft.runtime.load(tmp_path / "a.graft", loaders=[kind], strict=True)
    assert loaded(X).tolist() == [-9, -10, -11]


def test_options_of_generated_code_are_in_plan_and_fingerprint(tmp_path: Path) -> None:
    program = graft.compile(MODEL, [Emitter(bits=8), "llvm"])
    program.save(tmp_path / "a.graft")
    plan = json.loads(read(tmp_path / "a.graft").metadata["plan"])
    assert plan["options"] == {"emitting_npu": {"bits": 8}}
    manager = PluginManager(sources=[])
    prints = [manager.admit(one).fingerprint() for one in (Emitter(), Emitter(bits=8), Emitter(bits=9))]
    assert prints == ["one", "one emitting_npu:bits=8", "one emitting_npu:bits=9"]


def test_a_plan_keeps_the_options_and_a_compilation_that_follows_it_has_them() -> None:
    plan = graft.plan(MODEL, [Json(bits=8), "llvm"])
    assert plan.options == {"json_npu": {"bits": 8}}
    assert plan.summary().startswith("json_npu:bits=8 1/2 ops ")
    assert plan.texts == ("json_npu:bits=8", "llvm")
    assert graft.Plan.from_json(plan.to_json()) == plan
    assert "options" not in json.loads(graft.plan(MODEL, [Json(), "llvm"]).to_json())


def test_a_loader_of_other_options_is_refused(tmp_path: Path) -> None:
    graft.compile(MODEL, [Json(bits=8), "llvm"]).save(tmp_path / "a.graft")
    with pytest.raises(OptionError) as caught:
        graft.runtime.load(tmp_path / "a.graft", loaders=Json(bits=4).module_loaders())
    assert caught.value.message == (
        "module 'json_npu_0' was compiled by backend 'json_npu' with {'bits': 8}, and its loader has {'bits': 4}; give "
        "the backend's class as a loader, which gets the options of the artifact"
    )


class Stateful(Relus, graft.JsonBackend):
    name = "stateful"

    def __init__(self, bits: int = 0, table: Mapping[str, Any] | None = None) -> None:
        self.bits, self.table, self.lock = bits, dict(table or {}), object()

    def load(self, graph: Any, constants: Any) -> Any:
        self.loads = getattr(self, "loads", 0) + 1
        return lambda inputs: [np.maximum(inputs[0], 0) + np.float32(self.bits)]


def test_state_that_options_do_not_cover_is_an_error_where_it_would_be_lost(tmp_path: Path) -> None:
    backend = Stateful(8, {"w": np.ones(3)})
    program = graft.compile(MODEL, [backend, "llvm"])
    assert program(X).tolist() == [-9, -10, -11]
    with pytest.raises(ArtifactError) as caught:
        program.save(tmp_path / "a.graft")
    assert caught.value.message == (
        "module 'stateful_0' cannot be saved: backend 'stateful' has 'bits', 'table' from its constructor or its user, "
        "which is no declared option and would be lost; declare it as one; compile the model where it is to run"
    )
    assert not list(tmp_path.iterdir())
    plain = Stateful()
    for _ in range(2):  # what loading adds is no state
        graft.compile(MODEL, [plain, "llvm"]).save(tmp_path / "a.graft")


def test_an_object_that_cannot_be_built_again_is_an_error_where_it_would_be_lost(tmp_path: Path) -> None:
    class Needy(Stateful):
        name = "needy"

        def __init__(self, bits: int) -> None:
            super().__init__(bits)

    with pytest.raises(ArtifactError) as caught:
        graft.compile(MODEL, [Needy(8), "llvm"]).save(tmp_path / "a.graft")
    assert caught.value.message.startswith(
        "module 'needy_0' cannot be saved: backend 'needy' cannot be built from its options alone (TypeError: "
    )


def test_an_attribute_that_the_user_sets_is_state(tmp_path: Path) -> None:
    class Set(Json):
        name, scale = "set", 1

    backend = Set()
    backend.scale = 2
    with pytest.raises(ArtifactError, match="'set' has 'scale' from its constructor or its user"):
        graft.compile(MODEL, [backend, "llvm"]).save(tmp_path / "a.graft")


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / f"npu_{tmp_path.name}.py".replace("-", "_")
    path.write_text(PLUGIN.format(name="npu"))
    onnx.save(MODEL, tmp_path / "model.onnx")
    return path


def test_texts_configure_the_backends_of_plugins(plugin: Path) -> None:
    manager = PluginManager()
    manager.load_file(plugin)
    assert graft.compile(MODEL, ["npu:bits=8", "llvm"], manager=manager)(X).tolist() == [-9, -10, -11]
    assert graft.compile(MODEL, "npu:bits=7,llvm", manager=manager)(X).tolist() == [-8, -9, -10]
    assert graft.compile(MODEL, "npu,llvm", manager=manager)(X).tolist() == [-1, -2, -3]
    (placement, _) = graft.plan(MODEL, "npu:bits=100,llvm", manager=manager).placements
    assert placement.reasons["npu"].text == "100 bits"
    plan = graft.plan(MODEL, "npu:bits=8,llvm", manager=manager)
    assert graft.compile(MODEL, plan=plan, manager=manager)(X).tolist() == [-9, -10, -11]
    with pytest.raises(OptionError, match=re.escape("backend 'npu' has no option 'bit';")):
        graft.plan(MODEL, "npu:bit=100,llvm", manager=manager)


@pytest.mark.parametrize("isolated", [False, True], ids=["here", "isolated"])
def test_the_command_line_runs_what_it_compiled(
    plugin: Path, tmp_path: Path, isolated: bool, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        return int(caught.value.code or 0), *capsys.readouterr()

    where = ("--plugin", plugin, *(("--isolate", plugin.stem) if isolated else ()))
    artifact = tmp_path / "a.graft"
    monkeypatch.setenv("GRAFT_NPU_TOKEN", "hush")
    done = command("compile", tmp_path / "model.onnx", "-b", "npu:bits=8,llvm", *where, "-o", artifact)
    assert (done[0], done[1][:15]) == (0, "npu:bits=8 1/2 "), done
    assert b"hush" not in artifact.read_bytes()
    assert "npu_0 was compiled by npu:bits=8,token=(secret)\n" in command("inspect", artifact)[1]
    run = ("run", artifact, *where, "--input", "x=[1, 2, 3]")
    monkeypatch.setenv("GRAFT_NPU_TOKEN", "else")
    assert json.loads(command(*run, "--json")[1])["outputs"][0]["max"] == -13
    monkeypatch.delenv("GRAFT_NPU_TOKEN")
    assert command(*run) == (
        1,
        "",
        "graft: option 'token' of backend 'npu' is a secret, which is not saved; give it in GRAFT_NPU_TOKEN, or as "
        "graft.runtime.load(..., secrets={'npu': {'token': ...}})\n",
    )


def test_secrets_are_given_again_as_an_argument(plugin: Path, tmp_path: Path) -> None:
    manager = PluginManager()
    manager.load_file(plugin)
    program = graft.compile(MODEL, "npu:token=hush,llvm", manager=manager)
    assert program(X).tolist() == [-5, -6, -7]
    assert "hush" not in repr(program.description)
    program.save(tmp_path / "a.graft")
    files = manager.files({plugin.stem})
    loaded = graft.runtime.load(tmp_path / "a.graft", loaders=files, secrets={"npu": {"token": "hush"}})
    assert loaded(X).tolist() == [-5, -6, -7]
    loaded.save(tmp_path / "b.graft")
    assert (tmp_path / "b.graft").read_bytes() == (tmp_path / "a.graft").read_bytes()
    with pytest.raises(OptionError) as caught:
        graft.runtime.load(tmp_path / "a.graft", loaders=files, secrets={"npu": {"bits": 3}})
    assert caught.value.message == (
        "secrets have 'bits' of backend 'npu', and module 'npu_0' was compiled with the secrets 'token'; other options "
        "are the artifact's own"
    )


def test_an_object_of_a_plugin_with_state_takes_no_options(tmp_path: Path) -> None:
    path = tmp_path / "npu_of_state.py"
    text = PLUGIN.format(name="npu") + (
        "    def __init__(self, unit='a', **options):\n        super().__init__(**options)\n        "
        "self.unit = unit\n"
        "from graft.plugins.hooks import hookimpl\n@hookimpl\ndef graft_backends(): return [Npu('b')]\n"
    )
    path.write_text(text)
    manager = PluginManager()
    manager.load_file(path)
    assert graft.compile(MODEL, "npu,llvm", manager=manager)(X).tolist() == [-1, -2, -3]
    with pytest.raises(PluginError) as caught:
        graft.compile(MODEL, "npu:bits=8,llvm", manager=manager)
    assert caught.value.message == (
        "backend 'npu' has 'unit' from its constructor or its user, which is no declared option and would be lost; "
        "declare it as one"
    )


def test_the_kit_holds_a_backend_to_the_levels_with_the_options_that_it_is_given(tmp_path: Path) -> None:
    """As the plugin adds its option to each element, it is right with 0 alone; with 100 it claims no node."""
    path = tmp_path / "npu.py"
    path.write_text(PLUGIN.format(name="npu"))
    verdicts = {}
    for backend in ("npu", "npu:bits=8", "npu:bits=100"):
        results = suite_of(backend, level=1, plugin_files=[path]).run(1, "Relu")
        verdicts[backend] = [one.verdict for one in results if one.name == "1/Relu/relu"]
    assert verdicts == {"npu": ["passed"], "npu:bits=8": ["failed"], "npu:bits=100": []}


def test_the_kit_takes_one_backend() -> None:
    with pytest.raises(OptionError, match="'npu,llvm' names 2 backends; name one"):
        _ = suite_of("npu,llvm").kit.name
