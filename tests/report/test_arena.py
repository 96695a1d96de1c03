"""The arena over time in `graft inspect` and in reports."""

from __future__ import annotations

import re
from dataclasses import replace

from graft.compiler.stitching.procedure_builder import ProcedureBuilder
from graft.report.arena import arena_picture, arena_text, courses_picture, peak_text
from graft.runtime.arena import blocks_of
from graft.runtime.procedure import Call, Procedure


def procedure() -> Procedure:
    """a = relu(x), b = exp(a), c = add(b, a), y = relu(c)."""
    builder = ProcedureBuilder("main")
    x = builder.add_input("x", "float32", (6,))
    a, b, c, y = (builder.result(name, "float32", (6,)) for name in "abcy")
    for function, inputs, output in (("relu", (x,), a), ("exp", (a,), b), ("add", (b, a), c), ("relu", (c,), y)):
        builder.calls.append(Call("call", inputs, (output,), 0, function))
    return builder.finish([y], ["y"])


def test_blocks_are_the_tensors_of_the_arena_and_their_calls() -> None:
    rows = [(one.name, one.bytes, one.first, one.last) for one in blocks_of(procedure())]
    assert rows == [("a", 24, 0, 2), ("b", 24, 1, 2), ("c", 24, 2, 3)]


def test_the_peak_names_the_call_and_the_largest_tensors() -> None:
    assert peak_text(procedure()) == "192 B at call 3 of 4, add: a 24 B, b 24 B, c 24 B"


def test_size_bound_and_ratio_stand_together() -> None:
    assert arena_text(procedure()) == "192 B (lower bound 192 B, ratio 1.000)"
    assert arena_text(replace(procedure(), arena_bytes=0, arena_bound=0)) == "0 B (lower bound 0 B)"


def test_the_picture_has_a_rectangle_for_every_tensor_within_its_frame() -> None:
    picture = arena_picture(procedure())
    found = re.findall(r'x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', picture)
    assert len(found) == 3
    for x, y, width, height in (map(float, one) for one in found):
        assert x >= 0 and x + width <= 960 and y >= 0 and y + height <= 260
    assert "<title>a: 24 B at 0, calls 1 to 3</title>" in picture


def test_an_arena_that_is_planned_for_each_binding_has_no_picture() -> None:
    assert arena_picture(replace(procedure(), arena_bytes=0)) == ""
    assert peak_text(replace(procedure(), arena_bytes=0)) == ""


def test_courses_are_areas_on_one_scale() -> None:
    picture = courses_picture(([64, 256], [64, 128, 64, 64]))
    assert 'aria-label="Memory over time: 256 B, 128 B at most"' in picture
    assert 'd="M0 260V195.0H240.0V0.0H480.0V260Z"' in picture
    assert 'd="M0 260V195.0H240.0V130.0H480.0V195.0H720.0V195.0H960.0V260Z"' in picture
