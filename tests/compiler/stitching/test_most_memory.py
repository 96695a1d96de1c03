"""Memory that is planned once, for the largest shapes of the symbols' ranges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

import graft
from graft.cli.main import main
from graft.compiler.stitching.most_memory import most_bytes
from graft.core.affine.text import parsed
from graft.errors import ArtifactError, GraftError, ModelError
from graft.runtime.extents import evaluate
from graft.runtime.procedure import TensorSpec
from graft.runtime.program import Program

MODEL = """<ir_version: 10, opset_import: ["" : 20]>
g (float[batch, seq, 8] x, float[batch, past, 8] cache) => (float[batch, rows, all] y) {
  keys = Concat <axis = 1> (cache, x)
  transposed = Transpose <perm = [0, 2, 1]> (keys)
  scores = MatMul(x, transposed)
  weights = Softmax(scores)
  bent = Exp(weights)
  y = Log(bent)
}"""
DIMS: dict[str, Any] = {"batch": (1, 4), "seq": (1, 16), "past": (0, 32)}


def compiled(**options: Any) -> graft.Program:
    return graft.compile(parser.parse_model(MODEL), ["llvm"], **{"dims": DIMS, "memory": "maximum", **options})


def sample(batch: int, seq: int, past: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(batch + seq + past)
    shapes = (batch, seq, 8), (batch, past, 8)
    return tuple(generator.standard_normal(shape).astype(np.float32) for shape in shapes)  # type: ignore[return-value]


@pytest.mark.parametrize("backends", [["reference"], ["llvm", "reference"]])
def test_every_shape_gives_what_it_gives_with_a_plan_for_each(backends: list[str]) -> None:
    model = parser.parse_model(MODEL)
    program = graft.compile(model, backends, dims=DIMS, memory="maximum")
    other = graft.compile(model, backends, dims=DIMS)
    for shape in ((1, 1, 0), (4, 16, 32), (2, 5, 7), (1, 16, 0), (4, 1, 32)):
        np.testing.assert_array_equal(program(*sample(*shape)), other(*sample(*shape)))


def test_the_arena_has_the_size_of_the_largest_shapes() -> None:
    (procedure,) = compiled().description.procedures
    rooms = {tensor.name: tensor.room for tensor in procedure.tensors if tensor.storage == "arena"}
    assert rooms["transposed"] == 4 * 48 * 8 * 4
    assert rooms["scores"] == 4 * 16 * 48 * 4
    assert procedure.arena_bytes == rooms["transposed"] + rooms["scores"] == procedure.arena_bound


def test_an_artifact_keeps_the_plan(tmp_path: Path) -> None:
    compiled().save(tmp_path / "model.graft")
    program = graft.runtime.load(tmp_path / "model.graft")
    assert program.arena_bytes == compiled().arena_bytes > 0
    np.testing.assert_array_equal(program(*sample(2, 3, 4)), compiled()(*sample(2, 3, 4)))


def test_an_open_symbol_is_an_error_that_names_it() -> None:
    with pytest.raises(ModelError) as caught:
        compiled(dims={"batch": (1, 4), "seq": (1, 16)})
    assert caught.value.message == (
        "memory='maximum' plans for the largest shapes, but dimension 'past' is open: axis 2 of tensor 'transposed' is "
        "'past + seq'; give it a range, as in dims={\"past\": (1, 512)} (--dim past=1..512), or, unless it is for a C "
        "project, leave the planning to each binding (memory='binding')"
    )
    assert "or, unless it is for a C project, leave the planning to each binding (--memory binding)" in (
        caught.value.command_line
    )


def test_a_range_of_a_sum_bounds_what_it_is_of() -> None:
    program = compiled(dims={"batch": (1, 4), "seq": (1, 16), "past": (0, 1024), "past + seq": (1, 48)})
    assert program.arena_bytes == compiled().arena_bytes


def test_a_static_model_is_planned_as_ever() -> None:
    dims = {"batch": 2, "seq": 3, "past": 4}
    procedures = [compiled(dims=dims, memory=memory).description.procedures for memory in ("maximum", "binding")]
    assert procedures[0] == procedures[1]


def test_another_word_is_an_error() -> None:
    with pytest.raises(GraftError) as caught:
        compiled(memory="most")
    assert "'binding' or 'maximum'" in caught.value.message


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        (("seq", "2*past + 1"), 16 * 65), (("past - seq", "batch"), 31 * 4), (("(seq + 1)//2", "min(seq, 3)"), 8 * 3),
        (("max(seq, past)",), 32), (("seq - 20",), 0),
    ],
)  # fmt: skip
def test_the_most_bytes_follow_from_bounds_of_each_extent(shape: tuple[str, ...], size: int) -> None:
    ranges = {parsed(name) or 0: bounds for name, bounds in DIMS.items()}
    tensor = TensorSpec("x", "float32", tuple(parsed(one) or 0 for one in shape), "arena")
    assert most_bytes(tensor, ranges) == 4 * size


@given(st.integers(1, 4), st.integers(1, 16), st.integers(0, 32), st.sampled_from(
    ["batch*seq + past", "past*seq - batch", "(past + 3)//seq", "past % seq", "max(past - seq, 0)*batch", "seq*seq"]
))  # fmt: skip
def test_no_shape_within_the_ranges_has_more_bytes(batch: int, seq: int, past: int, text: str) -> None:
    ranges = {parsed(name) or 0: bounds for name, bounds in DIMS.items()}
    extent = parsed(text)
    assert extent is not None
    size = evaluate(extent, {"batch": batch, "seq": seq, "past": past})
    assert max(size, 0) <= most_bytes(TensorSpec("x", "uint8", (extent,), "arena"), ranges)


def test_a_tensor_that_outgrows_its_room_is_an_error(tmp_path: Path) -> None:
    description = compiled().description
    (procedure,) = description.procedures
    symbols = tuple(replace(symbol, high=None) for symbol in procedure.symbols)
    description = replace(description, procedures=(replace(procedure, symbols=symbols),))
    program = Program.from_description(description)
    program(*sample(4, 16, 32))
    with pytest.raises(GraftError) as caught:
        program(*sample(4, 17, 32))
    assert "tensor 'transposed' has 6272 bytes, but was planned for at most 6144" in str(caught.value)


@pytest.mark.parametrize(("field", "value"), [("room", 1 << 40), ("offset", 64)])
def test_rooms_that_leave_the_arena_or_overlap_are_damage(field: str, value: int) -> None:
    description = compiled().description
    (procedure,) = description.procedures
    tensors = [
        replace(tensor, **{field: value}) if tensor.storage == "arena" else tensor for tensor in procedure.tensors
    ]
    description = replace(description, procedures=(replace(procedure, tensors=tuple(tensors)),))
    with pytest.raises(ArtifactError) as caught:
        Program.from_description(description)
    assert "leave the arena" in caught.value.message or "overlap in the arena" in caught.value.message


def test_the_command_line_says_when_memory_is_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(parser.parse_model(MODEL), tmp_path / "m.onnx")
    ranges = ["--dim", "batch=1..4", "--dim", "seq=1..16", "--dim", "past=0..32"]
    output = str(tmp_path / "m.graft")
    arguments = ["compile", str(tmp_path / "m.onnx"), "-b", "llvm", "--memory", "maximum", "-o", output, *ranges]
    for command in (arguments, ["inspect", output]):
        with pytest.raises(SystemExit) as caught:
            main(command)
        assert not caught.value.code
    assert (
        "arena      18.0 KiB (lower bound 18.0 KiB, ratio 1.000), planned for the largest shapes"
        in capsys.readouterr().out
    )
