"""Rooms and words of programs whose shapes vary."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graft.errors import CompileError
from graft.runtime.export.wasm_link import Linker
from graft.runtime.export.wasm_shapes import Bindings, Room, product
from graft.runtime.extents import Operation, Symbol
from graft.runtime.procedure import Call, Procedure, SymbolSpec, TensorSpec

N = Symbol("n")


def chain(*in_place: int) -> Procedure:
    """x -> a -> b -> y, each with n elements of four bytes."""
    tensors = (
        TensorSpec("x", "float32", (N,), "input", index=0),
        TensorSpec("a", "float32", (N,), "arena"),
        TensorSpec("b", "float32", (N,), "arena"),
        TensorSpec("y", "float32", (N,), "output", index=0),
    )
    calls = tuple(Call("call", (one,), (one + 1,), 0, "f", in_place=in_place) for one in range(3))
    return Procedure("main", tensors, (0,), (3,), calls, symbols=(SymbolSpec("n", 1, 8, 0, 0),))


def test_inputs_and_outputs_have_rooms_as_long_as_the_program_runs_and_others_while_they_are_used() -> None:
    bindings = Bindings(chain(), Linker([]))
    assert bindings.rooms == [Room("e0", 0, 3), Room("e0", 0, 3), Room("e0", 0, 1), Room("e0", 1, 2)]
    assert bindings.writer.rows == [("mul", "s0", 4)]


def test_a_result_that_may_be_written_over_what_dies_shares_its_room() -> None:
    bindings = Bindings(chain(0), Linker([]))
    assert bindings.rooms[2:] == [Room("e0", 0, 2)]
    assert bindings.address(1) == bindings.address(2) != bindings.address(0)


def test_what_a_body_needs_has_a_room_while_its_step_runs() -> None:
    bindings = Bindings(chain(), Linker([]))
    word = bindings.local(product((N,), 4), 2)
    assert bindings.rooms[-1] == Room("e0", 2, 2)
    behind = bindings.displaced(word, 64)
    assert behind == bindings.displaced(word, 64) != word
    assert bindings.addresses[-2:] == [(word.address, 4, 0), (behind.address, 4, 64)]


def test_what_a_body_reads_is_kept_until_its_step() -> None:
    made = chain()
    choice = Call("if", (0,), (3,), bodies=(1, 1), arguments=((1,), (-1,)))
    bindings = Bindings(replace(made, calls=(*made.calls[:2], choice)), Linker([]))
    assert bindings.rooms[2] == Room("e0", 0, 2)


def test_equal_extents_are_one_word() -> None:
    bindings = Bindings(chain(), Linker([]))
    assert bindings.size((N, 2), 2) == bindings.size((N,), 4)
    assert bindings.size((3, 2), 4) == 24
    assert [(dimension, is_long) for _, dimension, is_long in bindings.numbers] == [("e0", False)]


def test_numbers_of_a_product_are_one_factor() -> None:
    assert product((2, N, 3), 4) == Operation("mul", N, 24)
    assert product((), 4) == 4


def test_a_shape_that_depends_on_data_is_refused() -> None:
    tensors = (
        TensorSpec("x", "float32", (4,), "input", index=0),
        TensorSpec("y", "int64", (1, N), "output", index=0),
    )
    call = Call("call", (0,), (1,), 0, "f")
    procedure = Procedure("main", tensors, (0,), (1,), (call,), symbols=(SymbolSpec("n", 0, None, 1, 1),))
    with pytest.raises(CompileError) as error:
        Bindings(procedure, Linker([]))
    assert str(error.value) == (
        "the program cannot be one WebAssembly module: dimension 'n' is known only when 'y' is computed; only shapes "
        "that follow from those of inputs have a place; export a C project, whose caller has room for "
        "slices that a loop counts, or a library"
    )
