"""`graft.bisect` and `graft bisect`: out-of-tree backends that are wrong in one place, and what is left of a model."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import click.testing
import numpy as np
import onnx
import pytest

import graft
from graft.cli.common import State
from graft.cli.main import cli
from graft.compiler.request import Request
from graft.errors import GraftError, InputError, PlanError, UnsupportedError
from graft.measure.bisect import search
from graft.measure.bisect.api import bisect
from graft.measure.bisect.minimal import minimal
from graft.plugins.registry.manager import PluginManager
from tests.compiler.models import model
from tests.plugins.distributions import install

BODY = """a = MatMul(x, w)
 b = Relu(a)
 c = Neg(b)
 d = Add(a, c)
 e = Abs(d)
 f = Sigmoid(e)
 g = Sub(f, c)
 y = Exp(g)"""
HEAD = """import os
import numpy as np
import graft
from graft.patterns import is_op, wildcard

class Npu(graft.JsonBackend):
    name = "npu"
"""
WRONG_OPERATOR = (
    HEAD
    + """
    @graft.supports("Abs", "Neg", "Sigmoid")
    def single(self, node): return True

    def load(self, graph, constants):
        kernels = {"Abs": lambda x: x, "Neg": np.negative, "Sigmoid": lambda x: 1 / (1 + np.exp(-x))}
        return lambda inputs: graph.run(inputs, constants, lambda node, arrays: [kernels[node.name](*arrays)])
"""
)
WRONG_COMPOSITE = (
    HEAD
    + """
    @graft.supports(is_op("Abs")(is_op("Add")(wildcard(), wildcard())), name="npu.add_abs")
    def add_abs(self, match): return True

    @graft.supports("Abs", "Add")
    def single(self, node): return True

    def load(self, graph, constants):
        kernels = {"Abs": np.abs, "Add": np.add, "npu.add_abs": np.add}
        return lambda inputs: graph.run(inputs, constants, lambda node, arrays: [kernels[node.name](*arrays)])
"""
)
WRONG_PASS = """import graft

class Careless:
    name = "drop-abs"

    def run(self, model):
        found = [node for node in model.graph if node.op_type == "Abs"]
        for node in found:
            node.op_type = "Identity"
        return bool(found)

@graft.hookimpl
def graft_passes(stage):
    return [Careless()] if stage == "before-partition" else []
