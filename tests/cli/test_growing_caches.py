"""`graft run --steps` and `graft inspect` of a decoder with a cache."""

from __future__ import annotations

import json

import onnx.parser
import pytest

DECODER = """<ir_version: 10, opset_import: ["" : 20]>
g (float[batch, seq, 4] x, float[batch, past, 4] past_k) => (float[batch, 4] y, float[batch, total, 4] present_k) {
  present_k = Concat <axis = 1> (past_k, x) axis = Constant <value = int64[1] {1}> ()
  y = ReduceMax <keepdims = 0> (present_k, axis)
}"""


@pytest.fixture
def artifact(graft, tmp_path):
    onnx.save(onnx.parser.parse_model(DECODER), tmp_path / "decoder.onnx")
    assert graft("compile", tmp_path / "decoder.onnx", "-o", tmp_path / "d.graft", "-b", "llvm").code == 0
    return tmp_path / "d.graft"


def test_steps_keep_the_caches(graft, artifact):
    outcome = graft("run", artifact, "--steps", "3", "--dim", "seq=2")
    assert outcome.code == 0, outcome.err
    lines = [line.split() for line in outcome.out.splitlines()]
    assert lines[1][:3] == ["y", "float32", "2x4"]
    assert lines[-2:] == [["CACHE", "OUTPUT", "AXIS", "ROWS", "COPIED"], ["past_k", "present_k", "1", "6"]]


def test_steps_are_json_too(graft, artifact):
    facts = json.loads(graft("run", artifact, "--steps", "2", "--dim", "seq=5", "--json").out)
    assert facts["caches"] == [{"input": "past_k", "output": "present_k", "axis": 1, "copied": "", "rows": 10}]
    assert [one["name"] for one in facts["outputs"]] == ["y"]


def test_inspect_lists_the_caches(graft, artifact):
    assert "cache      past_k -> present_k along axis 1: appended in place" in graft("inspect", artifact).out


def test_a_program_without_caches_has_no_steps(graft, model):
    outcome = graft("run", model, "--steps", "2", "-b", "llvm")
    assert outcome.code == 1
    assert "the program grows no cache" in outcome.err
