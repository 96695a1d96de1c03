"""The windows that a node's lowering states, which passes over the graph ask for."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from graft.core.graph.view import NodeView
from graft.core.operators.lower import window_of

CONV = """<ir_version: 10, opset_import: ["" : 20]>
g (float[n,4,h,w] x, WEIGHTS k) => (float[n,4,h,w] y) { y = Conv<pads=[1,1,1,1], group=GROUP>(x, k) }"""


@pytest.mark.parametrize(("weights", "group"), [("float[4,1,3,3]", 4), ("float[4,4,3,3]", 1)])
def test_convolutions_of_varying_images_have_windows(weights: str, group: int) -> None:
    model = ir.from_proto(onnx.parser.parse_model(CONV.replace("WEIGHTS", weights).replace("GROUP", str(group))))
    window = window_of(NodeView(next(iter(model.graph))))
    assert window is not None
    assert (window.groups, window.is_depthwise) == (group, group == 4)


def test_a_convolution_by_weights_that_vary_has_none() -> None:
    model = ir.from_proto(onnx.parser.parse_model(CONV.replace("WEIGHTS", "float[4,4,a,a]").replace("GROUP", "1")))
    assert window_of(NodeView(next(iter(model.graph)))) is None
