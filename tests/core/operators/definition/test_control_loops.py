"""The short forms of loops, and tiles out of a row, run in the interpreter."""

from collections.abc import Callable

import pytest

from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import block, let, loop, tiles
from graft.core.tensor_ir.interpreting.machine_arithmetic import run_function
from graft.core.tensor_ir.ir import Block, Buffer, Expression, For, Function, Let, Load, Statement, Store, Variable


def counted(extent: b.Count, step: int, around: Callable[[Statement], Statement]) -> tuple[list[float], list[int]]:
    """How often tiles of a row touch each of 16 elements, and the sizes that the body is made for."""
    row = Buffer("row", "float32", (b.index(16),))
    sizes: list[int] = []

    def body(begin: Expression, size: int) -> Statement:
        sizes.append(size)
        places = [b.add(begin, number) for number in range(size)]
        return Block(tuple(Store(row, (at,), b.add(Load(row, (at,)), b.constant(1, "float32"))) for at in places))

    clear = loop(16, lambda i: Store(row, (i,), b.constant(0, "float32")))
    made = Block((clear, around(tiles(extent, step, body))))
    (result,) = run_function(Function("f", (row,), 1, made), [])
    return result.tolist(), sizes


def test_a_loop_of_one_iteration_is_its_body_at_0() -> None:
    target = Buffer("y", "float32", (b.index(1),))
    body = loop(1, lambda place: Store(target, (place,), b.constant(2, "float32")), "parallel")
    assert body == Store(target, (b.index(0),), b.constant(2, "float32"))


def test_a_loop_has_the_name_and_the_kind_that_it_is_given() -> None:
    target = Buffer("y", "float32", (b.index(3),))
    made = loop(3, lambda place: Store(target, (place,), b.constant(2, "float32")), "parallel", "step")
    assert isinstance(made, For)
    assert (made.variable.name, made.kind, made.extent) == ("step", "parallel", b.index(3))


def test_a_block_of_one_statement_is_that_statement() -> None:
    one = Block(())
    assert block(one) is one
    assert block(one, one) == Block((one, one))


def test_a_value_is_bound_to_a_variable_of_its_type() -> None:
    target = Buffer("y", "float32", (b.index(1),))
    made = let(b.constant(2, "float32"), lambda name: Store(target, (b.index(0),), name), "two")
    assert isinstance(made, Let)
    assert (made.variable.name, made.variable.type.dtype) == ("two", "float32")


@pytest.mark.parametrize(("length", "sizes"), [(12, [4]), (11, [4, 3]), (3, [3])])
def test_tiles_of_a_known_row_cover_it_once_with_a_smaller_one_at_its_end(length: int, sizes: list[int]) -> None:
    assert counted(length, 4, lambda body: body) == ([1] * length + [0] * (16 - length), sizes)


@pytest.mark.parametrize(("step", "sizes"), [(6, [6, 4, 2, 1]), (8, [8, 4, 2, 1]), (1, [1])])
@pytest.mark.parametrize("length", [0, 1, 5, 6, 12, 13])
def test_tiles_of_a_row_that_varies_halve_until_one_is_left(length: int, step: int, sizes: list[int]) -> None:
    extent = Variable("extent")
    found = counted(extent, step, lambda body: Let(extent, b.index(length), body))
    assert found == ([1] * length + [0] * (16 - length), sizes)
