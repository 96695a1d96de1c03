"""`graft.grad` and `graft.training.jvp`: names, what is refused, and products with Jacobian and Hessian."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import graft
from graft.errors import ModelError
from graft.training import jvp, notes_of

HEADER = '<ir_version: 10, opset_import: ["" : 22]>'


def network() -> onnx.ModelProto:
    model = onnx.parser.parse_model(f"""{HEADER} net (double[n,40] x, int64[n] i, double[3] unused) => (double loss) {{
        h = MatMul (x, w) t = Tanh (h) y = Add (t, b) s = Mul (y, y) loss = ReduceSum <keepdims = 0> (s) }}""")
    rng = np.random.default_rng(0)
    for name, shape in (("w", (40, 5)), ("b", (5,))):
        model.graph.initializer.append(numpy_helper.from_array(rng.normal(0, 0.3, shape), name))
    return model


def arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    w, b = (numpy_helper.to_array(one) for one in network().graph.initializer)
    return np.random.default_rng(1).normal(size=(6, 40)), w, b


def feeds(**more: np.ndarray) -> dict[str, np.ndarray]:
    return {"x": arrays()[0], **more}


def run(model: object, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    program = graft.compile(model, ["llvm", "reference"], threads=1, cache=False)
    taken = {
        one.name: given.get(one.name, np.zeros(one.shape if one.name == "unused" else 6, one.dtype))
        for one in program.inputs
    }
    return {name: np.asarray(value) for name, value in program.run(taken).items()}


def test_gradients_are_by_all_weights_and_keep_the_outputs() -> None:
    x, w, b = arrays()
    found = run(graft.grad(network()), feeds())
    assert set(found) == {"loss", "w_grad", "b_grad"}
    y = np.tanh(x @ w) + b
    np.testing.assert_allclose(found["b_grad"], 2 * y.sum(0))
    np.testing.assert_allclose(found["w_grad"], x.T @ (2 * y * (1 - np.tanh(x @ w) ** 2)))


def test_bounds_exponents_and_masks_are_weights_only_where_they_are_named() -> None:
    text = """<ir_version: 10, opset_import: ["" : 22]> g (float[2,3] x) => (float loss)
        <float[3] w = {1, 2, 3}, float least = {0}, float two = {2}, float[3] mask = {0, -inf, 0}>
        { m = Add (x, mask) e = Exp (m) s = Mul (e, w) c = Clip (s, least) p = Pow (c, two)
          loss = ReduceSum <keepdims = 0> (p) }"""
    model = onnx.parser.parse_model(text)
    assert [one.name for one in graft.grad(model).graph.outputs] == ["loss", "w_grad"]
    assert [one.name for one in graft.grad(model, wrt=["two"]).graph.outputs] == ["loss", "two_grad"]


def test_the_result_is_a_model_that_onnx_takes(tmp_path: object) -> None:
    import onnx_ir as ir

    proto = ir.to_proto(graft.grad(network(), wrt=["b"], outputs=["y"]))
    onnx.checker.check_model(proto, full_check=True)
    assert [one.name for one in proto.graph.output] == ["y", "b_grad"]


def test_only_what_is_asked_for_is_computed() -> None:
    operators = [node.op_type for node in graft.grad(network(), wrt=["b"], outputs=[]).graph]
    assert operators.count("MatMul") == 1
    assert "ReduceSum" in operators


def test_a_value_that_the_loss_does_not_depend_on_has_zeros_and_that_is_said() -> None:
    model = graft.grad(network(), wrt=["b", "unused"])
    assert notes_of(model) == ("zero for 'unused': 'loss' does not depend on it",)
    assert not run(model, feeds())["unused_grad"].any()
    assert notes_of(graft.grad(network())) == ()
    alone = graft.grad(network(), wrt=["unused", "unused"], outputs=["loss", "loss"])
    assert [one.name for one in alone.graph.outputs] == ["loss", "unused_grad"]
    assert not run(alone, feeds())["unused_grad"].any()
    assert not run(jvp(network(), "loss", ["unused"]), feeds(unused_tangent=np.ones(3)))["loss_tangent"].any()


def test_no_gradient_comes_through_a_value_that_stops_it() -> None:
    model = network()
    x, w, b = arrays()
    found = run(graft.grad(model, wrt=["w", "b"], stop=["t"]), feeds())
    np.testing.assert_allclose(found["b_grad"], 2 * (np.tanh(x @ w) + b).sum(0))
    assert not found["w_grad"].any()
    whole = run(graft.grad(model, wrt=["t", "w"], stop=["t"]), feeds())
    np.testing.assert_allclose(whole["t_grad"], 2 * (np.tanh(x @ w) + b))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"of": "lost"}, "the loss 'lost' is no value of the model; did you mean 'loss'?"),
        ({"of": "y"}, "the loss 'y' is double[n,5], where one number is expected; take its mean or sum"),
        ({"of": "i"}, "the loss 'i' is of int64[n], which has no gradient"),
        ({"wrt": ["i"]}, "wrt 'i' is of int64[n], which has no gradient"),
        ({"wrt": ["bb"]}, "wrt 'bb' is no value of the model; did you mean 'b'?"),
        ({"stop": ["tt"]}, "stop 'tt' is no value of the model; did you mean 't'?"),
        ({"outputs": ["z"]}, "output 'z' is no value of the model"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError) as caught:
        graft.grad(network(), **arguments)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_a_direction_is_pushed_forward() -> None:
    x, w, b = arrays()
    along = np.random.default_rng(2).normal(size=w.shape)
    found = run(jvp(network(), "y", ["w", "b"]), feeds(w_tangent=along, b_tangent=np.ones(5)))
    np.testing.assert_allclose(found["y"], np.tanh(x @ w) + b)
    np.testing.assert_allclose(found["y_tangent"], (1 - np.tanh(x @ w) ** 2) * (x @ along) + 1)


def test_a_gradient_pushed_forward_is_a_product_with_the_hessian() -> None:
    x, w, b = arrays()
    along = np.random.default_rng(2).normal(size=w.shape)
    found = run(jvp(graft.grad(network(), wrt=["w"]), "w_grad", ["w"]), feeds(w_tangent=along))["w_grad_tangent"]
    t, step = np.tanh(x @ w), x @ along
    slope = 1 - t**2
    np.testing.assert_allclose(found, x.T @ (2 * slope * step * slope + 2 * (t + b) * (-2 * t * slope * step)))


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(ModelError, match="the model has a value 'b_grad' already; rename it"):
        graft.grad(graft.grad(network(), wrt=["b"]), wrt=["b"])
