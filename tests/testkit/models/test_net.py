"""Models that grow by calls: operators are methods, and results have types at once."""

import numpy as np
import onnx
import pytest

from graft.testkit.models.net import Net


def test_operators_are_methods_and_results_have_shapes() -> None:
    net = Net()
    x = net.input("x", "batch", 3, 8, 8)
    y = net.Relu(net.Conv(x, net.constant(np.ones((4, 3, 3, 3))), pads=[1] * 4))
    assert net.shape(y) == ("batch", 4, 8, 8)
    first, second = net.Split(y, outputs=2, axis=1, num_outputs=2)
    model = net.model(net.Concat(second, first, axis=1, outputs=["z"]))
    onnx.checker.check_model(model, full_check=True)
    assert [node.op_type for node in model.graph.node] == ["Conv", "Relu", "Split", "Concat"]
    assert [value.name for value in model.graph.output] == ["z"]


def test_unknown_operator_names_the_nearest_one() -> None:
    with pytest.raises(AttributeError) as caught:
        Net(opset=21).Softmx("x")
    assert str(caught.value) == "ONNX has no operator 'Softmx' in opset 21; did you mean 'Softmax'?"
    with pytest.raises(AttributeError) as caught:
        Net(opset=21).Swish("x")
    assert str(caught.value).startswith("ONNX has no operator 'Swish' in opset 21")
    with pytest.raises(AttributeError) as caught:
        Net().shapes  # noqa: B018  an unknown name
    assert str(caught.value) == "'Net' has no attribute 'shapes'"


def test_operands_that_do_not_fit_are_an_error_of_their_line() -> None:
    net = Net()
    x, y = net.input("x", 2, 3), net.input("y", 4, 5)
    with pytest.raises(onnx.shape_inference.InferenceError, match="matrix multiplication"):
        net.MatMul(x, y)
