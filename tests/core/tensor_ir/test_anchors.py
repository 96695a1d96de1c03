import re
from dataclasses import replace

import pytest

from graft.core.tensor_ir.anchors import Window, Windows
from graft.core.tensor_ir.ir import Stage
from graft.core.tensor_ir.parser import parse_stages
from graft.core.tensor_ir.printer import print_stages
from graft.errors import GraftError
from tests.core.schedule.convolutions import convolution

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
