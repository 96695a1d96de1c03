"""Every tile of rows, reductions and transpositions is legal by its steps, and gives what the stages give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graft.core.machine.machine import Level
from graft.core.machine.target import Target, target_named
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.parameters import ScheduleParameters
from graft.core.schedule.primitives.schedule_text import print_schedule
from graft.core.schedule.selection.select import schedule
from graft.core.schedule.templates.space import FIRST, schedules
from graft.core.schedule.templates.tiled_nests import NestTile, TiledNests, tiled_nests
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from tests.core.schedule.strategies.nests.test_fused_rows import SOFTMAX, kernel_of

WIDE, NARROW = target_named("x86-64-v4"), target_named("x86-64-v3")
DEVICE = replace(NARROW, machine=replace(NARROW.machine, levels=(Level("block"), Level("thread", 128))))
TEXTS = {
    "Softmax": (Trait.ROW_WISE, SOFTMAX),
    "Softmax of a middle axis": (Trait.ROW_WISE, """
        input x: float32[2, 5, 37]
        stage top: float32[2, 37] in scratch at (i, l) = reduce max over k < 5 from float32(-inf): x[i, k, l]
        stage total: float32[2, 37] in scratch at (i, l)
          = reduce add over k < 5 from float32(0.0): exp(x[i, k, l] - top[i, l])
        stage y: float32[2, 5, 37] at (i, j, l) = exp(x[i, j, l] - top[i, l]) / total[i, l]
        """),
    "a mean of squares": (Trait.ROW_WISE, """
        input x: float32[3, 2, 50]
        input a: float32[50]
        stage m: float32[3, 2] in scratch at (i, j) = reduce add over k < 50 from float32(0.0): x[i, j, k] * x[i, j, k]
          then t: float32 = float32(1.0) / sqrt(t / float32(50.0))
        stage y: float32[3, 2, 50] at (i, j, l) = x[i, j, l] * m[i, j] * a[l]
        """),
    "columns": (Trait.REDUCTION, """
        input x: float32[3, 7, 45]
        stage y: float32[3, 45] at (i, j) = reduce add over k < 7 from float32(0.0): abs(x[i, k, j])
        """),
    "first and last axes": (Trait.REDUCTION, """
        input x: float32[4, 3, 70]
        stage y: float32[3] at (i) = reduce max over k < 4, l < 70 from float32(-inf): x[k, i, l]
        """),
    "transposed": (Trait.INJECTIVE, """
        input x: float32[3, 21, 35]
        input a: float32[35]
        stage y: float32[35, 3, 21] at (i, j, k) = x[j, k, i] * a[i]
        """),
    "broadcasts": (Trait.ELEMENTWISE, """
        input x: float32[4, 1, 50]
        input a: float32[1, 6, 50]
        stage y: float32[4, 6, 50] at (i, j, k) = tanh(x[i, 0, k] + a[0, j, k])
        """),
    "rows of few": (Trait.ROW_WISE, SOFTMAX.replace("40", "5")),
}  # fmt: skip
KERNELS = {name: kernel_of(text, anchor) for name, (anchor, text) in TEXTS.items()}


def found_of(name: str, target: Target = WIDE) -> TiledNests:
    """Return a kernel as nests."""
    found = tiled_nests(KERNELS[name], target)
    assert found is not None, name
    return found


def codes(found: TiledNests) -> list[ScheduleParameters]:
    """Return the different schedules of all tiles."""
    return list(dict.fromkeys(ScheduleParameters(print_schedule([*found.steps(one)])) for one in found.points()))


def check(kernel: Kernel, steps: ScheduleParameters, target: Target) -> None:
    """Check that a schedule computes what the stages do."""
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(b.dims(one)).astype(np.float32) for one in kernel.inputs]
    expected = run_stages(kernel.stages, dict(zip(kernel.inputs, arrays, strict=True)))[kernel.outputs[0]]
    (result,) = run_function(schedule(kernel, target, steps).function, arrays)
    np.testing.assert_allclose(result.reshape(expected.shape), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", [WIDE, NARROW], ids=["masks", "no masks"])
@pytest.mark.parametrize("name", KERNELS)
def test_tiles_compute_what_the_stages_do(name: str, target: Target) -> None:
    every = codes(found_of(name, target))
    chosen = np.random.default_rng(len(name)).choice(len(every), min(3, len(every)), replace=False)
    for number in chosen:
        check(KERNELS[name], every[number], target)


@pytest.mark.conformance
@pytest.mark.parametrize("target", [WIDE, NARROW], ids=["masks", "no masks"])
@pytest.mark.parametrize("name", KERNELS)
def test_every_tile_computes_what_the_stages_do(name: str, target: Target) -> None:
    for one in codes(found_of(name, target)):
        check(KERNELS[name], one, target)


def test_rows_are_computed_one_after_the_other_by_threads() -> None:
    text = print_schedule([*found_of("a mean of squares").steps(NestTile(16))])
    assert text.startswith("compute_at m at j.2\ncompute_at m.total at j.2\n")
    assert text.endswith("fuse i.2 j.2 -> row\nparallel row\n")


def test_squares_are_exchanged_where_one_axis_is_read_and_another_is_written() -> None:
    text = print_schedule([*found_of("transposed").steps(NestTile(16, square=8))])
    assert text.splitlines()[-3:] == ["reorder j i.tile k.tile k i", "transpose k i", "parallel j"]
    tiles = {one.square for one in found_of("transposed").points()}
    assert tiles == {16, 8, 4, 0} and {one.square for one in found_of("Softmax").points()} == {0}


def test_whole_vectors_come_first_and_what_is_near_the_best_behind() -> None:
    kernel = KERNELS["Softmax"]
    wanted = schedules(kernel, WIDE, 0, None)
    assert len(wanted) == FIRST and "split k 32 -> " in wanted[0].steps
    near = schedules(kernel, WIDE, 1, wanted[0])
    assert wanted[0] not in near and 0 < len(near) <= 6
    for other in (None, ScheduleParameters("parallel i\n")):
        assert schedules(kernel, WIDE, 1, other) == []


def test_other_kernels_are_no_nests() -> None:
    assert tiled_nests(replace(KERNELS["transposed"], anchor=Trait.SCATTER), WIDE) is None
    assert tiled_nests(KERNELS["transposed"], DEVICE) is None
    open_text = TEXTS["broadcasts"][1].replace("[4", "[n").replace("float32[1, 6", "float32[1, n")
    assert tiled_nests(kernel_of(open_text, Trait.ELEMENTWISE), WIDE) is None
