"""GridSample's derivative, as plain operators: beside differences, inside and outside of the image."""

from __future__ import annotations

import onnx
import pytest

import graft
from tests.core.differentiation.differences import of_text

IMAGE, VOLUME = (
    {"x": (2, 3, 4, 5), "grid": (2, 3, 2, 2)},
    {"x": (1, 2, 3, 2, 4), "grid": (1, 5, 2, 2, 3)},
)


@pytest.mark.parametrize(
    ("mode", "shapes"),
    [("nearest", IMAGE), ("linear", IMAGE), ("cubic", IMAGE), ("nearest", VOLUME), ("linear", VOLUME)],
)
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
def test_points_have_the_slopes_between_elements(
    mode: str, padding: str, align: int, shapes: dict[str, tuple[int, ...]]
) -> None:
    given = f'mode = "{mode}", padding_mode = "{padding}", align_corners = {align}'
    reach = "s = Constant <value = double {1.2}> () wide = Mul (grid, s)"
    assert of_text(f"{reach} y = GridSample <{given}> (x, wide)", shapes) <= 1


def test_one_scatter_serves_all_elements_around_a_point() -> None:
    text = """<ir_version: 10, opset_import: ["" : 22]> g (float[1,2,4,5,6] x, float[1,3,4,5,3] p) => (float loss) {
        y = GridSample (x, p) loss = ReduceSum <keepdims = 0> (y) }"""
    kinds = [node.op_type for node in graft.grad(onnx.parser.parse_model(text), wrt=["x", "p"]).graph]
    assert (kinds.count("ScatterElements"), kinds.count("Gather")) == (1, 1)
