"""Tiles of recurrent layers: each step of their schedules is legal, and they compute what the stages say."""

from __future__ import annotations

import random

import numpy as np
import pytest

from graft.core.machine.target import target_named
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.parameters import ScheduleParameters
from graft.core.schedule.selection.select import schedule
from graft.core.schedule.templates.recurrent_nests import recurrent_nests
from graft.core.schedule.templates.space import schedules, texts_of
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from graft.core.tensor_ir.verifying.verifier import verify
from tests.core.schedule.strategies.sequential.test_recurrent_layers import array, kernel_of, two_layers

KERNELS = {
    "whole vectors": kernel_of(4, 16, constant=True),
    "a vector in part": kernel_of(3, 13, constant=True),
    "reverse, weights at run time": kernel_of(3, 24, reverse=True),
    "two directions": two_layers(8),
    "one step": kernel_of(1, 8, constant=True),
}


@pytest.mark.parametrize("machine", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_tiles_compute_what_the_stages_say(kernel: Kernel, machine: str) -> None:
    target = target_named(machine)
    found = recurrent_nests(kernel, target)
    assert found is not None
    given = {buffer: array(buffer) for buffer in kernel.inputs}
    expected = run_stages(kernel.stages, given)
    for text in random.Random(1).sample(every := texts_of(found), min(3, len(every))):
        scheduled = schedule(kernel, target, text)
        verify(scheduled.function, target.machine)
        results = run_function(scheduled.function, [scheduled.packed.get(one, given[one]) for one in given])
        for buffer, result in zip(kernel.outputs, results, strict=True):
            np.testing.assert_allclose(result, expected[buffer], rtol=1e-4, atol=1e-5)


def test_rows_and_units_stand_side_by_side_and_weights_in_panels() -> None:
    (text, *_) = schedules(KERNELS["whole vectors"], target_named("x86-64-v4"), 0, None)
    assert isinstance(text, ScheduleParameters)
    steps = text.steps.splitlines()
    assert steps[:3] == ["pack @1 1 16 -> @1_packed", "pack @2 1 16 -> @2_packed", "pack @3 1 16 -> @3_packed"]
    assert {"jam i.2", "vectorize j.2", "split k 2 -> k k.part"} & set(steps)


def test_what_is_near_a_tile_differs_from_it_in_one_knob() -> None:
    kernel, target = KERNELS["whole vectors"], target_named("x86-64-v4")
    best, *_ = schedules(kernel, target, 0, None)
    near = schedules(kernel, target, 1, best)
    assert near and best not in near


def test_a_machine_without_vectors_has_none() -> None:
    assert recurrent_nests(KERNELS["one step"], target_named("riscv64")) is None
