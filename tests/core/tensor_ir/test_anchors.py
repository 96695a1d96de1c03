import re
from dataclasses import replace

import pytest

from graft.core.schedule.loops.inline import inline_into, relaid, reordered
from graft.core.tensor_ir.anchors import Contraction, Elementwise, Pooling, RowReduction, Window, Windows, weakened
from graft.core.tensor_ir.ir import Binary, Constant, Load, Stage
from graft.core.tensor_ir.parser import parse_stages
from graft.core.tensor_ir.printer import print_stages
from graft.core.tensor_ir.verifying.anchor_rules import element_of, factors_of, image_and_weights
from graft.core.tensor_ir.verifying.verifier import verify_stages
from graft.core.types import INT64
from graft.errors import CompileError, GraftError
from tests.core.schedule.convolutions import buffer, convolution

WINDOWS = Windows((6, 5), (3, 3), (6, 5), (1, 1), (1, 1), (1, 1), (1, 1))
TEXT = """
input x: float32[2, 4, 6, 5]
input w: float32[8, 4, 1, 1]
stage y: float32[2, 8, 6, 5] at (n, o, i, j) = reduce add over c < 4, p < 1, q < 1 from float32(0.0): x[n, c, i, j] * w[o, c, p, q]
  as window(image = "left", windows = windows(source = [6, 5], kernel = [1, 1], target = [6, 5], strides = [1, 1], dilations = [1, 1], begins = [0, 0], ends = [0, 0]), groups = 1, inputs = 4, outputs = 8, layout = [0, 1, 2, 3], result = [0, 1, 2, 3], reduced = [0, 1, 2])
""".lstrip()  # noqa: E501 - the text of a stage is one line


def conv(**attributes: object) -> Stage:
    kernel, _ = convolution((2, 4, 6, 5), (8, 4 // int(attributes.get("group", 1)), 3, 3), **attributes)  # type: ignore[call-overload]
    return kernel.stages[0]


def test_a_convolution_says_what_it_is():
    stage = conv(pads=[1, 1, 1, 1])
    axes = (0, 1, 2, 3)
    assert stage.structure == Window("left", WINDOWS, 1, 4, 8, layout=axes, result=axes, reduced=(0, 1, 2))


def test_a_depthwise_convolution_has_a_channel_per_group():
    depthwise, grouped = conv(group=4), conv(group=2)
    assert isinstance(depthwise.structure, Window)
    assert not depthwise.structure.is_depthwise  # eight outputs of four channels
    assert replace(depthwise.structure, outputs=1).is_depthwise
    assert isinstance(grouped.structure, Window) and not grouped.structure.is_depthwise


def test_the_text_of_a_structure_is_read_back():
    (stage,) = parse_stages(TEXT)
    assert print_stages([stage]) == TEXT
    assert isinstance(stage.structure, Window) and stage.structure.windows.target == (6, 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("conv()", "expected one of contraction, window, pooling, row_reduction, elementwise, windows"),
        ("row_reduction()", "expected axes"),
        ("contraction(axes = [1])", "expected no fields"),
    ],
)
def test_an_unknown_structure_is_an_error(text: str, message: str) -> None:
    stage = "stage y: float32[4] at (i) = float32(0.0)\n  as "
    with pytest.raises(GraftError, match=re.escape(f"tensor IR, line 2, column 6: {message}, found '{text[:20]}'")):
        parse_stages(stage + text)


@pytest.mark.parametrize(
    ("structure", "message"),
    [
        (Elementwise(), "an elementwise stage that reduces"),
        (RowReduction((0,)), "a reduction over axes [0] that is none"),
        (Pooling(WINDOWS), "a pool of windows [3, 3] that is none"),
    ],
)
def test_a_structure_that_is_not_true_is_refused(structure: Elementwise, message: str) -> None:
    with pytest.raises(CompileError, match=re.escape(f"it says that it is {message}")):
        verify_stages([replace(conv(), structure=structure)])


def test_a_window_of_other_extents_is_refused():
    stage = conv()
    assert isinstance(stage.structure, Window)
    said = replace(stage, structure=replace(stage.structure, inputs=3))
    with pytest.raises(CompileError, match=re.escape("a convolution of terms [3, 3, 3] that sums [4, 3, 3]")):
        verify_stages([said])
    said = replace(stage, structure=replace(stage.structure, layout=(0, 2, 3, 1)))
    with pytest.raises(CompileError, match=re.escape("image of axes [0, 2, 3, 1] has the shape [2, 4, 6, 5]")):
        verify_stages([said])


def test_a_sum_that_is_no_product_cannot_be_called_one():
    text = "input x: float32[4]\nstage y: float32[] at () = reduce add over k < 4 from float32(0.0): x[k]"
    (stage,) = parse_stages(text)
    with pytest.raises(CompileError, match="it says that it is a sum of products that is none"):
        verify_stages([replace(stage, structure=Contraction())])
    assert factors_of(stage) is None


def test_only_a_stage_that_says_so_has_factors():
    stage = conv()
    assert factors_of(replace(stage, structure=None)) is None
    assert factors_of(stage) is not None and factors_of(replace(stage, structure=Contraction())) is not None


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
    turned = Stage(source, (n, c, h, w), Load(nhwc, (n, h, w, c)))
    read = inline_into(stage, {source: turned})
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
