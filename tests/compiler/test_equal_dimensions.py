"""Dimensions of two names that are one number: said by the user, or found where they meet."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graft
from graft.core.importer.load import load
from graft.core.shapes.met_symbols import met_symbols
from graft.errors import InputError, ModelError

HEADER = '<ir_version: 10, opset_import: ["" : 20]>'
MODEL = f"""{HEADER} g (float[batch, seq, 4] x, float[rows, 1, columns] mask) => (float[b, s, t] y) {{
  transposed = Transpose <perm = [0, 2, 1]> (x) scores = MatMul (x, transposed) masked = Add (scores, mask)
  y = Softmax (masked) }}"""
RANDOM = np.random.default_rng(4)


def model(text: str = MODEL) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def arrays(batch: int, seq: int, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    return (
        RANDOM.standard_normal((batch, seq, 4)).astype(np.float32),
        RANDOM.standard_normal((rows, 1, columns)).astype(np.float32),
    )


def variants(program: graft.Program) -> list[str]:
    return [program.description.procedures[number].name for number in program.description.variants]


def test_what_is_said_to_be_equal_is_one_dimension() -> None:
    program = graft.compile(model(), ["llvm"], dims={"rows": "batch", "columns": "seq"}, strict=True)
    assert program.inputs[1].shape == ("batch", 1, "seq")
    assert variants(program) == []
    with pytest.raises(InputError, match="input 'mask' has 1 at axis 0, but dimension 'batch' is 2"):
        program(*arrays(2, 3, 1, 3))


def test_equality_is_followed_to_the_last_name() -> None:
    loaded = load(model(), dims={"rows": "columns", "columns": "seq", "seq": (1, 8)})
    assert [str(one) for one in loaded.graph.inputs[1].shape] == ["seq", "1", "seq"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"rows": "bach"}, "the model has no dimension 'bach'; did you mean 'batch'"),
        ({"row": "batch"}, "the model has no dimension 'row'; did you mean 'rows'"),
        ({"rows": "batch", "batch": "rows"}, "dimension 'rows' is said to be itself (dims); leave it out"),
        (
            {"rows": "batch", "columns": "seq", "seq": 3, "batch": "seq", "rows_": 1},
            "the model has no dimension 'rows_'; did you mean 'rows'",
        ),
    ],
)
def test_a_wrong_equality_is_an_error(dims: dict[str, int | str], message: str) -> None:
    with pytest.raises(ModelError) as caught:
        load(model(), dims=dims)
    assert caught.value.message == message


def test_a_number_of_a_dimension_is_that_of_its_equals() -> None:
    loaded = load(model(), dims={"rows": "batch", "batch": 2})
    assert [str(one) for one in loaded.graph.inputs[1].shape] == ["2", "1", "columns"]  # type: ignore[union-attr]


def test_a_version_for_equal_dimensions_is_compiled_where_they_meet() -> None:
    program = graft.compile(model(), ["llvm", "reference"])
    assert variants(program) == ["main[rows=batch, columns=seq]"]
    plain = graft.compile(model(), ["reference"], without=["equal-dimensions"])
    assert variants(plain) == []
    for shapes in ((2, 3, 2, 3), (2, 3, 1, 3), (2, 3, 1, 1), (1, 5, 4, 5), (0, 3, 0, 3)):
        given = arrays(*shapes)
        np.testing.assert_allclose(program(*given), plain(*given), rtol=1e-5, atol=1e-6)


def test_the_version_runs_natively_and_is_saved(tmp_path) -> None:  # type: ignore[no-untyped-def]
    graft.compile(model(), ["llvm", "reference"]).save(tmp_path / "m.graft")
    program = graft.runtime.load(tmp_path / "m.graft")
    procedure, _ = program.timed(*arrays(2, 3, 2, 3))
    kinds = {program.description.modules[call.module].kind for call in procedure.calls if call.kind == "call"}
    assert (procedure.name, kinds) == ("main[rows=batch, columns=seq]", {"native"})
    assert program.timed(*arrays(2, 3, 1, 3))[0].name == "main"


def test_a_version_that_knows_less_of_a_result_is_left_out() -> None:
    """The body says that the state has one row: that of x, whose number the Add would rather have equal to another."""
    text = """g (float[n, m, 2] x, float[k, 2] s) => (float[?, ?] y, float[?, ?, ?] all, float[?, ?, ?] z) {
        y, all = Scan <num_scan_inputs = 1, body = f (float[1, 2] a, float[1, 2] b) => (float[?, ?] c, float[?, ?] d) {
            c = Add (a, b)
            d = Neg (c)
        }> (s, x)
        z = Add (x, s)
    }"""
    program = graft.compile(onnx.parser.parse_model(f"{HEADER} {text}"))
    assert variants(program) == []
    x, s = np.ones((3, 1, 2), np.float32), np.ones((1, 2), np.float32)
    np.testing.assert_array_equal(program(x, s)[0], [[4, 4]])


def test_a_version_for_what_cannot_be_equal_is_left_out() -> None:
    """Frames want six samples of x at least, weights one channel of s."""
    text = """g (float[1, k, 1] s, float[n, m, 1] x) => (float[?, ?, ?] y, float[?, ?, ?] z, float[?, ?, ?, ?] p)
        <float[1, 2, 2] w = {1.0, 2.0, 3.0, 4.0}, int64 step = {2}, int64 length = {6}> {
        y = ConvTranspose (s, w)
        z = Add (s, x)
        p = STFT <onesided = 1> (x, step, , length)
    }"""
    program = graft.compile(onnx.parser.parse_model(f"{HEADER} {text}"))
    assert variants(program) == []
    s, x = np.ones((1, 1, 1), np.float32), np.ones((2, 6, 1), np.float32)
    np.testing.assert_array_equal(program(s, x)[1], 1 + x)


@pytest.mark.parametrize(
    ("text", "equal"),
    [
        ("(float[a, 3] x, float[b, 3] z) => (float[c, 3] y) { y = Add (x, z) }", {"b": "a"}),
        ("(float[a, n, k] x, float[b, k, m] z) => (float[?, n, m] y) { y = MatMul (x, z) }", {"b": "a"}),
        ("(float[a, 3] x, float[b, 2] z) => (float[c, 5] y) { y = Concat <axis = 1> (x, z) }", {}),
        ("(float[a, 3] x, float[b, 3] z) => (float[c, 3] y) { y = Concat <axis = 0> (x, z) }", {}),
        ("(float[a, 3] x, float[a, 3] z) => (float[a, 3] y) { y = Add (x, z) }", {}),
        (
            "(float[a] x, float[b] z, float[c] w) => (float[d] y) { u = Add (z, w) v = Add (x, w) y = Add (u, v) }",
            {"b": "a", "c": "a"},
        ),
        (
            "(float[a, 3] x, int64[k] r, float[b, 5] w, float v) => (float[c, d] y) {"
            " s = Reshape (x, r) y = Gemm (s, w, v) }",
            {},
        ),
    ],
)
def test_symbols_meet_where_an_operator_takes_both_for_one_axis(text: str, equal: dict[str, str]) -> None:
    assert met_symbols(load(model(f"{HEADER} g {text}"))) == equal
