import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.images.windows import windows_of
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.products.epilogue import fused_stages
from graft.core.schedule.strategies.convolutions.winograd_cost import choose_plan, plan_of
from graft.core.schedule.strategies.convolutions.winograd_nchw import UNROLL, schedule_winograd
from graft.core.tensor_ir.anchors import Windows
from tests.core.schedule.convolutions import NARROW, WIDE, convolution, outputs_of


def scheduled(kernel: Kernel, target: Target, pieces: int, rows: int) -> Scheduled | None:
    """The kernel with pieces and blocks of a given size."""
    assert kernel.node is not None
    stages = fused_stages(kernel)
    assert stages is not None
    source, weights = (b.dims(item) for item in kernel.inputs[:2])
    windows = windows_of(kernel.node, source[2:], weights[2:], b.dims(kernel.outputs[0])[2:])
    return schedule_winograd(kernel, stages, target, plan_of(pieces, rows, weights[0], windows, target))


@settings(max_examples=14, deadline=None)
@given(
    batch=st.integers(1, 2),
    channels=st.integers(2, 4),
    outputs=st.integers(1, 9),
    size=st.tuples(st.integers(3, 13), st.integers(3, 22)),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    shape=st.sampled_from([(2, 1), (4, 1), (2, 2)]),
    rows=st.integers(1, 4),
    narrow=st.booleans(),
    residual=st.booleans(),
)
def test_any_pieces_and_blocks_give_the_convolution(
    batch: int, channels: int, outputs: int, size: tuple[int, int], pads: tuple[int, ...], shape: tuple[int, int],
    rows: int, narrow: bool, residual: bool,
) -> None:  # fmt: skip
    source, weights = (batch, channels, *size), (outputs, channels, 3, 3)
    pieces, stride = shape
    kernel, arrays = convolution(source, weights, pads=list(pads), strides=[stride] * 2, residual=residual)
    found = scheduled(kernel, NARROW if narrow else WIDE, pieces, rows)
    assert found is not None
    (result,), (expected,) = outputs_of(kernel, found, arrays)
    np.testing.assert_allclose(result, expected, atol=2e-4)


def test_a_wide_row_is_transformed_in_a_loop() -> None:
    kernel, arrays = convolution((1, 2, 6, 90), (3, 2, 3, 3), pads=[1, 1, 1, 1])
    found = scheduled(kernel, WIDE, 4, 1)
    assert found is not None
    (result,), (expected,) = outputs_of(kernel, found, arrays)
    np.testing.assert_allclose(result, expected, atol=2e-4)


def test_all_weights_of_the_next_tile_are_fetched_ahead() -> None:
    kernel, _ = convolution((1, 16, 12, 12), (20, 16, 3, 3), pads=[1, 1, 1, 1])
    found = scheduled(kernel, WIDE, 4, 3)
    assert found is not None
    lines = re.findall(r"call prefetch\(transformed\[([^\]]*)\]", str(found.function))
    assert len(lines) == 20 * UNROLL // 16, "a step of a tile of 20 channels fetches 20 elements for each term"


@pytest.mark.parametrize(
    "attributes", [{"strides": [1, 2]}, {"dilations": [2, 2]}, {"group": 2}], ids=["strides", "dilations", "groups"]
)
def test_other_windows_are_not_for_winograd(attributes: dict[str, object]) -> None:
    kernel, _ = convolution((1, 4, 12, 12), (4, 4 // int(str(attributes.get("group", 1))), 3, 3), **attributes)
    assert scheduled(kernel, WIDE, 2, 1) is None


def test_weights_that_are_computed_at_run_time_are_not_transformed() -> None:
    kernel, _ = convolution((1, 4, 12, 12), (4, 4, 3, 3), constant=False)
    assert scheduled(kernel, WIDE, 2, 1) is None


@pytest.mark.parametrize(("threads", "blocks"), [(1, 7), (2, 1)])
def test_several_threads_meet_less_often(threads: int, blocks: int) -> None:
    windows = Windows((56, 56), (3, 3), (28, 28), (2, 2), (1, 1), (1, 1), (1, 1))
    plan = choose_plan(128, (1, 128, 56, 56), windows, replace(WIDE, threads=threads))
    assert plan is not None and plan.blocks == blocks
