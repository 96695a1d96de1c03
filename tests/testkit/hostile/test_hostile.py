"""Damaged models and artifacts: an answer or a GraftError, always."""

from __future__ import annotations

import contextlib

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import graft
from graft.errors import GraftError, ModelError
from graft.testkit.hostile import run as running
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
