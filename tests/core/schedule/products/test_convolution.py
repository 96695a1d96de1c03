"""Convolutions as their anchors state them."""

from dataclasses import replace

import pytest

from graft.core.operators.definition import build as b
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.products.convolution import Convolution, convolution_of
from graft.core.schedule.products.epilogue import fused_stages
from graft.core.tensor_ir.ir import Stage, Variable
from graft.core.tensor_ir.ordered_stages import uses_of
from tests.core.schedule.convolutions import convolution


def stages_of(kernel: Kernel) -> tuple[Stage, ...]:
    stages = fused_stages(kernel)
    assert stages is not None
    return stages


def found(source: tuple[int, ...] = (2, 3, 8, 9), **attributes: object) -> tuple[Kernel, Convolution]:
    kernel, _ = convolution(source, (4, 3, *[3] * (len(source) - 2)), **attributes)
    made = convolution_of(stages_of(kernel)[0])
    assert made is not None
    return kernel, made


def test_a_convolution_says_its_extents_its_image_and_its_weights() -> None:
    kernel, made = found(pads=[1, 1, 1, 1])
    image, weights, *_ = kernel.inputs
    assert made.shape == (2, 4, 8, 9)
    assert made.windows.kernel == (3, 3)
    assert made.image("float32") is image
    assert made.weights(kernel, stages_of(kernel), "float32") is weights


def test_a_factor_of_another_type_is_no_element() -> None:
    kernel, made = found()
    assert made.image("float64") is None
    assert made.image("float32", "int8") is None
    assert made.weights(kernel, stages_of(kernel), "int32") is None


def test_weights_that_are_computed_are_no_constant() -> None:
    kernel, _ = convolution((2, 3, 8, 9), (4, 3, 3, 3), constant=False)
    stages = stages_of(kernel)
    made = convolution_of(stages[0])
    assert made is not None and made.weights(kernel, stages, "float32") is None


@pytest.mark.parametrize(("rank", "is_taken"), [(None, True), (4, True), (3, False)])
def test_another_number_of_axes_may_be_refused(rank: int | None, is_taken: bool) -> None:
    kernel, _ = found()
    assert (convolution_of(stages_of(kernel)[0], rank) is not None) is is_taken


def test_an_extent_that_varies_is_said_to() -> None:
    _, made = found()
    anchor = made.anchor
    varying = replace(anchor, buffer=replace(anchor.buffer, shape=(Variable("n"), *anchor.buffer.shape[1:])))
    again = convolution_of(varying)
    assert again is not None and again.shape[1:] == made.shape[1:] and again.shape[0] != made.shape[0]
    empty = replace(anchor, buffer=replace(anchor.buffer, shape=(b.index(0), *anchor.buffer.shape[1:])))
    assert convolution_of(empty) is None


def test_a_stage_that_states_no_window_is_no_convolution() -> None:
    _, made = found()
    assert convolution_of(replace(made.anchor, structure=None)) is None


def test_what_follows_may_read_the_image_again() -> None:
    kernel, _ = found()
    stages = stages_of(kernel)
    assert len(uses_of(kernel.inputs[0], stages)) == 1
    assert not uses_of(kernel.inputs[0], stages[1:])
