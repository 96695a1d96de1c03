"""Refusals as data, and how several checks become one."""

from __future__ import annotations

import onnx
import pytest

import graft
from graft.core.reject import Reject, first


def test_the_first_refusal_is_found_though_refusals_are_falsy() -> None:
    rank, size = Reject("rank", "too many axes"), Reject("size", "too large")
    assert first(None, rank, size) == rank
    assert first(None, None) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(float[a,4] x, int64[b,4] i, float[a,4] u) => (float[a,4] y) { y = ScatterElements<axis=1>(x, i, u) }",
         "dynamic-shape: axis 0 of 'i' is b where a is written; whether they are equal is known only at run time"),
        ("(float[2,8,a] p, float[2,b,a] u, int64[2] at) => (float[2,8,a] y) { y = TensorScatter<axis=1>(p, u, at) }",
         None),
        ("(float[2,8,a] p, float[2,4,b] u, int64[2] at) => (float[2,8,a] y) { y = TensorScatter<axis=1>(p, u, at) }",
         "dynamic-shape: axis 2 of 'u' is b where a is written; whether they are equal is known only at run time"),
    ],
)  # fmt: skip
def test_an_operator_of_several_checks_is_refused_by_the_first_that_refuses(text: str, reason: str | None) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 24]> g {text}')
    said = graft.plan(model, ["llvm", "reference"])["y"].reasons.get("llvm")
    assert said == reason if reason is None else str(said) == reason
