from dataclasses import replace

import numpy as np
import pytest

from graft.core.operators.definition.build import index
from graft.core.schedule.loops.inline import inline_into, inline_stages, relaid, reordered, value_at
from graft.core.schedule.loops.nest import operations
from graft.core.tensor_ir.anchors import Contraction, RowReduction, Window, weakened
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.ir import (
    Binary,
    Buffer,
    Cast,
    Constant,
    Load,
    Select,
    Stage,
    Unary,
    Variable,
)
from graft.core.tensor_ir.verifying.anchor_rules import element_of, image_and_weights
from graft.core.tensor_ir.verifying.verifier import verify_stages
from graft.core.types import INT64
from tests.core.schedule.convolutions import buffer
from tests.core.tensor_ir.test_anchors import conv


def chain(length: int) -> tuple[Buffer, list[Stage]]:
    """Stages that each add the one before to itself, loaded twice."""
    source = before = Buffer("x", "float32", (index(3),))
    stages = []
    for number in range(length):
        axis, buffer = Variable("i"), Buffer(f"v{number}", "float32", (index(3),))
        value = Binary("add", Load(before, (axis,)), Load(before, (axis,)))
        stages.append(Stage(buffer, (axis,), value))
        before = buffer
    return source, stages


def test_a_value_that_is_read_twice_is_inlined_once():
    source, stages = chain(60)
    (whole,) = inline_stages(stages, {stages[-1].buffer})
    count = operations(whole.value)  # an assertion would print the expression as a tree
    assert count == 60 + 2
    x = np.array([1, 2, 3], np.float32)
    result = run_stages([whole], {source: x})[stages[-1].buffer]
    np.testing.assert_array_equal(result, x * np.float32(2.0**60))


def test_equal_indices_that_are_not_one_object_are_one_place():
    source = Buffer("x", "float32", (index(4),))
    middle, last = Buffer("v", "float32", (index(4),)), Buffer("y", "float32", (index(3),))
    i, j = Variable("i"), Variable("j")
    first = Stage(middle, (i,), Unary("neg", Load(source, (i,))))
    loads = [Load(middle, (Binary("add", j, index(1)),)) for _ in range(2)]
    (whole,) = inline_stages([first, Stage(last, (j,), Binary("mul", *loads))], {last})
    assert isinstance(whole.value, Binary)
    assert whole.value.left is whole.value.right


def test_an_element_that_is_moved_stays_a_masked_load():
    source, moved = Buffer("x", "float32", (index(4), index(3))), Buffer("t", "float32", (index(3), index(4)))
    i, j, k = Variable("i"), Variable("j"), Variable("k")
    mask = Binary("lt", k, index(3))
    transpose = Stage(moved, (i, j), Load(source, (j, i)))
    assert value_at(transpose, (k, index(1)), mask) == Load(source, (index(1), k), mask)
    assert value_at(replace(transpose, value=Cast(transpose.value, "float64")), (k, index(1)), mask) == Cast(
        Load(source, (index(1), k), mask), "float64"
    )
    other = value_at(replace(transpose, value=Unary("exp", transpose.value)), (k, index(1)), mask)
    assert isinstance(other, Select) and other.condition == mask


@pytest.mark.parametrize("length", [1, 5])
def test_short_chains_are_inlined_as_before(length):
    source, stages = chain(length)
    x = np.array([1, 2, 3], np.float32)
    whole = inline_stages(stages, {stages[-1].buffer})
    assert len(whole) == 1
    np.testing.assert_array_equal(
        run_stages(whole, {source: x})[stages[-1].buffer], run_stages(stages, {source: x})[stages[-1].buffer]
    )


def test_another_order_of_axes_changes_the_stated_layout():
    stage = conv()
    image, _ = image_and_weights(stage) or ()
    source, result = element_of(image).buffer, stage.buffer
    last = (0, 2, 3, 1)
    moved = {one: replace(one, shape=tuple(one.shape[axis] for axis in last)) for one in (source, result)}
    new = relaid(stage, moved, last)
    assert isinstance(new.structure, Window)
    assert new.structure.reads_channels_last and new.structure.stores_channels_last
    verify_stages([new])
    assert relaid(stage, {result: moved[result]}, last).structure == replace(stage.structure, result=last)


def test_a_transposition_before_or_behind_becomes_part_of_the_layout():
    stage = conv()
    source = element_of((image_and_weights(stage) or ())[0]).buffer
    n, h, w, c = (replace(axis) for axis in stage.axes)
    nhwc = buffer("nhwc", (2, 6, 5, 4))
    transposed = Stage(source, (n, c, h, w), Load(nhwc, (n, h, w, c)))
    read = inline_into(stage, {source: transposed})
    assert isinstance(read.structure, Window) and read.structure.layout == (0, 2, 3, 1)
    axes = tuple(replace(axis) for axis in stage.axes)
    out = replace(stage.buffer, shape=tuple(stage.buffer.shape[axis] for axis in (0, 2, 3, 1)))
    behind = Stage(out, axes, Load(stage.buffer, (axes[0], axes[3], axes[1], axes[2])))
    (stored,) = reordered([stage, behind])
    assert isinstance(stored.structure, Window) and stored.structure.result == (0, 2, 3, 1)
    verify_stages([stored])


def test_an_image_that_is_read_through_anything_else_weakens_a_convolution():
    stage = conv()
    source = element_of((image_and_weights(stage) or ())[0]).buffer
    axes = tuple(replace(axis) for axis in stage.axes)
    padded = buffer("padded", (2, 4, 7, 5))
    shifted = Stage(source, axes, Load(padded, (*axes[:2], Binary("add", axes[2], Constant(1, INT64)), axes[3])))
    assert inline_into(stage, {source: shifted}).structure == Contraction()
    assert weakened(RowReduction((1,))) == RowReduction((1,))
