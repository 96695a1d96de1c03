"""Reductions with what is computed for them and from them: which nodes share a kernel, and what it computes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graft
from graft.core.operators.all import OPERATORS
from graft.plugins.codegen.grouping.fusion import FusionLimits, Uses, fuse
from graft.plugins.codegen.grouping.reduction_fusion import find_rows
from tests.plugins.llvm.graphs import region_of

ROWS = "float[64,48]"
LAST = {"a": np.array([-1], np.int64)}
SOFTMAX_GRADIENT = f"""g ({ROWS} x, {ROWS} g, int64[1] a) => ({ROWS} d) {{
    y = Softmax (x)  w = Mul (g, y)  r = ReduceSum (w, a)  p = Mul (y, r)  d = Sub (w, p) }}"""


def groups(text: str, constants: dict[str, np.ndarray] | None = None, limits: FusionLimits | None = None) -> list[str]:
    region = region_of(text, constants or LAST)
    outputs = {value.value for value in region.outputs}
    return [str(group) for group in fuse(region.nodes(), outputs, OPERATORS, limits=limits or FusionLimits())]


def test_the_gradient_of_softmax_is_one_kernel() -> None:
    assert groups(SOFTMAX_GRADIENT) == ["row_wise: Softmax Mul ReduceSum Mul Sub"]


def test_a_normalisation_written_out_is_one_kernel_with_what_it_normalises() -> None:
    assert groups(f"""g ({ROWS} x, {ROWS} r, {ROWS} t, int64[1] a) => ({ROWS} y) {{
        q = Tanh (t)  s = Add (x, r)  m = ReduceMean (s, a)  c = Sub (s, m)  v = ReduceSumSquare (c, a)
        d = Sqrt (v)  n = Div (c, d)  y = Mul (n, q) }}""") == [
        "row_wise: Tanh Add ReduceMean Sub ReduceSumSquare Sqrt Div Mul"
    ]


def test_a_reduction_computes_what_it_alone_reads() -> None:
    images = "float[4,8,6,6]"
    assert groups(
        f"g ({images} x, {images} y, int64[3] a) => (float[1,8,1,1] s) {{ p = Mul (x, y) s = ReduceSum (p, a) }}",
        {"a": np.array([0, 2, 3], np.int64)},
    ) == ["reduction: Mul ReduceSum"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"g ({ROWS} x, {ROWS} y, int64[1] a) => (float[64,1] s, {ROWS} p) {{ p = Mul (x, y) s = ReduceSum (p, a) }}",
         ["elementwise: Mul", "reduction: ReduceSum"]),
        ("g (float[4,48] x, int64[1] a) => (float[4,48] y) { s = ReduceSum (x, a) y = Sub (x, s) }",
         ["reduction: ReduceSum", "elementwise: Sub"]),
        ("g (float[64,8] x, int64[1] a) => (float[64,8] y) { s = ReduceSum (x, a) y = Sub (x, s) }",
         ["reduction: ReduceSum", "elementwise: Sub"]),
    ],
    ids=["stored for others", "few rows", "short rows"],
)  # fmt: skip
def test_what_would_not_gain_stays_apart(text: str, expected: list[str]) -> None:
    assert groups(text) == expected


def test_reductions_along_different_axes_stay_apart() -> None:
    first = {"a": np.array([-1], np.int64), "b": np.array([0], np.int64)}
    assert groups(
        f"g ({ROWS} x, int64[1] a, int64[1] b) => ({ROWS} y) {{"
        " s = ReduceSum (x, a) c = Sub (x, s) t = ReduceSum (c, b) y = Sub (c, t) }",
        first,
    ) == ["row_wise: ReduceSum Sub", "reduction: ReduceSum", "elementwise: Sub"]


def test_types_that_are_not_named_stay_apart() -> None:
    assert len(groups(SOFTMAX_GRADIENT, limits=FusionLimits(rows=()))) > 1


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["float", "double"])
def test_kernels_of_rows_compute_what_their_nodes_do(kind: str, threads: int) -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
        g (float[8,16,96] x, float[8,16,96] g, float[96] w) => (float[8,16,96] d, float[96] s, float[8,16,1] e)
        <int64[1] a = {-1}, int64[2] b = {0, 1}> {
        m = ReduceMean (x, a)  c = Sub (x, m)  q = Mul (c, c)  v = ReduceMean (q, a)  r = Sqrt (v)  n = Div (c, r)
        h = Mul (g, w)  hn = Mul (h, n)  t = ReduceMean (hn, a)  u = Mul (n, t)  k = Sub (h, u)  z = Exp (k)
        d = Softmax (z)  gn = Mul (g, n)  s = ReduceSum <keepdims = 0> (gn, b)
        l = GreaterOrEqual (x, g)  f = Where (l, x, g)  e = ReduceMax (f, a) }"""
    model = onnx.parser.parse_model(text.replace("float[", f"{kind}["))
    rng, dtype = np.random.default_rng(0), np.float32 if kind == "float" else np.float64
    feeds = {name: rng.normal(size=shape).astype(dtype) for name, shape in (("x", (8, 16, 96)), ("g", (8, 16, 96)))}
    feeds["w"] = rng.normal(size=96).astype(dtype)
    found = graft.compile(model, backends=["llvm"], threads=threads).run(feeds)
    wanted = dict(zip(found, onnx.reference.ReferenceEvaluator(model).run(list(found), feeds), strict=True))
    for name, array in found.items():
        np.testing.assert_allclose(array, wanted[name], rtol=2e-5 if kind == "float" else 1e-12, atol=1e-6)


def test_a_sum_gathers_what_it_reads_but_not_the_indices_of_that() -> None:
    text = """g (float[2,50] x, int64[4,8] i, float[2,1,8] w) => (float[4,8] yMORE) {
        j = Abs (i)  t = Gather <axis = 1> (x, j)  m = Mul (t, w)  y = ReduceSum <keepdims = 0> (m, first) REST }"""
    first = {"first": np.array([0])}
    found = groups(text.replace("MORE", "").replace("REST", ""), first)
    assert found == ["elementwise: Abs", "reduction: Gather Mul ReduceSum"]
    read_again = text.replace("MORE", ", float[2,4,8] z").replace("REST", "z = Neg (t)")
    assert "injective: Gather" in groups(read_again, first)


@pytest.mark.parametrize(("end", "expected"), [("Relu", 0), ("Softmax", 1)])
def test_only_heads_that_reach_a_reduction_are_tried(end: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each head that is tried walks as far as a kernel may be long: all of a chain would take its length squared."""
    count, limit = 40, 8
    chain = " ".join(f"v{step + 1} = Relu (v{step})" for step in range(count))
    region = region_of(f"g ({ROWS} v0) => ({ROWS} y) {{ {chain} y = {end} (v{count}) }}", {})
    uses = Uses.of(region.nodes(), {value.value for value in region.outputs})
    tried = list[object]()
    walk = Uses.next_joint
    monkeypatch.setattr(Uses, "next_joint", lambda self, value, joins: tried.append(value) or walk(self, value, joins))
    found = find_rows(region.nodes(), uses, OPERATORS, ("float32",), limit)
    assert [[node.op_type for node in group] for group in found] == [["Relu"] * (limit - 1) + [end]] * expected
    assert len(tried) <= limit
