import numpy as np
import pytest

from graft.core.operators.definition import build as b
from graft.core.operators.definition.control_loops import loop
from graft.core.schedule.primitives.statements import between, deinterleave, in_vectors, interleave, nest, ramp, wide
from graft.core.tensor_ir.interpreting.machine_arithmetic import run_function
from graft.core.tensor_ir.ir import Block, Buffer, Expression, Function, Load, Ramp, Statement, Store

LANES = 4


def stored(extent: int, body: Statement, target: Buffer) -> np.ndarray:
    """What a function of one output, of zeros at first, stores there."""
    clear = loop(extent, lambda place: Store(target, (place,), b.constant(0, "float32")), name="zero")
    (result,) = run_function(Function("f", (target,), 1, Block((clear, body))), [])
    return result


def output(extent: int) -> Buffer:
    return Buffer("y", "float32", (b.index(extent),))


def test_loops_of_a_nest_are_in_the_order_of_their_axes() -> None:
    target = Buffer("y", "float32", tuple(map(b.index, (2, 1, 3))))

    def body(at: dict[int, Expression]) -> Statement:
        assert list(at) == [0, 1, 2] and at[1] == b.index(0)
        return Store(target, tuple(at.values()), b.cast(b.add(b.multiply(at[0], 3), at[2]), "float32"))

    (result,) = run_function(Function("f", (target,), 1, nest("i", {0: 2, 1: 1, 2: 3}, "serial", body)), [])
    np.testing.assert_array_equal(result.reshape(-1), np.arange(6))


@pytest.mark.parametrize("length", [3, 4, 8, 11])
def test_vectors_along_a_row_cover_it_once_and_no_more(length: int) -> None:
    target = output(length + LANES)

    def add(begin: Expression, mask: Expression | None) -> Statement:
        place = (ramp(begin, LANES),)
        return Store(target, place, b.add(Load(target, place, mask), wide(b.constant(1, "float32"), LANES)), mask)

    result = stored(length + LANES, in_vectors("step", length, LANES, add), target)
    np.testing.assert_array_equal(result, [1] * length + [0] * LANES)


@pytest.mark.parametrize(("low", "high", "expected"), [(True, True, [0, 1, 1, 0]), (True, False, [0, 1, 1, 1])])
def test_places_are_between_the_sides_that_are_asked_about(low: bool, high: bool, expected: list[int]) -> None:
    target = output(LANES)
    mask = between(Ramp(b.index(-1), 1, LANES), 2, low=low, high=high)
    body = Store(target, (ramp(0, LANES),), wide(b.constant(1, "float32"), LANES), mask)
    assert stored(LANES, body, target).tolist() == expected


def test_no_mask_is_needed_where_nothing_leaves() -> None:
    assert between(Ramp(b.index(0), 1, LANES), 8, low=False, high=False) is None


@pytest.mark.parametrize("count", [2, 4])
def test_interleaving_undoes_deinterleaving(count: int) -> None:
    lanes = 8
    source, target = (Buffer(name, "float32", (b.index(count * lanes),)) for name in ("source", "target"))

    def at(number: int) -> Ramp:
        return Ramp(b.index(number * lanes), 1, lanes)

    def run(values: list[Expression]) -> np.ndarray:
        stores = tuple(Store(target, (at(number),), value) for number, value in enumerate(values))
        (result,) = run_function(Function("f", (source, target), 1, Block(stores)), [numbers])
        return result

    numbers = np.arange(count * lanes, dtype="float32")
    apart = deinterleave([Load(source, (at(number),)) for number in range(count)], count)
    np.testing.assert_array_equal(run(apart), numbers.reshape(lanes, count).T.reshape(-1))
    np.testing.assert_array_equal(run(interleave(apart)), numbers)
