"""Kernels of which only the batch varies, as a loop over kernels of one image."""

import numpy as np
import pytest

from graft.core.machine.rows import X86_64_V3
from graft.core.machine.target import Target
from graft.core.operators.definition import build as b
from graft.core.operators.definition.table import Trait
from graft.core.schedule.loops.one_image import OneImage, one_image
from graft.core.schedule.selection.select import schedule
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from graft.core.tensor_ir.verifying.verifier import verify
from tests.core.schedule.strategies.nests.test_open_extents import kernel_of

TEXT = """
input x: float32[n, 4]
input c: float32[4]
stage y: float32[n, 4] at (i, j) = x[i, j] + c[j]
"""


def found(text: str = TEXT) -> OneImage | None:
    return one_image(kernel_of(text, Trait.ELEMENTWISE))


def test_the_kernel_of_one_image_has_a_batch_of_one() -> None:
    image = found()
    assert image is not None
    assert [b.dims(one) for one in (*image.kernel.inputs, *image.kernel.outputs)] == [(1, 4), (4,), (1, 4)]
    assert {one.name for one in image.varying} == {"x", "y"}
    assert image.images.name == "n" and image.work >= 4


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("float32[4]", "float32[m]"),
        ("x[i, j]", "x[n - 1 - i, j]"),
        ("x[i, j] + c[j]", "x[i, j] + cast<float32>(i)"),
        ("x[i, j] + c[j]", "x[i, j] + cast<float32>(n)"),
        ("float32[n, 4] at (i, j) = x[i, j]", "float32[n, n] at (i, j) = x[i, j / 4]"),
        ("float32[n, 4] at (i, j) = x[i, j]", "float32[4, n] at (j, i) = x[i, j]"),
    ],
)
def test_images_that_are_not_each_by_itself_are_no_loop(old: str, new: str) -> None:
    assert TEXT.replace(old, new) != TEXT
    assert found(TEXT.replace(old, new)) is None


def test_nothing_that_varies_is_no_batch() -> None:
    assert found(TEXT.replace("[n, ", "[3, ")) is None


@pytest.mark.parametrize("batch", [0, 1, 5])
def test_the_loop_over_images_computes_all_of_them(batch: int) -> None:
    kernel, image = kernel_of(TEXT, Trait.ELEMENTWISE), found()
    assert image is not None
    function = image.for_all(schedule(image.kernel, Target(X86_64_V3)).function, X86_64_V3)
    verify(function)
    x, c = np.arange(4 * batch, dtype=np.float32).reshape(batch, 4), np.arange(4, dtype=np.float32)
    expected = run_stages(kernel.stages, dict(zip(kernel.inputs, (x, c), strict=True)))[kernel.outputs[0]]
    (result,) = run_function(function, [x, c], [(batch, 4)])
    np.testing.assert_array_equal(result.reshape(batch, 4), expected)
