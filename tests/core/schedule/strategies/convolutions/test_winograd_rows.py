"""Winograd's algorithm on images whose channels come first: any extents, known or not, in runs and squares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.machine.target import Target
from graft.core.operators.images import convolution as lowering
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.parameters import COLUMNS, Columns, WinogradParameters
from graft.core.schedule.products.epilogue import fused_stages
from graft.core.schedule.selection.select import schedule
from graft.core.schedule.strategies.convolutions.winograd import schedule_winograd
from graft.core.tensor_ir.anchors import Window
from graft.core.tensor_ir.ir import Binary, For, Stage
from graft.core.tensor_ir.visit import walk_statements
from tests.core.schedule.convolutions import NARROW, WIDE, convolution, outputs_of
from tests.core.schedule.strategies.convolutions.varying_images import Kind, computed, kernel_of, with_channels_last


def scheduled(
    kernel: Kernel, target: Target, pieces: int, block: int, columns: Columns | None = None
) -> Scheduled | None:
    """The kernel with pieces and blocks of a given size, and vectors of channels or of pieces."""
    stages = fused_stages(kernel)
    assert stages is not None
    return schedule_winograd(kernel, stages, target, WinogradParameters(pieces, block, columns=columns))


@settings(max_examples=34, deadline=None)
@given(
    batch=st.integers(1, 2),
    channels=st.integers(2, 4),
    outputs=st.integers(1, 9),
    size=st.tuples(st.integers(3, 13), st.integers(3, 22)),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    shape=st.sampled_from([(2, 1), (4, 1), (2, 2)]),
    block=st.integers(1, 30),
    columns=st.sampled_from(COLUMNS),
    narrow=st.booleans(),
    residual=st.booleans(),
)
def test_any_pieces_and_blocks_give_the_convolution(
    batch: int, channels: int, outputs: int, size: tuple[int, int], pads: tuple[int, ...], shape: tuple[int, int],
    block: int, columns: Columns, narrow: bool, residual: bool,
) -> None:  # fmt: skip
    source, weights = (batch, channels, *size), (outputs, channels, 3, 3)
    pieces, stride = shape
    kernel, arrays = convolution(source, weights, pads=list(pads), strides=[stride] * 2, residual=residual)
    found = scheduled(kernel, NARROW if narrow else WIDE, pieces, block, columns)
    assert found is not None and found.knobs["columns"] == columns
    (result,), (expected,) = outputs_of(kernel, found, arrays)
    np.testing.assert_allclose(result, expected, atol=2e-4)


@pytest.mark.parametrize("pads", [[1] * 4, [3, 0, 0, 3], [0, 5, 2, 7]], ids=str)
def test_a_wide_row_has_several_runs_and_zeros_on_both_sides(pads: list[int]) -> None:
    kernel, arrays = convolution((1, 2, 6, 90), (3, 2, 3, 3), pads=pads)
    found = scheduled(kernel, WIDE, 4, 50)
    assert found is not None
    (result,), (expected,) = outputs_of(kernel, found, arrays)
    np.testing.assert_allclose(result, expected, atol=2e-4)


OPEN: Kind = ((19, 13, 3, 3), {"pads": [1, 1, 1, 1]})
STRIDED: Kind = ((67, 66, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]})


@pytest.mark.parametrize("machine", ["x86-64-v3", "x86-64-v4", "armv8-a"])
@pytest.mark.parametrize("kind", [OPEN, STRIDED], ids=["1", "2"])
def test_images_of_any_extent_are_transposed_on_their_way(machine: str, kind: Kind) -> None:
    kernel, constants = kernel_of(*kind)
    sizes = [(2, 5, 9), (1, 2, 1), (0, 8, 8)]
    assert computed(kernel, constants, kind, machine, sizes, tolerance=2e-4) == "winograd"


def test_an_image_may_come_with_channels_first_and_leave_with_channels_last() -> None:
    kernel, constants = kernel_of(*OPEN)
    mixed = with_channels_last(kernel, image=False)
    assert computed(mixed, constants, OPEN, "x86-64-v3", [(1, 5, 6)], tolerance=2e-4) == "winograd"


@pytest.mark.parametrize(("threads", "kind"), [(1, "serial"), (2, "parallel")])
def test_threads_share_the_products_of_few_pieces_whose_weights_no_cache_has(threads: int, kind: str) -> None:
    memories = tuple(replace(one, bytes=min(one.bytes, 1 << 19)) for one in WIDE.machine.memories)
    target = replace(WIDE, machine=replace(WIDE.machine, memories=memories), threads=threads)
    kernel, arrays = convolution((1, 64, 12, 12), (64, 64, 3, 3), pads=[1] * 4)
    found = schedule(kernel, target)
    assert found.strategy == "winograd"
    loops = [one for one in walk_statements(found.function.body) if isinstance(one, For)]
    assert next(one.kind for one in loops if one.variable.name == "product") == kind
    (result,), (expected,) = outputs_of(kernel, found, arrays)
    np.testing.assert_allclose(result, expected, atol=2e-2)


@pytest.mark.parametrize(
    "attributes", [{"strides": [1, 2]}, {"dilations": [2, 2]}, {"group": 2}], ids=["strides", "dilations", "groups"]
)
def test_other_windows_are_not_for_winograd(attributes: dict[str, object]) -> None:
    inputs = 64 // int(str(attributes.get("group", 1)))
    kernel, _ = convolution((1, 64, 12, 12), (64, inputs, 3, 3), **attributes)
    plain, _ = convolution((1, 64, 12, 12), (64, 64, 3, 3))
    assert schedule(plain, WIDE).strategy == "winograd" != schedule(kernel, WIDE).strategy


def test_weights_that_are_computed_at_run_time_are_not_transformed() -> None:
    kernel, _ = convolution((1, 4, 12, 12), (4, 4, 3, 3), constant=False)
    assert scheduled(kernel, WIDE, 2, 8) is None


def test_the_order_of_the_factors_in_the_lowering_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered = lowering.sliding_product

    def transposed(*arguments: object) -> Stage:
        stage = lowered(*arguments)  # type: ignore[arg-type]
        value, window = stage.value, stage.structure
        assert isinstance(value, Binary) and isinstance(window, Window)
        swapped = Binary("mul", value.right, value.left)
        return replace(stage, value=swapped, structure=replace(window, image="right"))

    monkeypatch.setattr(lowering, "sliding_product", transposed)
    kernel, arrays = convolution((1, 16, 12, 12), (16, 16, 3, 3), pads=[1] * 4)
    result = scheduled(kernel, WIDE, 4, 12)
    assert result is not None
    got, expected = outputs_of(kernel, result, arrays)
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-3, atol=1e-3)
