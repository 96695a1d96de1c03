"""Convolutions with channels last: one function for images of many sizes, or for those of one, on several machines."""

from __future__ import annotations

import pytest

from graft.core.machine.rows import ROWS
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.schedule.loops.one_image import one_image
from graft.core.schedule.selection.select import schedule
from graft.core.tensor_ir.ir import For
from graft.core.tensor_ir.verifying.anchor_rules import structure_fault
from graft.core.tensor_ir.visit import walk_statements
from graft.core.tuning.candidates import candidates
from tests.core.schedule.strategies.convolutions.varying_images import (
    MACHINES,
    Kind,
    computed,
    kernel_of,
    with_channels_last,
)

SIZES = [(1, 5, 7), (2, 3, 1), (0, 4, 4)]
KINDS: dict[str, Kind] = {
    "pointwise": ((35, 6, 1, 1), {}),
    "pointwise of every second pixel": ((16, 5, 1, 1), {"strides": [2, 2]}),
    "windows that stay inside": ((20, 5, 3, 2), {}),
    "windows that leave": ((33, 5, 3, 3), {"pads": [1, 1, 1, 1]}),
    "strides and dilations": ((9, 5, 3, 3), {"pads": [2, 1, 2, 3], "strides": [2, 1], "dilations": [2, 1]}),
    "groups": ((12, 2, 3, 3), {"pads": [1, 1, 1, 1], "group": 3}),
}


@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", KINDS)
def test_one_function_takes_images_of_every_size(kind: str, machine: str, layout: str) -> None:
    kernel, constants = kernel_of(*KINDS[kind])
    kernel = with_channels_last(kernel) if layout == "last" else kernel
    assert structure_fault(kernel.stages[0]) is None
    few_come_out = kind == "groups" and layout == "first" and machine in ("x86-64-v3", "x86-64-v4")
    in_place = "pointwise_nchw" if kind == "pointwise" and layout == "first" else "direct_nhwc"
    strategy = "varying_register_tiles" if few_come_out else in_place
    assert computed(kernel, constants, KINDS[kind], machine, SIZES) == strategy


@pytest.mark.parametrize("machine", ["x86-64-v3", "armv8-a"])
@pytest.mark.parametrize("kind", ["windows that leave", "strides and dilations", "pointwise of every second pixel"])
def test_images_of_one_size_are_summed_where_they_lie(kind: str, machine: str) -> None:
    kernel, constants = kernel_of(*KINDS[kind], size=(9, 7))
    kernel = with_channels_last(kernel)
    assert schedule(kernel, Target(ROWS[machine])).knobs["image"] == "direct_nhwc"
    computed(kernel, constants, KINDS[kind], machine, [(2, 9, 7), (0, 9, 7)])


@pytest.mark.parametrize(("threads", "blocks"), [(1, []), (2, [4])])
def test_threads_share_the_pixels_of_a_small_image(threads: int, blocks: list[int]) -> None:
    kind = ((64, 64, 4, 4), {"strides": [2, 2]})
    kernel, constants = kernel_of(*kind, size=(18, 18))
    target = Target(ROWS["x86-64-v3"], threads)
    (image,) = [one for one in [one_image(with_channels_last(kernel))] if one is not None]
    scheduled = schedule(image.kernel, target)
    assert scheduled.strategy == "direct_nhwc"
    loops = [one for one in walk_statements(scheduled.function.body) if isinstance(one, For)]
    found = [one.extent for one in loops if one.variable.name == "block"]
    assert found == [b.index(count) for count in blocks]  # a loop of one iteration is none
    computed(with_channels_last(kernel), constants, kind, target, [(1, 18, 18)])


def test_candidates_of_tuning_give_the_same_image() -> None:
    kind = KINDS["windows that leave"]
    kernel, constants = kernel_of(*kind)
    found = candidates(kernel, Target(ROWS["x86-64-v3"]), 0, None)
    assert len(found) > 2
    for one in found[::4]:
        computed(kernel, constants, kind, "x86-64-v3", SIZES[:1], parameters=one)


@pytest.mark.parametrize(("threads", "shared"), [(1, "block"), (2, "tile")])
def test_threads_share_tiles_of_open_images_whose_weights_stay_near(threads: int, shared: str) -> None:
    kernel, _ = kernel_of((40, 64, 2, 2), {})
    scheduled = schedule(with_channels_last(kernel), Target(ROWS["x86-64-v3"], threads))
    assert scheduled.strategy == "direct_nhwc"
    loops = [one for one in walk_statements(scheduled.function.body) if isinstance(one, For)]
    assert shared in [one.variable.name for one in loops if one.kind == "parallel"]
