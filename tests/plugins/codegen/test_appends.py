"""Caches that are appended to in place: which are, which are copied and why, and kernels that read with a pitch."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import graft
from graft.runtime.caches import Cache
from graft.runtime.program import Program

HEADER = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[batch, 2, new, 4] rows, float[batch, 2, past, 4] past) => (float[batch, 2, total, 4] present, """


def compiled(body: str, outputs: str, backend: str = "llvm", **options: object) -> Program:
    model = onnx.parser.parse_model(f"{HEADER}{outputs}) {{ present = Concat <axis = 2> (past, rows) {body} }}")
    backends = list(dict.fromkeys((backend, "reference")))
    return graft.compile(model, backends, threads=1, **options)  # type: ignore[arg-type]


def check(program: Program) -> None:
    """Compare steps of a bound program with plain calls, whose tensors are contiguous."""
    random = np.random.default_rng(0)
    bound, past = program.bind(capacity=11), np.zeros((3, 2, 0, 4), np.float32)
    for count in (0, 3, 1, 5, 2):
        rows = random.standard_normal((3, 2, count, 4), np.float32)
        expected = program.run({"rows": rows, "past": past})
        past = expected.pop("present")
        for name, got in bound.run({"rows": rows}).items():
            np.testing.assert_allclose(got, expected[name], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(bound.state["past"], past)


W = "w = Constant <value = float[4, 3] {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2}> () "
READERS = {
    "an elementwise kernel": ("y = Relu(present)", "float[batch, 2, total, 4] y"),
    "a transposition": ("y = Transpose <perm = [0, 2, 1, 3]> (present)", "float[batch, total, 2, 4] y"),
    "a reduction": (
        "axis = Constant <value = int64[1] {2}> () y = ReduceMax <keepdims = 0> (present, axis)",
        "float[batch, 2, 4] y",
    ),
    "a product": ("t = Transpose <perm = [0, 1, 3, 2]> (present) y = MatMul(rows, t)", "float[batch, 2, new, total] y"),
    "a product with its rows": (W + "y = MatMul(present, w)", "float[batch, 2, total, 3] y"),
    "attention": (
        "t = Transpose <perm = [0, 1, 3, 2]> (present) s = MatMul(rows, t) p = Softmax <axis = -1> (s) "
        "y = MatMul(p, present)",
        "float[batch, 2, new, 4] y",
    ),
    "nothing": ("y = Neg(rows)", "float[batch, 2, new, 4] y"),
}


@pytest.mark.parametrize("reader", READERS)
def test_what_reads_a_cache_reads_it_with_a_pitch(reader):
    program = compiled(*READERS[reader])
    (cache,) = program.caches
    assert cache == Cache("past", "present", 2, copied="")
    check(program)


@pytest.mark.parametrize("reader", ["a product", "attention"])
def test_c_reads_it_so_too(reader):
    program = compiled(*READERS[reader], backend="c_source")
    assert program.caches[0].copied == ""
    check(program)


def copied(program: Program) -> str:
    """Return why the one cache of a program is copied, whose bound steps are right nevertheless."""
    (cache,) = program.caches
    check(program)
    return cache.copied


def test_a_view_of_a_cache_makes_it_a_copy():
    body = "shape = Constant <value = int64[3] {0, 0, -1}> () y = Reshape(present, shape)"
    assert copied(compiled(body, "float[batch, 2, n] y")) == "node 'y' is a view of it or a part"


def test_an_input_that_something_else_reads_stays_as_it_is():
    program = compiled("y = Relu(past)", "float[batch, 2, past, 4] y")
    assert copied(program) == "something else reads it, or what it is appended to"


def test_a_backend_that_makes_caches_anew_is_named():
    program = compiled("y = Relu(rows)", "float[batch, 2, new, 4] y", "reference")
    assert copied(program) == "backend 'reference' makes it anew"


def test_in_place_can_be_switched_off():
    program = compiled("y = Relu(rows)", "float[batch, 2, new, 4] y", without=["in-place"])
    assert copied(program) == "backend 'llvm' makes it anew"


def test_a_concat_of_something_else_is_no_cache():
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20]>
        g (float[n, 2] x, float[m, 2] past) => (float[k, 2] y, float[k, 2] z) {
          y = Concat <axis = 0> (x, x) h = Neg(past) z = Concat <axis = 0> (h, x)
        }"""
    )
    assert graft.compile(model, ["llvm"]).caches == ()


def test_blocks_that_are_one_need_no_pitch():
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20]>
        g (float[1, new, 4] rows, float[1, past, 4] past) => (float[1, total, 4] present, float[1, total, 4] y) {
          present = Concat <axis = 1> (past, rows) y = Exp(present)
        }"""
    )
    program = graft.compile(model, ["llvm"])
    bound = program.bind()
    for count in (2, 0, 3):
        bound(np.ones((1, count, 4), np.float32))
    assert (program.caches[0].copied, bound.length) == ("", 5)
    np.testing.assert_allclose(bound(np.zeros((1, 1, 4), np.float32))[0, :, 0], [*[np.e] * 5, 1], rtol=1e-6)


def test_an_artifact_tells_its_caches(tmp_path):
    program = compiled(*READERS["attention"])
    program.save(tmp_path / "a.graft")
    loaded = graft.runtime.load(tmp_path / "a.graft")
    assert loaded.caches == program.caches
    check(loaded)


def test_variants_append_too():
    body, outputs = READERS["attention"]
    program = compiled(body, outputs, specialize={"new": [1], "batch": [3]})
    check(program)
