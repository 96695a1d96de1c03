"""When factors of a product are copied before use: by how their rows lie in the caches, and how often they are read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.parameters import ContractionParameters
from graft.core.schedule.selection.select import schedule
from tests.core.schedule.convolutions import WIDE, buffer, convolution, outputs_of

PIXELS = ContractionParameters(columns="pixels")


def transposed(batch: int, terms: int, rows: int, columns: int) -> tuple[Kernel, list[np.ndarray]]:
    """A product whose left factor has the terms of a row apart from each other, by constants."""
    left, right = buffer("x", (batch, terms, rows)), buffer("w", (terms, columns))
    out = buffer("out", (batch, rows, columns))
    sums = b.contract(out, [terms], lambda i, r: b.multiply(b.load(left, i[0], *r, i[1]), b.load(right, *r, i[2])))
    random = np.random.default_rng(rows)
    arrays = [random.integers(-3, 4, b.dims(one)).astype("float32") for one in (left, right)]
    return Kernel("kernel", (left, right), (out,), (sums,), Trait.CONTRACTION, None, 0, {right: arrays[1]}), arrays


@pytest.mark.parametrize(("rows", "columns", "threads"), [(21, 192, 1), (45, 400, 0), (20, 384, 2)])
def test_rows_whose_terms_lie_apart_are_copied_in_columns_as_high_as_a_tile(
    rows: int, columns: int, threads: int
) -> None:
    kernel, arrays = transposed(2, 5, rows, columns)
    found = schedule(kernel, replace(WIDE, threads=threads))
    assert "allocate columns" in str(found.function)
    for output, expected in zip(*outputs_of(kernel, found, arrays), strict=True):
        np.testing.assert_array_equal(output, expected)


def test_rows_are_read_where_they_lie_for_few_panels_and_on_machines_without_caches() -> None:
    assert "allocate columns" not in str(schedule(transposed(1, 21, 49, 16)[0], WIDE).function)
    bare = replace(WIDE, machine=replace(WIDE.machine, memories=WIDE.machine.memories[-1:]))
    for target, is_copied in ((WIDE, True), (bare, False)):
        assert ("allocate columns" in str(schedule(transposed(1, 21, 49, 400)[0], target).function)) is is_copied


@pytest.mark.parametrize(
    ("channels", "size", "factor"),
    [
        (1200, (7, 8), "packed at once"),  # as many lines as the cache has, none of them whole
        (50, (7, 8), "in place"),
        (1200, (4, 256), "packed by panel"),
        (100, (4, 256), "packed by panel"),  # few lines, but 1,024 bytes apart: all fall into few sets
        (50, (4, 255), "in place"),
    ],
)
def test_a_panel_that_does_not_stay_in_the_nearest_cache_is_packed(
    channels: int, size: tuple[int, int], factor: str
) -> None:
    kernel, _ = convolution((1, channels, *size), (120, channels, 1, 1))
    assert schedule(kernel, replace(WIDE, threads=1), PIXELS).knobs["factor"] == factor
