"""One backend under several labels, each with its own options: by region, in plans, artifacts and isolated."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import graft
from graft.cli.main import main
from graft.errors import OptionError, PlanError
from graft.plugins.registry.manager import PluginManager
from graft.runtime.artifact import read

MODEL = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 21]> g (float[3] x) => (float[3] y) '
    "{ [first] a = Relu(x) [between] b = Neg(a) [second] y = Relu(b) }"
)
X = np.float32([-1, 2, 3])
PLUGIN = """
from dataclasses import dataclass
import numpy as np
import graft
from graft.runtime.loaders import PythonLoader

@dataclass(frozen=True)
class Options:
    bits: int = 0

class Npu(graft.{base}):
    name = "npu"
    options = Options

    @graft.supports("Relu")
    def relu(self, node): return True

    def _function(self):
        shift = np.float32(self.options.bits)
        return lambda inputs: [np.maximum(inputs[0], 0) + shift]
{methods}
"""
KINDS = {
    "JsonBackend": "    def load(self, graph, constants): return self._function()",
    "Backend": """
    def compile(self, region, options): return graft.Module(region.name, "npu", (region.name,), b"")

    def module_loaders(self): return [PythonLoader("npu", lambda name, *_: {name: self._function()})]
""",
}
"""Of the second kind the loader does not say which options it has."""


@pytest.fixture(params=KINDS)
def plugin(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / f"labelled_{request.param.lower()}.py"
    path.write_text(PLUGIN.format(base=request.param, methods=KINDS[request.param]))
    onnx.save(MODEL, tmp_path / "model.onnx")
    return path


@pytest.fixture
def manager(plugin: Path) -> PluginManager:
    found = PluginManager()
    found.load_file(plugin)
    return found


PIN = graft.Policy(pin={"second": "npu@second"})


def test_regions_have_the_options_of_the_label_that_they_are_pinned_to(manager: PluginManager, tmp_path: Path) -> None:
    texts = ["npu", "npu@second:bits=10", "llvm"]
    program = graft.compile(MODEL, texts, manager=manager, policy=PIN)
    assert program(X).tolist() == [10, 10, 10]
    program.save(tmp_path / "a.graft")
    rows = [(one.backend, one.options["bits"]) for one in read(tmp_path / "a.graft").modules if one.backend]
    assert rows == [("npu", 0), ("npu", 10)]
    files = manager.files({one.plugin for one in program.description.modules})
    loaded = graft.runtime.load(tmp_path / "a.graft", loaders=files, strict=True)
    assert loaded(X).tolist() == [10, 10, 10]


def test_a_plan_has_labels_as_it_has_backends_and_may_be_edited(manager: PluginManager) -> None:
    plan = graft.plan(MODEL, "npu:bits=1,npu@second:bits=10,llvm", manager=manager)
    assert plan.texts == ("npu:bits=1", "npu@second:bits=10", "llvm")
    assert plan["second"].reasons["npu@second"].code == "lost-to:npu"
    rows = tuple(replace(one, backend="npu@second") if one.node == "second" else one for one in plan.placements)
    edited = graft.Plan.from_json(replace(plan, placements=rows).to_json())
    program = graft.compile(MODEL, plan=edited, manager=manager)
    assert program(X).tolist() == [10, 10, 10]
    done = graft.Plan.of(program)
    assert done["second"].region.startswith("npu_second")
    assert done.summary().startswith("npu:bits=1 1/3 ops ")
    assert "npu@second:bits=10 1/3" in done.summary()


def test_neighbours_under_two_labels_are_two_regions(manager: PluginManager) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[3] x) => (float[3] y) '
        "{ [first] a = Relu(x) [second] y = Relu(a) }"
    )
    program = graft.compile(model, "npu:bits=1,npu@second:bits=10", manager=manager, policy=PIN)
    assert program(X).tolist() == [11, 13, 14]


def test_placement_chooses_among_labels(manager: PluginManager) -> None:
    plan = graft.plan(MODEL, "npu,npu@second:bits=10,llvm", manager=manager, policy=PIN, place="model")
    assert plan["second"].backend == "npu@second"


@pytest.mark.parametrize("isolated", [False, True], ids=["here", "isolated"])
def test_the_command_line_pins_regions_to_labels(plugin: Path, tmp_path: Path, isolated: bool, capsys: Any) -> None:
    def command(*arguments: object) -> str:
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        assert not caught.value.code, printed
        return str(printed.out)

    where = ("--plugin", plugin, *(("--isolate", plugin.stem) if isolated else ()))
    artifact = tmp_path / "a.graft"
    chosen = ("-b", "npu:bits=1,npu@second:bits=10,llvm", "--pin", "second=npu@second")
    command("compile", tmp_path / "model.onnx", *chosen, *where, "-o", artifact)
    assert "npu_0 was compiled by npu:bits=1\n" in command("inspect", artifact)
    assert "npu_second_0 was compiled by npu:bits=10\n" in command("inspect", artifact)
    assert "bits" in command("backends", "show", "npu@second", "--plugin", plugin)
    found = json.loads(command("run", artifact, *where, "--input", "x=[-1, 2, 3]", "--json"))
    assert found["outputs"][0]["max"] == 10


def test_a_label_that_is_none_and_a_backend_that_is_unknown_are_told(manager: PluginManager) -> None:
    for name in ("npu@", "npu@a b", "@npu", "npu@a@b"):
        with pytest.raises(OptionError) as wrong:
            graft.plan(MODEL, [name], manager=manager)
        assert wrong.value.message == (
            f"'{name}' has no proper label; write letters, digits, '_' and '-', as in npu@small"
        )
    with pytest.raises(PlanError, match=re.escape("unknown backend 'npv'; did you mean 'npu'?")):
        graft.plan(MODEL, ["npv@small"], manager=manager)
    with pytest.raises(PlanError, match="backend 'npu@b' is listed twice"):
        graft.plan(MODEL, ["npu", "npu@b", "npu@b:bits=8"], manager=manager)
    with pytest.raises(OptionError, match=re.escape("backend 'npu@small' has no option 'bit';")):
        graft.plan(MODEL, ["npu@small:bit=8"], manager=manager)


class Npu(graft.JsonBackend):
    """Adds its option to what a Relu gives."""

    name = "npu"

    @dataclass(frozen=True)
    class Options:
        bits: int = 0

    options = Options

    @graft.supports("Relu")
    def relu(self, node: Any) -> bool:
        return True

    def load(self, graph: Any, constants: Any) -> Any:
        shift = np.float32(self.options.bits)
        return lambda inputs: [np.maximum(inputs[0], 0) + shift]


def test_backend_objects_have_labels(tmp_path: Path) -> None:
    backends = [Npu(bits=1), Npu(bits=10).labelled("second"), "llvm"]
    program = graft.compile(MODEL, backends, policy=PIN)
    assert program(X).tolist() == [10, 10, 10]
    assert graft.Plan.of(program).texts == ("npu:bits=1", "npu@second:bits=10", "llvm")
    program.save(tmp_path / "a.graft")
    assert graft.runtime.load(tmp_path / "a.graft", loaders=[Npu])(X).tolist() == [10, 10, 10]


def test_an_object_of_an_installed_plugin_has_labels_too(manager: PluginManager) -> None:
    (npu,) = manager.backends(["npu"])
    backends = [npu, npu.configured({"bits": 10}).labelled("second"), "llvm"]
    assert graft.compile(MODEL, backends, policy=PIN, manager=manager)(X).tolist() == [10, 10, 10]


def test_a_label_of_an_object_that_is_none_is_told() -> None:
    for label in ("", "a b", "a@b", "x:bits=2"):
        with pytest.raises(OptionError, match="has no proper label"):
            Npu().labelled(label)
    with pytest.raises(PlanError, match="backend 'npu@a' is listed twice"):
        graft.plan(MODEL, [Npu().labelled("a"), Npu(bits=1).labelled("a")])


VERBS = {
    "plan": (), "verify": (), "run": ("--input", "x=[-1, 2, 3]"), "bench": ("--seconds", "0"),
    "profile": ("--runs", "1"),
    "bisect": ("--seconds", "5"), "report": (), "inspect": ("--stage", "partitioned"), "compile": (),
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_that_takes_backends_takes_pins_to_labels(
    verb: str, plugin: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    chosen = ("-b", "npu,npu@small:bits=0,llvm", "--plugin", str(plugin))
    for node, status in (("second", 0), ("between", 1)):
        with pytest.raises(SystemExit) as caught:
            main([verb, "model.onnx", *chosen, "--pin", f"{node}=npu@small", *VERBS[verb]])
        printed = capsys.readouterr()
        assert (caught.value.code or 0) == status, printed
        assert status == 0 or "pinned to 'npu@small', which refuses it" in printed.err


def test_what_bisect_writes_has_the_pins_of_the_nodes_that_are_left(plugin: Path, manager: PluginManager) -> None:
    pin = graft.Policy(pin={"first": "npu", "second": "npu@second"}, exclude_node=("npu:between",))
    folder = plugin.parent / "out"
    report = graft.bisect(MODEL, "npu,npu@second:bits=10,llvm", policy=pin, manager=manager, output=folder)
    assert report.nodes == ("second",)
    script = next(one.read_text() for one in folder.iterdir() if "graft verify" in one.read_text(errors="ignore"))
    assert "--pin second=npu@second" in script and "first" not in script and "between" not in script
