from __future__ import annotations

import onnx_ir as ir
import pytest

from graft.core.reject import Reject
from graft.patterns import Pattern, is_constant, is_op, wildcard
from graft.patterns.explain import explain
from tests.patterns.graphs import graph_of, root

BODY = "c = Conv <strides = [2, 2]> (x, w)\na = Add(c, b)\ny = Relu(a)"
INPUTS = "float[1,1,4,4] x, float[1,1,1,1] w, float[1] b"
ANY = wildcard()
CONV = is_op("Conv")(wildcard(), wildcard())


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (is_op("Relu")(CONV + ANY), "matches"),
        (is_op("Exp"), "matched 0 of 1 operators, then at Relu (node 'y'): wanted Exp"),
        (
            is_op("Relu")(is_op("MatMul")(ANY, ANY) + ANY),
            "matched 2 of 3 operators, then at Conv (node 'c'): wanted MatMul",
        ),
        (
            is_op("Relu")(CONV.has_attr(strides=[1, 1]) + ANY),
            "matched 3 of 3 operators, then at input 0 of Add (node 'a'): "
            "attribute strides of Conv (node 'c') is [2, 2], wanted [1, 1]",
        ),
        (
            is_op("Relu")(is_op("Conv")(ANY, is_constant()) + wildcard()),
            "matched 3 of 3 operators, then at input 1 of Conv (node 'c'): "
            "'w' is not known at compile time, wanted a constant",
        ),
        (
            is_op("Relu")(CONV.has_dtype("float64") + ANY),
            "matched 3 of 3 operators, then at input 0 of Add (node 'a'): dtype float32, wanted float64",
        ),
        (
            is_op("Relu")(CONV.has_shape(1, 8, ...) + ANY),
            "matched 3 of 3 operators, then at input 0 of Add (node 'a'): shape [1,1,2,2], wanted [1,8,...]",
        ),
        (
            is_op("Relu")(CONV.has_rank(3) + ANY),
            "matched 3 of 3 operators, then at input 0 of Add (node 'a'): rank 4, wanted 3",
        ),
        (
            is_op("Relu")(is_op("Conv")(wildcard(), wildcard(), wildcard()) + ANY),
            "matched 3 of 3 operators, then at Conv (node 'c'): the input is absent, wanted a value",
        ),
        (
            is_op("Relu")(is_op("Gelu", "Conv")(wildcard()) + ANY),
            "matched 3 of 3 operators, then at Conv (node 'c'): "
            "has 2 inputs, wanted 1; close the arguments with ... for more",
        ),
    ],
)
def test_the_nearest_miss_says_how_far_and_why(pattern: Pattern, text: str) -> None:
    graph = graph_of(BODY, inputs=INPUTS, outputs="float[1,1,2,2] y")
    assert str(explain(pattern, root(graph))) == text


def test_a_use_that_failed_is_named() -> None:
    graph = graph_of("a = Relu(x)\nb = Exp(a)\ny = Sub(b, a)")
    found = explain(is_op("Relu") >> is_op("Sub"), root(graph))
    assert str(found) == ("matched 2 of 2 operators, then at input 1 of Sub (node 'y'): it is also read by others")


def test_refusals_of_the_check_are_kept() -> None:
    graph = graph_of("y = Add(x, b)", inputs="float[2,3] x, float[2,3] b")
    found = explain(is_op("Add")(wildcard(), wildcard()), root(graph), check=lambda match: Reject("size", "too small"))
    assert found.rejects == (Reject("size", "too small"),)
    assert str(found) == "matches, but the check refuses: size: too small"


def test_the_failing_part_of_the_pattern_is_named() -> None:
    inner = is_op("MatMul")
    found = explain(is_op("Relu")(inner), root(graph_of("y = Relu(x)")))
    assert found.pattern is inner
    assert (found.matched, found.wanted, found.found) == (1, 2, False)


PRODUCT = is_op("MatMul")(wildcard().has_shape("rows", "inner"), wildcard().has_shape("inner", "columns"))
LEFT = wildcard()


@pytest.mark.parametrize(
    ("pattern", "shapes", "text", "code"),
    [
        (
            PRODUCT, (("seq", 4), (5, 8)),
            "matched 1 of 1 operators, then at input 1 of MatMul (node 'y'): axis 0 of 'w' is 5 where 'inner' is 4",
            "shape",
        ),
        (
            PRODUCT, (("seq", "k"), ("j", 8)),
            "matched 1 of 1 operators, then at input 1 of MatMul (node 'y'): axis 0 of 'w' is j where 'inner' is k; "
            "whether they are equal is known only at run time",
            "dynamic-shape",
        ),
        (
            PRODUCT, ((4, 4), (None, 8)),
            "matched 1 of 1 operators, then at input 1 of MatMul (node 'y'): axis 0 of 'w' is not known at compile "
            "time, wanted inner",
            "dynamic-shape",
        ),
        (
            is_op("MatMul")(wildcard().has_shape(4, 4), wildcard()), (("seq", 4), (4, 8)),
            "matched 1 of 1 operators, then at input 0 of MatMul (node 'y'): shape [seq,4], wanted [4,4]",
            "dynamic-shape",
        ),
        (
            is_op("MatMul")(wildcard().has_shape("2*n", ...), wildcard()), ((8, 4), (4, 8)),
            "matched 1 of 1 operators, then at input 0 of MatMul (node 'y'): no place of the pattern is 'n' alone, "
            "which '2*n' needs",
            "shape",
        ),
        (
            is_op("MatMul")(wildcard().has_shape("n", ...), wildcard().has_shape(..., "2*n")), (("s", 4), (4, "t")),
            "matched 1 of 1 operators, then at input 1 of MatMul (node 'y'): axis 1 of 'w' is t where '2*n' is 2*s; "
            "whether they are equal is known only at run time",
            "dynamic-shape",
        ),
        (
            is_op("MatMul")(LEFT, wildcard().same_shape_as(LEFT)), (("s", 4), ("t", 4)),
            "matched 1 of 1 operators, then at input 1 of MatMul (node 'y'): axis 0 of 'w' is t where that of 'x' is "
            "s; whether they are equal is known only at run time",
            "dynamic-shape",
        ),
    ],
)  # fmt: skip
def test_a_miss_of_shapes_says_what_is_known_only_at_run_time(
    pattern: Pattern, shapes: tuple[tuple[int | str | None, ...], ...], text: str, code: str
) -> None:
    graph = graph_of("y = MatMul(x, w)", inputs="float[a,b] x, float[c,d] w", outputs="float[e,f] y")
    for value, shape in zip(graph.inputs, shapes, strict=True):
        value.shape = ir.Shape(shape)
    explanation = explain(pattern, root(graph))
    assert (str(explanation), explanation.code) == (text, code)
