"""A backend's own derivative of its composites: used, refused where it is wrong, left out where it cannot be asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graft
from graft.core.operators.definition.adjoint import Adjoint, Vjp
from graft.errors import PluginError
from graft.patterns.composite import Composite
from graft.patterns.language import is_op, wildcard
from graft.training import SGD, Trainer

NET = """<ir_version: 10, opset_import: ["" : 22]>
    net (float[3,4] x, float[4,2] w) => (float loss) {
        h = MatMul (x, w) r = LeakyRelu <alpha = 0.25> (h) s = Mul (r, r) loss = ReduceSum <keepdims = 0> (s) }"""
X, W = (np.random.default_rng(3).normal(size=shape).astype(np.float32) for shape in ((3, 4), (4, 2)))


def right(f: Adjoint) -> list[str]:
    slope = f("Where", f("Less", f.result(), f.like(0.0, f.result())), f.like(f.attribute("alpha"), f.result()),
              f.like(1.0, f.result()))  # fmt: skip
    gradient = f("Mul", f.gradient, slope)
    return [f("MatMul", gradient, f.swapped(f.input(1))), f("MatMul", f.swapped(f.input(0)), gradient)]


def twofold(f: Adjoint) -> list[str]:
    return [f.scaled(one, 2.0) for one in right(f)]


def backend(vjp: Any) -> graft.Backend:
    class Npu(graft.JsonBackend):
        name = "npu"
        patterns = (Composite("npu.mm", is_op("LeakyRelu")(is_op("MatMul")(wildcard(), wildcard())), vjp=vjp),)

    return Npu()


def gradients(vjp: Vjp | None, wrt: Sequence[str] = ("x", "w")) -> dict[str, np.ndarray]:
    model = graft.grad(onnx.parser.parse_model(NET), wrt=list(wrt), backends=[backend(vjp)])
    return graft.compile(model, ["reference"], cache=False).run({"x": X, "w": W})


def test_a_composite_is_differentiated_by_its_own_rule() -> None:
    plain, own, other = gradients(None), gradients(right), gradients(twofold)
    for name in ("x_grad", "w_grad"):
        np.testing.assert_allclose(own[name], plain[name], rtol=1e-5)
        np.testing.assert_allclose(other[name], 2 * plain[name], rtol=1e-5)


def test_the_forward_pass_keeps_its_composite() -> None:
    model = graft.grad(onnx.parser.parse_model(NET), wrt=["x", "w"], backends=[backend(right)])
    plan = graft.plan(ir.to_proto(model), [backend(right), "reference"])
    assert [row.op_type for row in plan.placements if row.composite == "npu.mm"] == ["MatMul", "LeakyRelu"]


def test_a_value_inside_that_is_asked_for_opens_the_composite() -> None:
    np.testing.assert_allclose(gradients(twofold, ["h"])["h_grad"], gradients(None, ["h"])["h_grad"])


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        (lambda f: [f.gradient], "is float[3,2] for 'x', which is float[3,4]"),
        (lambda f: [1 / 0], "raised ZeroDivisionError: division by zero"),
        (lambda f: [f.gradient] * 3, "gives 3 gradients for 2 operands"),
        (lambda f: None, "gives None, where names of values are expected"),
        (lambda f: [1, 2], "gives [1, 2], where names of values are expected"),
        (lambda f: ["nowhere"], "gives 'nowhere', which is no value"),
    ],
)
def test_a_wrong_rule_is_named_with_its_backend(rule: Callable[[Adjoint], Any], fault: str) -> None:
    with pytest.raises(PluginError) as caught:
        gradients(rule)
    assert caught.value.message == f"backend 'npu': npu.mm (node 'r'): its derivative {fault}"
    assert (caught.value.plugin, caught.value.operator, caught.value.node) == ("npu", "npu.mm", "r")


def test_a_trainer_asks_its_backends() -> None:
    proto = onnx.parser.parse_model(NET)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(W, "w"))
    del proto.graph.input[1]
    weights = []
    for vjp in (None, twofold):
        trainer = Trainer(proto, "loss", SGD(0.01), backends=[backend(vjp), "reference"])
        trainer.step({"x": X})
        weights.append(trainer.arrays["w"])
    np.testing.assert_allclose(weights[1] - W, 2 * (weights[0] - W), rtol=1e-3)