"""
CRASH = WRONG_OPERATOR.replace('"Abs": lambda x: x', '"Abs": lambda x: os.abort()')


FASTER = ("llvm", "onednn", "cblas", "xnnpack")


def manager(folder: Path, text: str, **requested: Any) -> PluginManager:
    (folder / "npu.py").write_text(text)
    made = PluginManager(**requested)
    made.load_file(folder / "npu.py")
    return made


def command(*words: object) -> click.testing.Result:
    return click.testing.CliRunner().invoke(
        cli, [str(word) for word in words], catch_exceptions=True, standalone_mode=False, obj=State()
    )


def reproduced(report: Any, monkeypatch: pytest.MonkeyPatch) -> click.testing.Result:
    """Do what the two lines say."""
    first, second = report.reproduction
    monkeypatch.chdir(shlex.split(first)[1])
    return command(*shlex.split(second)[1:])


def test_a_wrong_operator_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugins = manager(tmp_path, WRONG_OPERATOR)
    report = graft.bisect(model(BODY), "npu,llvm", threads=1, output=tmp_path / "cut", manager=plugins)
    assert not report.ok
    assert report.finished
    assert report.region is not None
    assert (report.region.backend, report.region.output, report.region.alone) == ("npu", "f", True)
    assert (report.nodes, report.operators, report.backends) == (("e",), ("Abs",), ("npu",))
    assert report.cures == ()
    assert [node.op_type for node in onnx.load(tmp_path / "cut" / "minimal.onnx").graph.node] == ["Abs"]
    assert len(report.reproduction) == 2
    assert (tmp_path / "cut" / "reproduce.sh").read_text().splitlines() == list(report.reproduction)
    assert reproduced(report, monkeypatch).return_value == 4
    assert json.loads((tmp_path / "cut" / "report.json").read_text())["nodes"] == ["e"]


def test_a_reproduction_has_the_tolerances_where_they_are_others_than_by_default(tmp_path: Path) -> None:
    plugins = manager(tmp_path, WRONG_OPERATOR)
    plain, loose = (
        graft.bisect(model(BODY), "npu,llvm", threads=1, output=tmp_path / f"cut{number}", manager=plugins, **limits)
        for number, limits in enumerate(({}, {"rtol": 1e-2, "atol": 1e-3}))
    )
    assert "--rtol" not in plain.reproduction[1] and "--threads 1" in plain.reproduction[1]
    assert 0 < plain.seconds < 3600
    assert "--rtol 0.01 --atol 0.001" in loose.reproduction[1]


def test_a_composite_that_is_wrong_where_its_nodes_are_right_is_left_whole(tmp_path: Path) -> None:
    report = graft.bisect(model(BODY), "npu,llvm", threads=1, manager=manager(tmp_path, WRONG_COMPOSITE))
    assert (report.nodes, report.operators) == (("d", "e"), ("Add", "Abs"))
    assert report.region is not None
    assert report.region.nodes == ("d", "e")


def test_a_pass_of_a_plugin_that_is_at_fault_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugins = manager(tmp_path, WRONG_PASS)
    report = graft.bisect(model(BODY), "llvm", threads=1, output=tmp_path / "cut", manager=plugins)
    assert report.region is None
    assert report.nodes == ("e",)
    assert [str(cure) for cure in report.cures] == ["right with --switch-off drop-abs of plugin 'npu'"]
    assert reproduced(report, monkeypatch).return_value == 4
    assert command(*shlex.split(report.reproduction[1])[1:], "--switch-off", "drop-abs").return_value == 0


def test_a_pass_of_a_plugin_is_switched_off_by_its_name(tmp_path: Path) -> None:
    plugins = manager(tmp_path, WRONG_PASS)
    assert graft.verify(model(BODY), "llvm", threads=1, manager=plugins, without=["drop-abs"]).ok
    wrong = graft.verify(model(BODY), "llvm", threads=1, manager=plugins, per_region=True)
    assert (wrong.ok, wrong.first_bad) == (False, None)
    with pytest.raises(GraftError) as caught:
        Request("llvm", without=["drop-ab"], manager=plugins).options()
    assert caught.value.message == "there is no optimisation 'drop-ab' to switch off; did you mean 'drop-abs'"


def test_an_isolated_plugin_that_crashes_is_cut_down_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "graft-npu", "1.0", {"npu": "npu_crash"}, npu_crash=CRASH)
    (tmp_path / "model.onnx").write_bytes(model(BODY).SerializeToString())
    words = ("-b", "npu,llvm", "--threads", 1, "--isolate", "npu", "--switch-off", "fusion")
    monkeypatch.setattr(search, "PASSES", {})  # each trial starts a process
    monkeypatch.setattr(search, "OPTIMISATIONS", {"views": ""})
    result = command("bisect", tmp_path / "model.onnx", *words, "-o", tmp_path / "cut", "--json")
    assert result.return_value == 4, result
    report = json.loads(result.stdout)
    assert (report["nodes"], report["minimal"]["kind"], report["cures"]) == (["e"], "RunError", [])
    assert "SIGABRT" in report["minimal"]["text"]
    monkeypatch.chdir(tmp_path / "cut")
    again = command(*shlex.split(report["reproduction"][1])[1:])
    assert "SIGABRT" in str(again.exception)


def test_a_model_that_is_right_is_said_to_be(tmp_path: Path) -> None:
    report = graft.bisect(model(BODY), "llvm", threads=1, output=tmp_path / "cut")
    assert report.ok
    assert str(report) == "nothing is wrong: all outputs of 8 nodes are within the tolerance"
    assert not (tmp_path / "cut").exists()


def test_what_was_found_is_the_answer_where_the_time_runs_out(tmp_path: Path) -> None:
    plugins = manager(tmp_path, WRONG_OPERATOR)
    report = graft.bisect(model(BODY), "npu,llvm", threads=1, seconds=1e-9, manager=plugins)
    assert (report.finished, len(report.nodes)) == (False, 8)
    assert "the time ran out after " in str(report)


def test_the_backend_at_fault_is_named_where_none_was(tmp_path: Path) -> None:
    plugins = manager(tmp_path, WRONG_OPERATOR, disabled=FASTER)
    report = graft.bisect(model(BODY), threads=1, output=tmp_path / "cut", manager=plugins)
    assert report.region is not None and report.region.backend == "npu"
    words = shlex.split(report.reproduction[1])
    assert words[words.index("-b") + 1].split(",")[0] == "npu"
    assert "npu" not in words[words.index("-b") + 1].split(",")[1:]


def test_a_model_with_sequences_inside_is_judged_by_its_tensors() -> None:
    text = "s = SequenceConstruct(a, b)\n y = ConcatFromSequence<axis = 0>(s)"
    assert graft.bisect(model(f"a = Relu(x)\n b = Neg(x)\n {text}"), "llvm,reference", threads=1).ok


def test_a_model_that_no_backend_takes_is_the_callers_mistake(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError):
        graft.bisect(model(BODY), "npu", threads=1, manager=manager(tmp_path, WRONG_OPERATOR))


def test_mistakes_of_the_caller_are_not_bisected() -> None:
    with pytest.raises(PlanError):
        graft.bisect(model(BODY), "nobody", threads=1)
    with pytest.raises(InputError) as wrong:
        graft.bisect(model(BODY), "llvm", inputs={"z": np.zeros(1)}, threads=1)
    assert wrong.value.message == "no input 'z'; the model takes 'x', 'w'"
    with pytest.raises(InputError) as missing:
        graft.bisect(model(BODY), "llvm", inputs={"x": np.zeros((2, 3), np.float32)}, threads=1)
    assert missing.value.message == "input 'w' is missing; the model takes 'x', 'w'"
    with pytest.raises(GraftError) as peer:
        bisect(model(BODY), "llvm", against="tflite")
    assert peer.value.message == "cannot bisect against 'tflite'; choose one of reference, onnxruntime"
    with pytest.raises(GraftError) as seconds:
        bisect(model(BODY), "llvm", seconds=0)
    assert seconds.value.message == "seconds is 0; give a positive number"


@pytest.mark.parametrize("needed", [{0}, {9}, {2, 7}, {0, 3, 4, 9}, set(range(10))])
def test_delta_debugging_leaves_what_is_needed(needed: set[int]) -> None:
    tried: list[list[int]] = []

    def fails(items: Any) -> bool:
        tried.append(list(items))
        return needed <= set(items)

    assert minimal(range(10), fails, lambda: False) == sorted(needed)
    assert len(tried) < 60
