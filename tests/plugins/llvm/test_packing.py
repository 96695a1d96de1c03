"""Constants of kernels that share a function are packed as the schedule would have packed them."""

import numpy as np
import pytest

from graft.core.operators.build import compute, index, load, multiply
from graft.core.operators.table import Trait
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.tensor_ir.ir import Block, Buffer, Function
from graft.plugins.llvm.packing import SharedSchedule


def kernel_of(contents: np.ndarray) -> Kernel:
    x, w = Buffer("x", "float32", (index(6),)), Buffer("w", "float32", (index(6),))
    y = Buffer("y", "float32", (index(6),))
    stages = (compute(y, lambda i: multiply(load(x, *i), load(w, *i))),)
    return Kernel("k", (x, w), (y,), stages, Trait.ELEMENTWISE, constants={w: contents})


class Packer:
    """A schedule that turns its constant round, pads it, and scales it."""

    def __init__(self, scale: float) -> None:
        self.scale, self.calls = np.float32(scale), 0

    def __call__(self, kernel: Kernel) -> Scheduled:
        self.calls += 1
        weights = kernel.inputs[1]
        packed = np.concatenate([kernel.constants[weights][::-1], np.zeros(2, np.float32)]) * self.scale
        function = Function(kernel.name, (*kernel.inputs, *kernel.outputs), 1, Block(()))
        return Scheduled(function, {weights: packed})


@pytest.mark.parametrize(("scale", "calls"), [(1.0, 2), (2.0, 7)])
def test_constants_are_packed_as_the_schedule_does(scale: float, calls: int) -> None:
    generator, pack = np.random.default_rng(0), Packer(scale)
    first = kernel_of(generator.standard_normal(6).astype(np.float32))
    shared = SharedSchedule(first, pack(first))
    for _ in range(5):
        other = kernel_of(generator.standard_normal(6).astype(np.float32))
        found = shared.of(other, pack)
        assert found.function is shared.scheduled.function
        np.testing.assert_array_equal(found.packed[other.inputs[1]], Packer(scale)(other).packed[other.inputs[1]])
    assert pack.calls == calls


def test_too_many_elements_to_number_are_scheduled_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graft.plugins.llvm.packing.EXACT", {np.dtype(np.float32): 6})
    pack = Packer(1.0)
    first = kernel_of(np.arange(6, dtype=np.float32))
    shared = SharedSchedule(first, pack(first))
    other = kernel_of(np.ones(6, np.float32))
    np.testing.assert_array_equal(shared.of(other, pack).packed[other.inputs[1]], [1, 1, 1, 1, 1, 1, 0, 0])
    assert pack.calls == 2
