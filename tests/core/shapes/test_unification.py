"""Symbols that nodes demand to be equal become one name, in shapes and ranges; why is noted for the message."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from graft.core.graph.dimensions import ranges_of
from graft.core.importer.load import load
from graft.core.shapes.unification import aliases_of, reasons_of
from graft.errors import ModelError


def loaded(text: str, **requested: object) -> ir.Model:
    return load(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 23]> g {text}'), **requested)  # type: ignore[arg-type]


def shapes(model: ir.Model) -> list[list[str]]:
    return [[str(one) for one in value.shape or ()] for value in (*model.graph.inputs, *model.graph.outputs)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "(float[n, k] x, float[j, m] w) => (float[?, ?] y) { y = MatMul (x, w) }",
            [["n", "k"], ["k", "m"], ["n", "m"]],
        ),
        (
            "(float[a, 3] x, float[b, 2] z, float[c, 1] w) => (float[?, 6] y) { y = Concat <axis = 1> (x, z, w) }",
            [["a", "3"], ["a", "2"], ["a", "1"], ["a", "6"]],
        ),
        (
            "(float[past] p, float[seq] s, float[total, 2] t) => (float[?, ?] y) {"
            " a = Concat <axis = 0> (p, s) y = MatMul (a, t) z = Neg (y) }",
            [["past"], ["seq"], ["past + seq", "2"], ["2"]],
        ),
        (
            "(float[n, k] x, float[j, m] w, float[l, o] v) => (float[?, ?] y) { a = MatMul (x, w) y = MatMul (a, v) }",
            [["n", "k"], ["k", "m"], ["m", "o"], ["n", "o"]],
        ),
    ],
)
def test_what_must_be_equal_has_one_name(text: str, wanted: list[list[str]]) -> None:
    text = text.replace("=> (float[?, ?] y) { a = Concat", "=> (float[?] y) { a = Concat").replace(" z = Neg (y)", "")
    if "past" in text:
        text = text.replace("(float[?, ?] y)", "(float[?] y)")
    assert shapes(loaded(text)) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "(float[a] x, float[b] z) => (float[?] y) { y = Add (x, z) }",
        "(float[n, k] x, float[j, m] w) => (float[n, k] y) { dead = MatMul (x, w) y = Neg (x) }",
        "(bool p, float[n, k] x, float[j, m] w) => (float[?, ?] y) {"
        " y = If (p) <then_branch = t () => (float[?, ?] a) { a = MatMul (x, w) },"
        " else_branch = e () => (float[?, ?] b) { b = Neg (x) }> }",
    ],
)
def test_what_broadcasts_or_may_not_run_keeps_its_names(text: str) -> None:
    assert aliases_of(loaded(text).metadata_props) == {}


def test_ranges_meet() -> None:
    text = "(float[n, k] x, float[j, m] w) => (float[?, ?] y) { y = MatMul (x, w) }"
    model = loaded(text, dims={"k": (2, 8), "j": (4, 16)})
    assert {str(extent): str(one) for extent, one in ranges_of(model).items()} == {"k": "4..8"}
    model = loaded(text, dims={"k": (2, 4), "j": (4, 16)})
    assert {str(extent): str(one) for extent, one in ranges_of(model).items()} == {"k": "4..4"}
    with pytest.raises(ModelError) as caught:
        loaded(text, dims={"k": (2, 3), "j": (4, 16)})
    assert caught.value.message == ("MatMul (node 'y'): axis 1 of 'x' is k and axis 0 of 'w' is j; they must be equal")


def test_the_old_name_is_understood() -> None:
    text = """(float[past] p, float[seq] s, float[total, j] t) => (float[?] y) {
        a = Concat <axis = 0> (p, s) y = MatMul (a, t) }"""
    first = loaded(text)
    assert [str(one) for one in first.graph.inputs[2].shape or ()] == ["past + seq", "j"]
    again = load(first, dims={"total": (1, 8)})
    assert {str(extent): str(one) for extent, one in ranges_of(again).items()} == {"past + seq": "1..8"}
    model = loaded("(float[n, k] x, float[j, m] w) => (float[?, ?] y) { y = MatMul (x, w) }")
    assert shapes(load(model, dims={"j": 4}))[:2] == [["n", "4"], ["4", "m"]]


def test_the_reason_names_the_node_and_both_axes() -> None:
    model = loaded("(float[n, k] x, float[j, m] w) => (float[?, ?] y) { y = MatMul (x, w) }")
    ((name, reason),) = reasons_of(model.graph)
    assert (name, reason.axis) == ("w", 0)
    assert reason.says == ("MatMul (node 'y'): axis 0 of 'w' is ", " and axis 1 of 'x' is ", "; they must be equal")
    assert aliases_of(model.metadata_props) == {"j": "k"}
