"""Damaged models and artifacts: an answer or a GraftError, always."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import graft
from graft.errors import GraftError, ModelError
from graft.testkit.hostile import run as running
from graft.testkit.hostile.guided import Guided, kind_of
from graft.testkit.hostile.models import damaged_model
from graft.testkit.hostile.run import TARGETS, run_hostile
from graft.testkit.models.source import Source


@pytest.mark.parametrize(
    ("target", "count"),
    [(target, 10) for target in TARGETS]
    + [pytest.param(target, 300, marks=pytest.mark.conformance) for target in TARGETS],
)
def test_damaged_input_is_answered_or_refused(target: str, count: int) -> None:
    report = run_hostile(range(count), (target,))
    assert not report.findings, str(report)
    assert report.inputs == count


def test_a_seed_gives_the_same_damage_always() -> None:
    assert damaged_model(Source(5)) == damaged_model(Source(5)) != damaged_model(Source(6))


def test_other_exceptions_and_much_time_are_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(data: bytes) -> None:
        raise KeyError("x")

    monkeypatch.setitem(running.TARGETS, "model", (lambda source: b"", fail))
    assert run_hostile(range(1), ("model",)).findings == ["model, seed 0: fault: KeyError: 'x'"]
    monkeypatch.setattr(running, "SECONDS", -1.0)
    assert "slow" in str(run_hostile(range(1), ("model",)))


def model(text: str, **constants: np.ndarray) -> onnx.ModelProto:
    proto = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> g {text}')
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return proto


def test_a_constant_whose_number_of_elements_overflows_is_not_looked_at() -> None:
    proto = model("(float[2] x) => (float y) { g = ConstantOfShape (s)  m = ReduceMax <keepdims = 0> (g)"
                  "  t = ReduceMax <keepdims = 0> (x)  y = Add (m, t) }",
                  s=np.array([2**16, 2**31, 2**16]))  # fmt: skip
    with contextlib.suppress(GraftError):
        graft.plan(proto, ["reference"])


def test_a_permutation_of_more_axes_than_there_are_is_a_model_error() -> None:
    proto = model("(float[n, m] x) => (float[a, b, c] y) { y = Transpose <perm = [0, 1, 2]> (x) }")
    with pytest.raises(ModelError):
        graft.load(proto)


@pytest.mark.parametrize(
    "text",
    [
        "(float[n, 3] x) => (y) { y = Expand (x) }",
        "(float[n, 3, 8, 8] x) => (y) { y = AveragePool <kernel_shape = [2], strides = [2]> (x) }",
        "(float[n, 3, 8, 8] x, float[4, 3, 2, 2] w) => (y) { y = Conv <strides = 3> (x, w) }",
        "(float[n, 2] x) => (y) { a = Unsqueeze (x, s)  y = Relu (a) }",
        "(float[n, 4] x) => (y) { y = Scan <num_scan_inputs = 4611686018427387904, body = b (float[4] i)"
        " => (float[4] o) { o = Relu (i) }> (x) }",
        "(float[n, 4, 8, 8] x) => (y) { y = SpaceToDepth <blocksize = 0> (x) }",
        "(float[n, 4] x) => (y) { y = Pad (x, s) }",
    ],
)
def test_what_does_not_go_together_is_a_model_error_before_onnx_is_asked(text: str) -> None:
    with pytest.raises(ModelError):
        graft.load(model(text, s=np.array([2**62, 7, 2**62, 2**62])))


def test_an_attribute_of_another_type_than_it_says_is_a_model_error() -> None:
    proto = model("(float[n, 4] x) => (y) { y = Softmax <axis = 1> (x) }")
    proto.graph.node[0].attribute[0].type = onnx.AttributeProto.STRINGS
    with pytest.raises(ModelError):
        graft.load(proto)


def test_guided_choices_are_the_bytes_and_then_a_stream() -> None:
    source = Guided(bytes([3, 0, 1, 200]))
    assert [source.below(256), source.below(1000), source.below(7)] == [3, 256, 200 % 7]
    assert 0 <= source.below(10) < 10


def test_texts_that_differ_in_names_and_numbers_are_of_one_kind() -> None:
    assert kind_of("fault: axis 3 of 'x'") == kind_of("fault: axis 14 of 'y_2'") != kind_of("fault: rank 3 of 'x'")


def test_atheris_guides_damage_and_writes_what_it_finds(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris is not installed")
    command = [sys.executable, "-m", "graft.testkit.hostile", "--target", "artifact", "--out", str(tmp_path / "found")]
    done = subprocess.run(
        [*command, "--atheris", "-runs=5", str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "Done 5 runs" in done.stderr and not (tmp_path / "found").exists()


def test_an_element_type_that_is_none_is_a_model_error() -> None:
    proto = model("(float[2] x) => (float[2] y) { y = Add (x, s) }", s=np.ones(2, np.float32))
    proto.graph.initializer[0].data_type = 0
    with pytest.raises(ModelError):
        graft.load(proto)
