"""Constants of kernels that share a function are packed as the schedule would have packed them."""

from collections.abc import Callable

import numpy as np
import pytest

from graft.core.operators.definition.build import compute, index, load, multiply
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.tensor_ir.ir import Block, Buffer, Function
from graft.plugins.codegen.constant_packing import Shared, moved, scheduled_and_places, strided

GENERATOR = np.random.default_rng(0)


def kernel_of(contents: np.ndarray) -> Kernel:
    x, w = Buffer("x", "float32", (index(6),)), Buffer("w", "float32", (index(6),))
    y = Buffer("y", "float32", (index(6),))
    stages = (compute(y, lambda i: multiply(load(x, *i), load(w, *i))),)
    return Kernel("k", (x, w), (y,), stages, Trait.ELEMENTWISE, constants={w: contents})


class Packer:
    """A schedule that packs its constant in some way; counts its calls."""

    def __init__(self, pack: Callable[[np.ndarray], np.ndarray]) -> None:
        self.pack, self.calls = pack, 0

    def __call__(self, kernel: Kernel) -> Scheduled:
        self.calls += 1
        weights = kernel.inputs[1]
        function = Function(kernel.name, (*kernel.inputs, *kernel.outputs), 1, Block(()))
        return Scheduled(function, {weights: self.pack(kernel.constants[weights])})


def reverse_and_pad(array: np.ndarray) -> np.ndarray:
    return np.concatenate([array[::-1], np.zeros(2, array.dtype)])


def check(packer: Packer, calls: int) -> None:
    """Pack the constants of six kernels, and compare with what the schedule does to each."""
    _, places = scheduled_and_places(kernel_of(GENERATOR.standard_normal(6, np.float32)), packer)
    shared = Shared("k", places)
    for _ in range(5):
        other = kernel_of(GENERATOR.standard_normal(6, np.float32))
        found = shared.packed(other, packer)
        np.testing.assert_array_equal(found[other.inputs[1]], packer.pack(other.constants[other.inputs[1]]))
    assert packer.calls == calls


def test_a_packing_that_moves_elements_is_scheduled_once() -> None:
    check(Packer(reverse_and_pad), calls=1)


@pytest.mark.parametrize(
    "pack",
    [
        lambda array: array * np.float32(2),
        lambda array: array + np.float32(1),
        lambda array: array - np.float32(1),
        np.abs,
        lambda array: np.maximum(array, 0),
        lambda array: array[:-1] + array[1:],
        lambda array: array[:3],
        lambda array: array.astype(np.float16),
    ],
)
def test_a_packing_that_computes_is_scheduled_for_each_kernel(pack: Callable[[np.ndarray], np.ndarray]) -> None:
    check(Packer(pack), calls=7)


def test_too_many_elements_to_number_are_scheduled_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graft.plugins.codegen.constant_packing.EXACT", {np.dtype(np.float32): 6})
    check(Packer(reverse_and_pad), calls=7)


NUMBERS = np.arange(1, 25, dtype=np.int32).reshape(4, 6)


@pytest.mark.parametrize(
    "places",
    [
        NUMBERS,
        NUMBERS.T,
        NUMBERS[:, ::-1],
        NUMBERS[::-1],
        NUMBERS.reshape(4, 3, 2).transpose(1, 0, 2),
        NUMBERS.reshape(2, 2, 3, 2).transpose(2, 0, 3, 1),
        NUMBERS[:, 2],
        NUMBERS[3, 5],
        np.repeat(NUMBERS, 2),
    ],
)
def test_a_regular_grid_is_copied_as_a_look_up_would(places: np.ndarray) -> None:
    contents = GENERATOR.standard_normal((4, 6), np.float32)
    grid = strided(places)
    assert grid is not None
    np.testing.assert_array_equal(grid.copy(contents), moved(contents, places))


def test_padding_and_uneven_panels_are_no_grid() -> None:
    assert strided(np.pad(NUMBERS, 1)) is None
    assert strided(np.concatenate([NUMBERS[:, :4].reshape(-1), NUMBERS[:, 4:].reshape(-1)])) is None
    assert strided(np.zeros(0, np.int32)) is None


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0), (0, 2, 1)])
@pytest.mark.parametrize("pack", ["panels", "reversed", "rows"])
def test_a_view_is_packed_as_its_copy_is(order: tuple[int, ...], pack: str) -> None:
    packings: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "panels": lambda array: np.moveaxis(array.reshape(*array.shape[:2], -1, 2), -2, 0),
        "reversed": lambda array: array[::-1, :, ::-1],
        "rows": lambda array: array.reshape(-1, 8).T,
    }
    view = GENERATOR.standard_normal((4, 6, 8), np.float32).transpose(order)
    places = packings[pack](np.arange(1, view.size + 1).reshape(view.shape))
    found = strided(np.ascontiguousarray(places))
    assert found is not None
    np.testing.assert_array_equal(found.copy(view), packings[pack](np.ascontiguousarray(view)))
    assert found.copy(view).ctypes.data % 64 == 0
