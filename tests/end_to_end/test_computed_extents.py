"""Sizes, pads, axes and ranks that a program computes: natively, with the results of onnx.reference for any shapes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import graft
from graft.errors import InputError

HEADER = '<ir_version: 10, opset_import: ["" : 20]>'
HALVES = "shape = Shape <start = 2> (x) two = Constant <value = int64[1] {2}> () half = Div (shape, two)"
DOUBLE = "twice = Mul (shape, two) head = Shape <end = 2> (x) sizes = Concat <axis = 0> (head, twice)"
IMAGES = ((1, 2, 4, 5), (2, 1, 7, 3), (1, 1, 2, 2), (0, 2, 4, 4))
ROWS = ((3, 8), (5, 7), (1, 6), (4, 40))


def image(body: str) -> str:
    return f"f (float[n, c, h, w] x) => (float[a, b, d, e] y) {{ {HALVES} {body} }}"


def pads(mode: str) -> str:
    none = "zero = Sub (head, head)"
    return image(
        f"head = Shape <end = 2> (x) {none} less = Sub (half, one) pads = Concat <axis = 0> (zero, less, zero, half)"
        f' y = Pad <mode = "{mode}"> (x, pads)'
    ).replace("{ shape", "{ one = Constant <value = int64[1] {1}> () shape")


def resize(attributes: str) -> str:
    return image(f"{DOUBLE} y = Resize <{attributes}> (x, , , sizes)")


def rows(body: str) -> str:
    return (
        "f (float[n, k] x) => (float[a, b] y) { width = Shape <start = 1> (x) two = Constant <value = int64[1] {2}> ()"
        f" half = Div (width, two) one = Constant <value = int64[1] {{1}}> () {body} }}"
    )


def like(name: str) -> str:
    return f'coordinate_transformation_mode = "{name}"'


CASES: dict[str, tuple[str, tuple[tuple[int, ...], ...]]] = {
    **{f"Pad {mode}": (pads(mode), IMAGES[:3]) for mode in ("constant", "edge", "reflect", "wrap")},
    **{
        f"Resize {mode} {where}": (resize(f'mode = "{mode}", {like(where)}'), IMAGES)
        for mode, where in (
            ("nearest", "half_pixel"), ("linear", "half_pixel"), ("linear", "align_corners"), ("cubic", "asymmetric"),
            ("linear", "pytorch_half_pixel"), ("linear", "half_pixel_symmetric"),
        )
    },
    **{
        f"Resize with antialias {mode}": (resize(f'antialias = 1, mode = "{mode}"'), (*IMAGES, (1, 1, 9, 40)))
        for mode in ("linear", "cubic")
    },
    "Resize with antialias to few": (
        "f (float[n, 2, h, w] x) => (float[n, 2, 3, 3] y) { few = Constant <value = int64[2] {3, 3}> ()"
        ' y = Resize <antialias = 1, mode = "linear", axes = [2, 3]> (x, , , few) }',
        ((2, 2, 9, 40), (1, 2, 2, 5)),
    ),
    "Resize without what is outside": (resize('mode = "cubic", exclude_outside = 1'), IMAGES),
    "Split": (rows("rest = Sub (width, half) parts = Concat <axis = 0> (half, rest) "
                   "p, q = Split <axis = 1> (x, parts) y = Concat <axis = 1> (q, p)"), ROWS),
    "Split in halves": (rows("p, q = Split <axis = 1, num_outputs = 2> (x) y = Concat <axis = 1> (q, p)"), ROWS),
    "Slice": (rows("y = Slice (x, one, width, one, two)"), ROWS),
    "TopK": (rows("y, i = TopK (x, half)"), ROWS),
    "TopK of few": (rows("y, i = TopK (x, two)"), ROWS),
    "CumSum": (rows("axis = Squeeze (one) y = CumSum (x, axis)"), ROWS),
    "Tile": (rows("times = Concat <axis = 0> (one, half) y = Tile (x, times)"), ROWS),
    "ConstantOfShape": (rows("to = Concat <axis = 0> (half, width) y = ConstantOfShape (to)"), ROWS),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_computed_numbers_decide_is_native_and_right_for_any_shape(name: str) -> None:
    text, shapes = CASES[name]
    model = parser.parse_model(f"{HEADER} {text}")
    program = graft.compile(model, ["llvm"], cache=False)
    random = np.random.default_rng(0)
    for shape in shapes:
        x = random.standard_normal(shape).astype(np.float32)
        if x.size:
            expected = ReferenceEvaluator(model).run(None, {"x": x})[0]
            np.testing.assert_allclose(program(x), expected, rtol=1e-4, atol=1e-5, err_msg=str(shape))
        else:
            assert program(x).size == 0


NUMBERS: dict[str, tuple[str, dict[str, object]]] = {
    "Pad": ("float[2, 3] x, int64[4] o) => (float[4, 6] y) { y = Pad (x, o)", {"o": [1, 2, 1, 1]}),
    "Pad wrap": ('float[2, 3] x, int64[4] o) => (float[4, 6] y) { y = Pad <mode = "wrap"> (x, o)', {"o": [1, 2, 1, 1]}),
    "Resize": ("float[1, 1, 2, 3] x, int64[4] o) => (float[1, 1, 4, 7] y) { y = Resize (x, , , o)",
               {"o": [1, 1, 4, 7]}),
    "Resize scales": ('float[2, 3] x, float[2] o) => (float[3, 7] y) { y = Resize <mode = "linear"> (x, , o)',
                      {"o": np.array([1.5, 2.5], np.float32)}),
    "Split": ("float[2, 7] x, int64[2] o) => (float[2, 3] y, float[2, 4] z) { y, z = Split <axis = 1> (x, o)",
              {"o": [3, 4]}),
    "Slice": ("float[6, 7] x, int64[2] s, int64[2] e, int64[2] a, int64[2] t) => (float[3, 3] y)"
              " { y = Slice (x, s, e, a, t)", {"s": [5, 1], "e": [0, 6], "a": [1, 0], "t": [-2, 2]}),
    "CumSum": ("float[3, 4, 2] x, int64 o) => (float[3, 4, 2] y) { y = CumSum (x, o)", {"o": 1}),
    "CumSum before": ("float[3, 4, 2] x, int64 o) => (float[3, 4, 2] y)"
                      " { y = CumSum <exclusive = 1, reverse = 1> (x, o)", {"o": -3}),
    "TopK": ("float[3, 9] x, int64[1] o) => (float[3, 4] y, int64[3, 4] i) { y, i = TopK (x, o)", {"o": [4]}),
    "ReduceSum": ("float[3, 9, 2] x, int64[2] o) => (float[1, 9, 1] y) { y = ReduceSum (x, o)", {"o": [0, -1]}),
    "ReduceMax": ("float[3, 9, 2] x, int64[1] o) => (float[3, 1, 2] y) { y = ReduceMax (x, o)", {"o": [1]}),
    "Trilu": ("float[3, 4] x, int64 o) => (float[3, 4] y) { y = Trilu (x, o)", {"o": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_come_as_inputs_are_operands_of_kernels(name: str) -> None:
    text, others = NUMBERS[name]
    model = parser.parse_model(f"{HEADER} f ({text} }}")
    program = graft.compile(model, ["llvm"], cache=False)
    shape = [one.dim_value for one in model.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    feeds |= {key: value if isinstance(value, np.ndarray) else np.array(value) for key, value in others.items()}
    found = program.run(feeds)
    for value, expected in zip(model.graph.output, ReferenceEvaluator(model).run(None, feeds), strict=True):
        np.testing.assert_allclose(found[value.name], expected, rtol=1e-5, atol=1e-5)


def test_choosing_more_than_there_is_names_both_numbers() -> None:
    model = parser.parse_model(f"{HEADER} {CASES['TopK of few'][0]}".replace("{2}", "{9}"))
    program = graft.compile(model, ["llvm"], cache=False)
    with pytest.raises(InputError) as caught:
        program(np.zeros((2, 5), np.float32))
    assert caught.value.message == "TopK (node 'y'): at least 9 is wanted where axis 1 of 'x' is 5"


BODIES = {
    "If": "f (float[n, 8] x, bool c) => (float[a, 8] y) { y = If (c) <"
          "then_branch = t () => (float[n, 8] p) { q = Exp (x) p = Mul (q, x) }, "
          "else_branch = e () => (float[n, 8] r) { s = Tanh (x) r = Add (s, x) }> }",
    "Loop": "f (float[n, 8] x, int64 k) => (float[g, 8] y, float[k, n, 8] z) { c = Constant <value = bool {1}> ()"
            " y, z = Loop (k, c, x) <body = b (int64 i, bool ci, float[r, 8] s) => (bool co, float[q, 8] t,"
            " float[n, 8] p) { co = Identity (ci) u = Exp (x) v = Tanh (u) t = Concat <axis = 0> (s, v)"
            " p = Mul (v, u) }> }",
    "Scan": "f (float[n, 8] x, float[t, n, 8] z) => (float[n, 8] y, float[t, n, 8] o) {"
            " y, o = Scan <num_scan_inputs = 1, body = b (float[n, 8] s, float[n, 8] q) => (float[n, 8] v,"
            " float[n, 8] r) { u = Tanh (s) v = Add (u, q) r = Mul (v, q) }> (x, z) }",
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_bodies_with_memory_for_the_largest_shapes_give_what_those_planned_for_each_give(name: str) -> None:
    model = parser.parse_model(f"{HEADER} {BODIES[name]}")
    dims = {"n": (0, 5)} | ({"t": (0, 4)} if name == "Scan" else {})
    programs = [
        graft.compile(model, dims=dims, memory=memory, backends=["llvm"], cache=False)
        for memory in ("maximum", "binding")
    ]
    random = np.random.default_rng(0)
    for count, steps in ((3, 2), (5, 0), (0, 3), (1, 1), (5, 4)):
        second = {"If": np.array(steps > 1), "Loop": np.array(steps)}.get(
            name, random.standard_normal((steps, count, 8)).astype(np.float32)
        )
        feeds = dict(zip(("x", model.graph.input[1].name), (random.standard_normal((count, 8)), second), strict=True))
        feeds["x"] = feeds["x"].astype(np.float32)
        largest, each = (program.run(feeds) for program in programs)
        for key, expected in each.items():
            np.testing.assert_array_equal(largest[key], expected)


def test_a_shape_is_checked_against_what_another_kernel_computed() -> None:
    model = parser.parse_model(
        f"{HEADER} f (float[3, 1] x) => (float[1] y) {{ e = Erf (x)"
        " s = Shape <start = 1> (e) y = ConstantOfShape (s) }"
    )
    program = graft.compile(model, ["llvm"], cache=False, without=["fold-constants"])
    np.testing.assert_array_equal(program(np.zeros((3, 1), np.float32)), np.zeros(1, np.float32))


CAPTURES = {
    "reduced": "i64 = Cast <to = 7> (i) r = Gather <axis = 0> (longer, i64) t = Add (s, r)",
    "computed": "u = Exp (longer) v = Tanh (u) w = Mul (v, longer) m = ReduceMax <keepdims = 0> (w, zero)"
                " t = Add (s, m)",
    "viewed": "col = Unsqueeze (longer, zero) o = Transpose <perm = [1, 0, 2]> (col) p = Softmax <axis = 0> (o)"
              " q = Squeeze (p, one) m = ReduceMin <keepdims = 0> (q, zero) t = Add (s, m)",
    "multiplied": "rows = Transpose <perm = [1, 0]> (longer) g = MatMul (rows, longer)"
                  " m = ReduceMean <keepdims = 0> (g, zero) t = Add (s, m)",
    "branched": "t = If (ci) <then_branch = a () => (float[8] p) { e = Exp (longer)"
                " f = ReduceMax <keepdims = 0> (e, zero) p = Add (f, s) }, else_branch = b () => (float[8] q)"
                " { q = Identity (s) }>",
}  # fmt: skip


@pytest.mark.parametrize("name", CAPTURES)
def test_a_body_computes_with_an_extent_of_outside_whose_symbols_it_does_not_know(name: str) -> None:
    model = parser.parse_model(
        f"{HEADER} f (float[n, 8] x, float[8] z, int64 k) => (float[8] y) {{ c = Constant <value = bool {{1}}> ()"
        " zero = Constant <value = int64[1] {0}> () one = Constant <value = int64[1] {1}> ()"
        " longer = Concat <axis = 0> (x, x, x) y = Loop (k, c, z) <body = b (int64 i, bool ci, float[8] s)"
        f" => (bool co, float[8] t) {{ co = Identity (ci) {CAPTURES[name]} }}> }}"
    )
    program = graft.compile(model, ["llvm"], cache=False)
    random = np.random.default_rng(0)
    for count, steps in ((3, 2), (1, 3), (7, 0)):
        rows, start = (random.standard_normal(shape).astype(np.float32) for shape in ((count, 8), (8,)))
        feeds = {"x": rows, "z": start, "k": np.array(steps)}
        (expected,) = ReferenceEvaluator(model).run(None, feeds)
        np.testing.assert_allclose(program.run(feeds)["y"], expected, rtol=1e-4, atol=1e-5, err_msg=str((count, steps)))
