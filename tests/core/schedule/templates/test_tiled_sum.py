"""Every tile of every sum is legal by its steps, and gives what the plain stages give."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import numpy as np
import pytest

from graft.core.machine.target import target_named
from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.parameters import ScheduleParameters
from graft.core.schedule.primitives.schedule_text import print_schedule
from graft.core.schedule.selection.select import schedule
from graft.core.schedule.templates.space import first, near, points, schedules
from graft.core.schedule.templates.tiled_sum import HIDDEN, MASKED, Tile, TiledSum, tiled_sum
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from graft.core.tensor_ir.ir import Buffer
from graft.core.tensor_ir.verifying.verifier import verify
from tests.core.schedule.convolutions import NARROW, WIDE, convolution
from tests.core.schedule.strategies.contractions.test_blocked_product import matmul
from tests.core.schedule.templates.random_sums import random_sum

KERNELS = {
    "product": matmul((7, 6), (6, 9), constant=True)[0],
    "product of two inputs": matmul((5, 6), (6, 9), constant=False)[0],
    "products": matmul((2, 5, 4), (2, 4, 9), constant=False)[0],
    "1x1": convolution((2, 3, 5, 6), (7, 3, 1, 1))[0],
    "3x3 in strides": convolution((1, 4, 7, 19), (5, 4, 3, 3), pads=[1] * 4, strides=[2, 2])[0],
    "3x3": convolution((1, 3, 6, 9), (5, 3, 3, 3), pads=[1] * 4)[0],
    "5x1, dilated": convolution((1, 3, 9, 5), (5, 3, 3, 1), pads=[2, 0, 2, 0], dilations=[2, 1])[0],
    "in groups": convolution((1, 6, 6, 5), (9, 2, 3, 3), pads=[1] * 4, group=3)[0],
    "depthwise": convolution((1, 4, 6, 5), (4, 1, 3, 3), pads=[1] * 4, group=4)[0],
    "of one axis": convolution((2, 3, 17), (5, 3, 5), pads=[2, 2])[0],
    "of three axes": convolution((1, 2, 3, 4, 9), (4, 2, 3, 1, 3), pads=[1, 0, 1] * 2)[0],
}


def tiles(found: TiledSum, seed: int, count: int) -> Iterator[Tile]:
    """Yield a few tiles, drawn by a seed."""
    every = list(points(found, NARROW))
    yield from (every[int(one)] for one in np.random.default_rng(seed).integers(0, len(every), count))


def results(kernel: Kernel, steps: str) -> tuple[np.ndarray, np.ndarray]:
    """Return what the scheduled kernel computes, and what its stages do."""
    made = schedule(kernel, NARROW, ScheduleParameters(steps))
    random = np.random.default_rng(0)
    inputs: dict[Buffer, np.ndarray] = {
        one: kernel.constants.get(one, random.integers(-4, 5, b.dims(one)).astype(np.float32)) for one in kernel.inputs
    }
    expected = run_stages(kernel.stages, inputs)[kernel.outputs[0]]
    (found,) = run_function(made.function, [made.packed.get(one, inputs[one]) for one in kernel.inputs])
    return found.reshape(expected.shape), expected


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_tiles_compute_what_the_stages_do(kernel: Kernel) -> None:
    found = tiled_sum(kernel, NARROW)
    assert found is not None
    for tile in (*first(found, NARROW)[:2], *tiles(found, 1, 4)):
        computed, expected = results(kernel, print_schedule(tuple(found.steps(tile))))
        np.testing.assert_allclose(computed, expected, rtol=1e-5, atol=1e-5, err_msg=str(tile))


@pytest.mark.conformance
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_many_tiles_compute_what_the_stages_do(kernel: Kernel) -> None:
    found = tiled_sum(kernel, NARROW)
    assert found is not None
    for tile in tiles(found, 2, 40):
        computed, expected = results(kernel, print_schedule(tuple(found.steps(tile))))
        np.testing.assert_allclose(computed, expected, rtol=1e-5, atol=1e-5, err_msg=str(tile))


MACHINES = ("x86-64", "x86-64-v3", "x86-64-v4", "armv8-a", "riscv64+v", "wasm32+simd128", "generic")


def check_random_sum(seed: int, count: int) -> bool:
    """Whether the template takes a random sum for a random machine; tiles of it, if so, compute what its stages do."""
    draw = random.Random(f"sum {seed}")
    case, target = random_sum(draw), target_named(draw.choice(MACHINES))
    found = tiled_sum(case.kernel, target)
    if found is None:
        return False
    every = [*first(found, target)[:2], *draw.sample(list(points(found, target)), count)]
    for tile in every:
        steps = print_schedule(tuple(found.steps(tile)))
        made = schedule(case.kernel, target, ScheduleParameters(steps))
        verify(made.function, target.machine)
        for values in case.values:
            numbers = np.random.default_rng(seed)
            inputs = {
                one: case.kernel.constants.get(one, numbers.integers(-4, 5, case.shape(one, values)).astype(np.float32))
                for one in case.kernel.inputs
            }
            (out,) = case.kernel.outputs  # what its extents are, too, no input may say
            shaped = np.zeros(case.shape(out, values), np.float32)
            expected = run_stages(case.kernel.stages, {**inputs, out: shaped})[out]
            given = [made.packed.get(one, inputs[one]) for one in case.kernel.inputs]
            (got,) = run_function(made.function, given, [expected.shape])
            np.testing.assert_array_equal(got, expected, err_msg=f"seed {seed}, {target}, {values}, {tile}\n{steps}")
    return True


def test_tiles_of_random_sums_for_random_machines_compute_what_the_stages_do() -> None:
    assert sum(check_random_sum(seed, 1) for seed in range(4)) >= 2


@pytest.mark.conformance
@pytest.mark.parametrize("start", range(4, 44, 5))
def test_tiles_of_many_random_sums_compute_what_the_stages_do(start: int) -> None:
    assert sum(check_random_sum(seed, 1) for seed in range(start, start + 5)) >= 1


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_tile_is_taken_apart_as_the_row_of_the_table_takes_it(kernel: Kernel) -> None:
    found = tiled_sum(kernel, WIDE)
    assert found is not None
    tile = first(found, WIDE)[0]
    made = schedule(kernel, WIDE, ScheduleParameters(print_schedule(tuple(found.steps(tile)))))
    unchecked = found.scheduled(kernel, tile)
    assert str(unchecked.function) == str(made.function)
    assert {one.name: array.shape for one, array in unchecked.packed.items()} == {
        one.name: array.shape for one, array in made.packed.items()
    }


def test_what_has_its_elements_far_apart_is_no_sum_of_vectors() -> None:
    strided, _ = convolution((1, 5, 9, 9), (4, 5, 3, 3), strides=[3, 3])
    frames, _ = convolution((1, 1, 90), (32, 1, 12), strides=[9])
    transposed, _ = matmul((5, 6), (6, 9), constant=False)
    assert tiled_sum(strided, WIDE) is None and tiled_sum(frames, WIDE) is None
    assert tiled_sum(transposed, WIDE) is not None


def test_fewer_loads_and_fuller_vectors_cost_less() -> None:
    found = tiled_sum(KERNELS["product"], NARROW)
    assert found is not None
    machine = NARROW.machine
    assert found.cycles(Tile(1, "i", 4), machine) < found.cycles(Tile(1, "i", 1), machine)
    assert not found.fits(Tile(8, "i", 32), machine)
    assert math.isclose(found.cycles(Tile(1, "i", 7), machine), found.cycles(Tile(1, "i", 7, order=1), machine))


def test_tall_tiles_of_windows_cost_more_where_rows_lie_on_many_pages() -> None:
    """On small images, and with dilations, they do not."""

    def tall_by_low(size: int, **window: list[int]) -> float:
        found = tiled_sum(convolution((1, 4, size, size), (4, 1, 3, 3), group=4, **window)[0], WIDE)
        assert found is not None
        tall, low = (found.cycles(Tile(1, "y", count, order=1, skew=True), WIDE.machine) for count in (28, 14))
        return tall / low

    small = tall_by_low(28, pads=[1] * 4)
    assert tall_by_low(112, pads=[1] * 4) > 1.3 * small
    assert tall_by_low(112, pads=[2] * 4, dilations=[2, 2]) < 1.05 * small


def test_weights_that_no_register_keeps_are_loaded_for_each_row() -> None:
    found = tiled_sum(convolution((1, 4, 28, 28), (4, 1, 3, 3), pads=[1] * 4, group=4)[0], WIDE)
    assert found is not None
    image, weights = found.factors
    low, tall = (Tile(1, "y", count, order=1, skew=True) for count in (14, 28))
    assert (found.loads_of(weights, low), found.loads_of(weights, tall)) == (1, 1 + (1 - HIDDEN) * 27)
    assert found.loads_of(image, tall) < 2 * found.loads_of(image, low)


def test_a_mask_that_is_a_vector_takes_a_register() -> None:
    target = target_named("x86-64-v3")
    beside, within, ragged = (
        tiled_sum(kernel, target)
        for kernel, _ in (
            convolution((1, 3, 6, 48), (8, 3, 3, 3), pads=[1] * 4),
            convolution((1, 3, 6, 48), (8, 3, 3, 1), pads=[1, 0] * 2),
            convolution((1, 3, 6, 35), (8, 3, 3, 1), pads=[1, 0] * 2),
        )
    )
    assert beside is not None and within is not None and ragged is not None
    full = Tile(3, "c", 4)  # twelve sums, three vectors of an image and a weight
    assert [one.fits(full, target.machine) for one in (beside, within)] == [False, True]
    wide = Tile(5, "c", 2)
    assert [one.fits(wide, target.machine) for one in (within, ragged)] == [True, False]  # rows of 48 and of 35
    assert beside.fits(full, WIDE.machine)


def test_what_is_near_differs_in_one_choice_and_fits() -> None:
    kernel = KERNELS["3x3"]
    found = tiled_sum(kernel, NARROW)
    assert found is not None
    tile = first(found, NARROW)[0]
    for one in near(found, tile, NARROW):
        changed = [getattr(one, name) != getattr(tile, name) for name in Tile.__dataclass_fields__]
        assert sum(changed) == 1
        assert found.fits(one, NARROW.machine)
    best = schedules(kernel, NARROW, 0, None)[0]
    later = schedules(kernel, NARROW, 1, best)
    assert later and best not in later
    assert schedules(kernel, NARROW, 1, None) == []


def test_vectors_of_every_second_element_are_loaded_twice() -> None:
    kernel = KERNELS["3x3 in strides"]
    found = tiled_sum(kernel, NARROW)
    assert found is not None and found.apart == 2 and schedules(kernel, NARROW, 0, None)
    image, weights = found.factors
    assert found.loads_of(image, Tile(2)) == 2 * 2 * MASKED and found.loads_of(weights, Tile(2)) == 1


@pytest.mark.parametrize(("size", "tile"), [((3, 56), (1, 8)), ((5, 112), (1, 8)), ((9, 40), (3, 3))])
def test_tiles_of_small_windows_are_narrow_and_low(size: tuple[int, int], tile: tuple[int, int]) -> None:
    (window, pixels), pads = size, [size[0] // 2] * 4
    kernel = convolution((1, 40, pixels, pixels), (40, 1, window, window), pads=pads, group=40)[0]
    knobs = schedule(kernel, WIDE).knobs
    assert (knobs["vectors"], knobs["y"]) == tile
