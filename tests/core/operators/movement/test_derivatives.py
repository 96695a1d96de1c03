"""Derivatives of moves: beside differences, of attributes and operands that ONNX's own cases do not have."""

from __future__ import annotations

import pytest

from tests.core.differentiation.differences import of_text

PADS = "p = Constant <value_ints = [1, 0, 2, 1]> ()"
FEW = "p = Constant <value_ints = [2, 1]> () a = Constant <value_ints = [-1]> ()"


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_padding_adds_what_it_copied(mode: str) -> None:
    assert of_text(f'{PADS} y = Pad <mode = "{mode}"> (x, p)', {"x": (3, 4)}) <= 1
    assert of_text(f'{FEW} y = Pad <mode = "{mode}"> (x, p, , a)', {"x": (3, 4)}) <= 1


def test_the_number_of_a_border_has_the_gradient_of_the_border() -> None:
    assert of_text(f"{PADS} n = ReduceSum <keepdims = 0> (z) y = Pad (x, p, n)", {"x": (3, 4), "z": (1,)}) <= 1


@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_a_cumulative_sum_is_summed_from_the_other_end(exclusive: int, reverse: int) -> None:
    text = f"a = Constant <value_int = 1> () y = CumSum <exclusive = {exclusive}, reverse = {reverse}> (x, a)"
    assert of_text(text, {"x": (3, 4)}) <= 1


@pytest.mark.parametrize(
    "text",
    [
        "k = Constant <value_int = 1> () y = Trilu <upper = 0> (x, k)",
        "t = Constant <value_ints = [-2]> () y = Slice (x, e, b, a, t)",
        "t = Constant <value_ints = [2]> () y = Slice (x, b, e, a, t)",
        "i = Constant <value_ints = [1, 1, -1]> () y = Gather <axis = 1> (x, i)",
        "i = Constant <value_ints = [1, 1, -1]> () y = Gather (x, i)",
        "i = Constant <value_int = 1> () y = Gather <axis = 1> (x, i)",
        "r = Constant <value_ints = [2, 3]> () y = Tile (x, r)",
        "s = Constant <value_ints = [2, 3, 4]> () y = Expand (x, s)",
        "c = Constant <value_ints = [1, 0, 1]> () k = Cast <to = 9> (c) y = Compress <axis = 0> (x, k)",
        "k = Constant <value_ints = [2]> () y, i = TopK <axis = 0> (x, k)",
        "p, y, q = Split <axis = 1, num_outputs = 3> (x)",
        "y = Concat <axis = 1> (x, x)",
    ],
)
def test_elements_have_the_gradients_of_where_they_went(text: str) -> None:
    bounds = "b = Constant <value_ints = [0]> () e = Constant <value_ints = [2]> () a = Constant <value_ints = [1]> ()"
    assert of_text(f"{bounds} {text}", {"x": (3, 4)}) <= 1


def test_tuples_of_a_batch_have_their_own_slices() -> None:
    text = "i = Constant <value = int64[2,2,1] {1, 0, 3, 3}> () y = GatherND <batch_dims = 1> (x, i)"
    assert of_text(text, {"x": (2, 4, 2)}) <= 1


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_updates_have_what_the_reduction_makes_of_them(reduction: str) -> None:
    text = f"""i = Constant <value = int64[2,2] {{0, 2, 1, 0}}> ()
        y = ScatterElements <axis = 0, reduction = "{reduction}"> (x, i, u)"""
    assert of_text(text, {"x": (3, 2), "u": (2, 2)}, low=0.2) <= 1
    text = f"""i = Constant <value = int64[2,1] {{2, 0}}> () y = ScatterND <reduction = "{reduction}"> (x, i, u)"""
    assert of_text(text, {"x": (3, 2), "u": (2, 2)}, low=0.2) <= 1


def test_the_values_for_off_and_on_have_sums() -> None:
    text = (
        """i = Constant <value_ints = [0, 2, 1]> () d = Constant <value_int = 3> () y = OneHot <axis = 0> (i, d, x)"""
    )
    assert of_text(text, {"x": (2,)}) <= 1


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_blocks_of_pixels_go_back_to_their_channels_in_either_order(mode: str) -> None:
    """Where no operator but Reshape and Transpose has the second order: ONNX's SpaceToDepth has it from opset 28 on."""
    assert of_text(f'y = DepthToSpace <blocksize = 2, mode = "{mode}"> (x)', {"x": (2, 8, 2, 3)}) <= 1
