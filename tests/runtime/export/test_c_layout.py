"""Where the arena of a C project has what control flow needs."""

from __future__ import annotations

from typing import Any

import pytest

from graft.errors import ArtifactError
from graft.runtime.export.c_layout import Layout, axis_of, most_bytes, state_count
from graft.runtime.extents import Operation, Symbol
from graft.runtime.procedure import Call, Procedure, SymbolSpec
from tests.runtime.programs import tensor


def body(*shapes: tuple[int, ...], arena: int = 0, calls: tuple[Call, ...] = ()) -> Procedure:
    """Return a procedure whose inputs and outputs have these shapes, of float32."""
    tensors = tuple(
        tensor(f"t{number}", "float32", shape, "input", index=number) for number, shape in enumerate(shapes)
    )
    every = tuple(range(len(shapes)))
    return Procedure("body", tensors, every, every, calls, arena)


def step(kind: Any, inputs: tuple[int, ...], outputs: tuple[int, ...], *bodies: int, **attributes: Any) -> Call:
    return Call(kind, inputs, outputs, bodies=bodies, attributes=attributes)


def test_a_procedure_without_control_flow_has_its_own_arena_in_whole_lines() -> None:
    assert [Layout([body(arena=size)]).bytes(0) for size in (0, 1, 64, 65)] == [0, 64, 64, 128]


def test_branches_share_one_room_behind_results_that_nobody_wants() -> None:
    branch = step("if", (0,), (-1, 1), 1, 2)
    layout = Layout([body((), arena=100, calls=(branch,)), body((20,), (4,), arena=64), body((30,), (4,), arena=256)])
    room = layout.room(layout.procedures[0], branch)
    assert room.temporaries == {("result", 0): 128}
    assert (room.bodies, room.end, layout.bytes(0)) == (256, 512, 512)


def test_a_loop_has_two_places_for_a_state_that_nobody_wants_and_stacks_slices() -> None:
    loop = step("loop", (0, -1, 1, 2), (-1, 3, -1), 1)
    layout = Layout([body((), arena=64, calls=(loop,)), body((), (16,), (17,), (1,), arena=64)])
    room = layout.room(layout.procedures[0], loop)
    assert room.temporaries == {("state", 0): 64, ("other", 0): 128, ("state", 1): 192, ("stack", 0): 320}
    assert (room.bodies, room.end) == (384, 448)


def test_a_scan_takes_slices_apart_along_axes_other_than_the_first() -> None:
    scan = step("scan", (0, 1, 2), (0, 3), 1, scan_inputs=2, input_axes=[0, -1], output_axes=[1])
    outer = body((4,), (3, 5), (3, 5), (5, 3), calls=(scan,))
    layout = Layout([outer, body((4,), (5,), (3,))])
    assert layout.room(outer, scan).temporaries == {("state", 0): 0, ("stack", 0): 64, ("slice", 1): 128}
    assert [axis_of(scan, "input", number, outer) for number in (0, 1)] == [0, 1]
    assert axis_of(scan, "output", 0, outer) == 1
    assert state_count(scan) == 1


def test_control_flow_inside_control_flow_lies_behind_it_and_calls_share_room() -> None:
    inner, outer = step("if", (0,), (), 2, 2), step("if", (0,), (), 1, 2)
    small, again = body(arena=64), step("if", (0,), (), 2, 2)
    layout = Layout([body(arena=64, calls=(outer, again)), body(arena=128, calls=(inner,)), small])
    assert [layout.bytes(number) for number in (2, 1, 0)] == [64, 192, 256]
    assert layout.reached == (2, 1, 0)


def test_procedures_that_the_entry_never_comes_to_are_not_reached() -> None:
    assert Layout([body(calls=(step("if", (0,), (), 2, 2),)), body(), body()]).reached == (2, 0)


def test_the_largest_size_is_that_of_the_largest_symbols() -> None:
    extent = Operation("sub", Symbol("n"), 2)
    shaped = tensor("x", "float16", (3, extent), "input")  # type: ignore[arg-type]
    closed = Procedure("p", (shaped,), (0,), (), (), symbols=(SymbolSpec("n", 0, 10),))
    assert most_bytes(closed, 0) == 3 * 8 * 2
    negative = Procedure("p", (shaped,), (0,), (), (), symbols=(SymbolSpec("n", 0, 1),))
    assert most_bytes(negative, 0) == 0


def test_a_value_without_a_largest_size_is_refused() -> None:
    shaped = tensor("x", "float16", (Symbol("n"),), "input")  # type: ignore[arg-type]
    with pytest.raises(ArtifactError) as caught:
        most_bytes(Procedure("p", (shaped,), (0,), (), (), symbols=(SymbolSpec("n", 0),)), 0)
    assert str(caught.value) == (
        "'x', a value of control flow, has the extent 'n', which has no end, and a C project has one arena; "
        "give each dimension a range"
    )
