from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.schedule.parameters import COLUMNS, PACKINGS, ContractionParameters, Packing
from graft.core.schedule.products import contraction
from graft.core.schedule.selection.select import schedule
from graft.core.tensor_ir.ir import Constant, Store
from graft.core.tensor_ir.visit import walk_statements
from graft.core.tuning.candidates import candidates
from graft.core.types import FLOAT32
from tests.core.schedule.convolutions import NARROW, WIDE, buffer, check, convolution, outputs_of


@settings(max_examples=12, deadline=None)
@given(
    channels=st.integers(1, 3),
    outputs=st.integers(1, 17),
    size=st.tuples(st.integers(3, 9), st.integers(3, 21)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.integers(1, 2),
    pad=st.integers(0, 1),
    narrow=st.booleans(),
)
def test_a_convolution_of_any_shape_is_computed(
    channels: int, outputs: int, size: tuple[int, int], kernel: tuple[int, int], stride: int, pad: int, narrow: bool
) -> None:
    case = convolution((1, channels, *size), (outputs, channels, *kernel), strides=[stride] * 2, pads=[pad] * 4)
    check(*case, NARROW if narrow else WIDE)


def test_a_pointwise_convolution_reads_its_input_in_place() -> None:
    kernel, arrays = convolution((2, 3, 5, 7), (18, 3, 1, 1), residual=True)
    check(kernel, arrays)
    function = schedule(kernel, WIDE).function
    assert "panels" not in repr(function.body)


def test_a_strided_pointwise_convolution_packs_its_input() -> None:
    check(*convolution((1, 3, 7, 9), (18, 3, 1, 1), strides=[2, 2]))


def test_a_window_with_pads_dilations_and_strides_is_computed() -> None:
    attributes = {"pads": [2, 1, 0, 3], "dilations": [2, 1], "strides": [1, 2]}
    check(*convolution((2, 2, 9, 11), (5, 2, 3, 3), residual=True, **attributes))


def test_groups_are_separate_products() -> None:
    check(*convolution((2, 6, 5, 6), (12, 2, 3, 3), group=3, pads=[1, 1, 1, 1]))


def test_one_and_three_dimensions_are_computed() -> None:
    check(*convolution((2, 3, 20), (5, 3, 3), pads=[1, 1]))
    check(*convolution((1, 2, 4, 3, 5), (5, 2, 2, 3, 3), pads=[1, 1, 1, 1, 1, 1]))


def test_weights_that_are_computed_at_run_time_are_read_in_place() -> None:
    check(*convolution((1, 2, 5, 6), (15, 2, 3, 3), pads=[1, 1, 1, 1], constant=False))


def test_many_panels_are_packed_one_by_one() -> None:
    check(*convolution((4, 1, 20, 20), (2, 1, 3, 3), pads=[1, 1, 1, 1]))


def test_an_epilogue_over_broadcast_pixels_falls_back_to_plain_loops() -> None:
    kernel, arrays = convolution((1, 2, 4, 5), (3, 2, 1, 1))
    y, out, row = kernel.stages[-2].buffer, kernel.outputs[0], buffer("row", (5,))
    last = b.compute(out, lambda i: b.add(b.load(y, *i), b.load(row, i[3])))
    changed = replace(kernel, inputs=(*kernel.inputs, row), stages=(*kernel.stages[:-1], last))
    check(changed, [*arrays, np.arange(5, dtype="float32")])


def test_what_lies_behind_the_last_pixel_is_cleared() -> None:
    # The interpreter fills scratch memory with NaN: a sum must not see it even in lanes that are not stored.
    kernel, arrays = convolution((1, 2, 5, 5), (3, 2, 3, 3), pads=[1, 1, 1, 1])
    (store,) = [
        statement
        for statement in walk_statements(schedule(kernel, WIDE).function.body)
        if isinstance(statement, Store) and statement.buffer.name == "panels" and isinstance(statement.value, Constant)
    ]
    assert store.value == Constant(0.0, FLOAT32.with_lanes(16))
    check(kernel, arrays)


@pytest.mark.parametrize("width", [3, 5, 12, 19])
@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("target", [WIDE, NARROW], ids=["wide", "narrow"])
def test_panels_of_several_rows_are_filled_by_whole_vectors(packing: Packing, width: int, target: Target) -> None:
    plain = replace(target, without=frozenset({"winograd"}))
    kernel, arrays = convolution((2, 2, 4, width), (6, 2, 3, 3), pads=[1, 1, 1, 1])
    found = schedule(kernel, plain, ContractionParameters(packing=packing, columns="pixels"))
    stores = [
        one for one in walk_statements(found.function.body) if isinstance(one, Store) and one.buffer.name == "panels"
    ]
    assert stores
    assert all(one.mask is None for one in stores)
    (result,), (expected,) = outputs_of(kernel, found, arrays)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("weights", "attributes", "strategy"),
    [
        ((32, 256, 1, 1), {"strides": [2, 2]}, "direct_nchw"),
        ((16, 30, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}, "direct_nchw"),
        ((64, 30, 3, 3), {"group": 2, "strides": [2, 2], "pads": [1, 0, 1, 0]}, "direct_convolution"),
    ],
    ids=["strided 1x1", "windows", "groups"],
)
def test_windows_of_few_pixels_have_vectors_of_channels_but_for_groups(
    weights: tuple[int, ...], attributes: dict[str, object], strategy: str
) -> None:
    channels = weights[1] * int(str(attributes.get("group", 1)))
    kernel, arrays = convolution((2, channels, 7, 5), weights, residual=True, **attributes)
    check(kernel, arrays)
    assert schedule(kernel, WIDE).strategy == strategy


def test_columns_that_tuning_asks_for_are_taken_and_both_are_measured() -> None:
    many, arrays = convolution((1, 4, 12, 12), (16, 4, 3, 3), strides=[2, 2])  # 25 pixels: 7 of 32 lanes are empty
    few, _ = convolution((1, 4, 12, 16), (16, 4, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1])
    assert [schedule(one, WIDE).strategy for one in (many, few)] == ["direct_nchw", "direct_convolution"]
    for kernel in (many, few):
        found = [one for one in candidates(kernel, WIDE, 0, None) if isinstance(one, ContractionParameters)]
        assert {*COLUMNS} <= {one.columns for one in found}
    for columns in COLUMNS:
        wanted = ContractionParameters(columns=columns)
        taken = schedule(many, WIDE, wanted)
        assert taken.strategy == {"pixels": "direct_convolution", "channels": "direct_nchw"}[columns]
        (result,), (expected,) = outputs_of(many, taken, arrays)
        np.testing.assert_allclose(result, expected, atol=1e-4)


def test_few_pixels_by_computed_weights_are_products_of_patches() -> None:
    attributes = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
    check(*convolution((1, 30, 7, 5), (16, 30, 3, 3), constant=False, **attributes))


@pytest.mark.parametrize("window", [1, 3])
def test_weights_of_the_next_tile_are_fetched_ahead(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    kernel, arrays = convolution((1, 16, 6, 8), (40, 16, window, window), pads=[window // 2] * 4)
    direct = replace(WIDE, without=frozenset({"winograd"}))
    wanted = ContractionParameters(columns="pixels")
    assert "prefetch" not in str(schedule(kernel, direct, wanted).function)
    monkeypatch.setattr(contraction, "AHEAD_SHARE", 0)
    found = schedule(kernel, direct, wanted)
    assert "call prefetch(w_packed[" in str(found.function)
    (result,), (expected,) = outputs_of(kernel, found, arrays)
    np.testing.assert_allclose(result, expected, atol=1e-4)
