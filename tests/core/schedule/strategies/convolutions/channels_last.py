"""Convolution kernels whose images have channels last, and the check of what they compute in bfloat16."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from graft.core.machine.target import Target, target_named
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.loops.inline import relaid
from graft.core.schedule.loops.narrowing import reading, storing
from graft.core.schedule.parameters import ContractionParameters
from graft.core.schedule.selection.select import schedule
from graft.runtime.dtypes import numpy_dtype
from tests.core.schedule.convolutions import outputs_of

WIDE = replace(target_named("x86-64-v4+avx512bf16"), precision="bf16")
SHORT = replace(target_named("x86-64-v3"), precision="bf16")
DIRECT = replace(WIDE, without=frozenset({"winograd"}))
LAST = (0, 2, 3, 1)
SAME = {"pads": [1, 1, 1, 1]}


def with_channels_last(kernel: Kernel, arrays: list[np.ndarray], apart: str = "w") -> tuple[Kernel, list[np.ndarray]]:
    """The kernel with its images in bfloat16, channels last, but for the inputs named in ``apart``."""
    every = (*kernel.inputs, *(stage.buffer for stage in kernel.stages))
    images = [buffer for buffer in every if buffer.name not in apart]
    moved = {
        buffer: replace(buffer, shape=tuple(buffer.shape[axis] for axis in LAST))
        for buffer in dict.fromkeys(images)
        if len(buffer.shape) == 4
    }
    narrow = {new: replace(new, dtype="bfloat16") for new in moved.values()}
    given = {moved[buffer]: narrow[moved[buffer]] for buffer in kernel.inputs if buffer in moved}
    stages = [reading(relaid(stage, moved, LAST), given) for stage in kernel.stages]
    (out,) = (moved[buffer] for buffer in kernel.outputs)
    changed = replace(
        kernel,
        inputs=tuple(given.get(moved.get(buffer, buffer), buffer) for buffer in kernel.inputs),
        outputs=(narrow[out],),
        stages=tuple(storing(stages, {out: narrow[out]})),
    )
    bfloat16 = numpy_dtype("bfloat16")
    pairs = zip(kernel.inputs, arrays, strict=False)
    return changed, [array.transpose(LAST).astype(bfloat16) if item in moved else array for item, array in pairs]


def check(
    case: tuple[Kernel, list[np.ndarray]],
    target: Target,
    parameters: ContractionParameters | None = None,
    apart: str = "w",
) -> Scheduled:
    """The scheduled function computes what the stages say."""
    kernel, arrays = with_channels_last(*case, apart)
    scheduled: Scheduled = schedule(kernel, target, parameters)
    for output, expected in zip(*outputs_of(kernel, scheduled, arrays), strict=True):
        np.testing.assert_array_equal(output, expected)
    return scheduled


extent = st.integers(1, 9)
