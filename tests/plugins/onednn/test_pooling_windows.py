"""Sliding windows against the shape rules of ONNX."""

from hypothesis import assume, given
from hypothesis import strategies as st

from graft.plugins.onednn.pooling_windows import Window, window


def test_same_upper_puts_the_odd_cell_behind():
    assert window({"auto_pad": "SAME_UPPER", "strides": [2]}, (2,), (5,), (3,)) == Window((2,), (2,), (0,), (0,), (1,))


def test_same_lower_puts_the_odd_cell_in_front():
    assert window({"auto_pad": "SAME_LOWER", "strides": [2]}, (2,), (5,), (3,)) == Window((2,), (2,), (0,), (1,), (0,))


def test_valid_ignores_pads():
    assert window({"auto_pad": "VALID", "pads": [1, 1]}, (3,), (5,), (3,)) == Window((3,), (1,), (0,), (0,), (0,))


def test_rounding_up_enlarges_the_padding_behind():
    assert window({"strides": [2]}, (3,), (6,), (3,)) == Window((3,), (2,), (0,), (0,), (1,), overhang=True)


@given(
    size=st.integers(1, 40),
    kernel=st.integers(1, 6),
    stride=st.integers(1, 4),
    dilation=st.integers(1, 3),
    front=st.integers(0, 3),
    behind=st.integers(0, 3),
    ceil=st.booleans(),
)
def test_the_window_gives_the_target_by_the_rule_of_onednn(size, kernel, stride, dilation, front, behind, ceil):
    """oneDNN: target = (source - extent + left + right) / stride + 1, rounded down."""
    extent = (kernel - 1) * dilation + 1
    room = size + front + behind - extent
    assume(room >= 0)
    target = -(-room // stride) + 1 if ceil else room // stride + 1
    attributes = {"strides": [stride], "dilations": [dilation], "pads": [front, behind]}
    found = window(attributes, (kernel,), (size,), (target,))
    assert (size - extent + found.padding_l[0] + found.padding_r[0]) // stride + 1 == target
    assert found.padding_l == (front,)
    assert found.overhang == (found.padding_r != (behind,))
