"""What lowerings take of shapes that are known when kernels run: extents that results of earlier nodes say."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graft
from graft.core.graph.view import NodeView
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.varying import anything, fixed, is_static, known_late, refused
from graft.core.reject import Reject

NOTHING, SOME = np.zeros(3, np.float32), np.array([1, 0, 2, 3], np.float32)
FOUND = "i = NonZero (x) a = Squeeze (i, ax) b = Cast <to = 1> (a)"
"""A result with an axis that only data know."""
GIVEN = "g (float[n] x, float[3] one) => (float[?] y) <int64[1] ax = {0}>"


def model_of(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> {text}')


def in_reference(plan: graft.Plan) -> list[str]:
    """Return the operators that a plan gives to `reference`."""
    return sorted(one.op_type for one in plan.placements if one.backend == "reference")


@pytest.mark.parametrize(
    "rest",
    [
        "c = Concat <axis = 0> (b, one) d = Concat <axis = 0> (c, one) y = Neg (d)",
        "c = Concat <axis = 0> (b, one) d = Concat <axis = 0> (c, c) y = Mul (d, d)",
        "c = Concat <axis = 0> (b, one, b) d = Slice (c, ax, minus) y = Concat <axis = 0> (d, one)",
        "c = Concat <axis = 0> (b, x) d = Concat <axis = 0> (c, b) y = Concat <axis = 0> (d, x)",
    ],
)
def test_what_follows_a_found_extent_is_native(rest: str) -> None:
    text = f"{GIVEN[:-1]}, int64[1] minus = {{-1}}> {{ {FOUND} {rest} }}"
    model = model_of(text)
    assert set(in_reference(graft.plan(model, ["llvm", "reference"]))) <= {"NonZero"}
    program = graft.compile(model, ["llvm", "reference"])
    wanted = graft.compile(model, ["reference"])
    one = np.ones(3, np.float32)
    for given in (SOME, NOTHING, SOME[:1], np.ones(100, np.float32)):
        np.testing.assert_array_equal(program(given, one), wanted(given, one))


def node_of(text: str, **shapes: list[int | str | None] | None) -> NodeView:
    """The last node of a graph, with the given shapes of its results."""
    graph = ir.from_proto(model_of(text)).graph
    for value in (one for node in graph for one in node.outputs):
        if value.name in shapes and (shape := shapes[value.name]) is not None:
            value.shape = ir.Shape(shape)
    return NodeView(graph[-1])


def test_a_node_is_static_where_all_that_it_names_has_numbers() -> None:
    assert is_static(node_of("g (float[2] x, float m) => (float[2] y) { y = Clip (x, , m) }"))
    assert not is_static(node_of("g (float[n] x, float m) => (float[2] y) { y = Clip (x, , m) }"))
    assert refused(node_of("g (float[2] x) => (float[2] y) { y = Unheard (x) }"), OPERATORS) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("g (float[n] x) => (float[n] y) { y = Neg (x) }", None),
        ("g (float[n,6] x, int64[2] s) => (float[n,2,3] y) { y = Flatten (x) }", None),
        ("g (float[n] x, float m) => (float[n] y) { y = Clip (x, , m) }", None),
        ("g (float[?,2] x) => (float[2,2] y) { y = Neg (x) }", "'x' has shape [?,2], which nothing is known of"),
        ("g (float[2] x, float m) => (float[2] y) { h = Neg (x) y = Clip (h, , m) }",
         "'h' has shape unknown, which nothing is known of"),
        ("g (float[n] x) => (float[m] y) { y = Neg (x) }",
         "axis 0 of 'y' is m, which is known only when it is computed"),
        ("g (float[2,n] x) => (int64 y) { y = Size (x) }", "'x' has shape [2,n]; Size is lowered of static ones"),
        ("g (float[2] z, float[n] x) => (float[n] y) { y = Unheard (z, x) }",
         "'x' has shape [n]; Unheard is lowered of static ones"),
    ],
)  # fmt: skip
def test_what_lowerings_do_not_take_is_said(text: str, why: str | None) -> None:
    assert refused(node_of(text), OPERATORS) == (None if why is None else Reject("dynamic-shape", why))


def test_an_extent_is_known_that_the_node_or_its_graph_has_as_an_input() -> None:
    text = "g (float[m, k] z, int64[1] s) => (float[q] y) { y = ConstantOfShape (s) }"
    for extent in ("m", "k", "m + k", "max(m, 2*k)"):
        assert known_late(node_of(text, y=[extent])) is None
    for extent in ("q", "m + q"):
        assert known_late(node_of(text, y=[3, extent])) == Reject(
            "dynamic-shape", f"axis 1 of 'y' is {extent}, which is known only when it is computed"
        )


def test_axes_that_must_be_numbers_are_named() -> None:
    node = node_of("g (float[2,n,3] x) => (float[2,n,3] y) { y = Neg (x) }")
    assert fixed(0, 2, 5, -4)(node) is None and anything(node) is None
    for axis in (1, -2):
        assert fixed(axis)(node) == Reject("dynamic-shape", "axis 1 of 'x' is n; Neg wants a number")
