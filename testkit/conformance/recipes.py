"""Recipes that a backend states: of small networks it must compute whatever they quantise, and compute it right.

So must it compute layers in hard shapes, of which it may leave what it gives a reason for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from graft.errors import RecipeError
from graft.quantization.api import quantize
from graft.quantization.vendors import left_by, recipe_for
from graft.testkit.conformance.cases.outcome import Case, Failure, NotClaimed, Trial
from graft.testkit.conformance.cases.quantized_layers import quantized_layers
from graft.testkit.conformance.kit import Kit

IMAGE = (2, 8, 12, 12)
NETWORKS = {
    "convolutions": """g (float[2,8,12,12] x) => (float[2,16,6,6] y) {
        a = Conv <pads = [1,1,1,1]> (x, w1, b1) b = Relu (a) c = MaxPool <kernel_shape = [2,2], strides = [2,2]> (b)
        d = Conv <pads = [1,1,1,1], group = 16> (c, w2, b2) e = Clip (d, low, high) y = Conv (e, w3, b1) }""",
    "residual": """g (float[2,8,12,12] x) => (float[2,8,12,12] y) {
        a = Conv (x, w4, b4) b = Relu (a) c = Conv (b, w4, b4) d = Add (c, x) y = Relu (d) }""",
    "classifier": """g (float[2,8,12,12] x) => (float[2,5] y) {
        a = Conv (x, w4, b4) b = GlobalAveragePool (a) c = Flatten (b) y = Gemm <transB = 1> (c, w5, b5) }""",
    "rows": "g (float[2,8,12,12] x) => (float[2,8,12,6] y) { a = MatMul (x, w6) b = Add (a, b6) y = Relu (b) }",
    "average": """g (float[2,8,12,12] x) => (float[2,8,6,6] y) {
        y = AveragePool <kernel_shape = [2,2], strides = [2,2]> (x) }""",
}  # fmt: skip
MIXED = {
    "orders": """g (float[2,8,12,12] x) => (float[2,5] y) {
        a = Conv (x, w4, b4) b = ReduceMean <keepdims = 0> (x, axis) c = Add (a, b) d = Flatten (c)
        y = Gemm <transB = 1> (d, w7, b5) }""",
}
"""Networks of which a backend may leave some, with a reason: channels may lie last here, and are b's first axis."""
WEIGHTS = {
    "w1": (16, 8, 3, 3), "b1": (16,), "w2": (16, 1, 3, 3), "b2": (16,), "w3": (16, 16, 1, 1), "w4": (8, 8, 1, 1),
    "b4": (8,), "w5": (5, 8), "b5": (5,), "w6": (12, 6), "b6": (6,), "w7": (5, 1152), "low": (), "high": (),
    "axis": (1,),
}  # fmt: skip
"""The shapes of constants."""
FIXED: Mapping[str, np.ndarray] = {
    "low": np.array(-1, np.float32),
    "high": np.array(2, np.float32),
    "axis": np.zeros(1, np.int64),
}
"""Those that are not drawn."""
SHARE = 0.02
"""Of the largest element of an output, how far off the backend's may be: codes may be rounded otherwise by one step."""
MOST_OFF = 0.5 + 1 / 16
"""How many steps a layer's result may be from the number that is rounded to it: half of one by rounding, in whatever
direction halves go, and some for factors of few bits. A zero point that is one off shows so in most layers."""


def subjects(kit: Kit) -> list[str]:
    """Return one subject for each recipe."""
    return [f"recipe-{row['name']}" for row in kit.backend.recipes]


def cases(kit: Kit, subject: str) -> Iterator[Case]:
    """Give the networks, quantised by a recipe, and the layers."""
    name = subject.removeprefix("recipe-")
    for network in (*NETWORKS, *MIXED):
        yield Case(f"3/{subject}/{network}", partial(_attempt, kit, name, network))
    for layer, trial in quantized_layers(recipe_for(kit.text, name, manager=kit.manager).operators):
        yield Case(f"3/{subject}/layer-{layer}", partial(_attempt_layer, kit, name, trial))


def _attempt(kit: Kit, name: str, network: str) -> None:
    """Quantise a network, plan it, and run it beside the reference."""
    x = np.random.default_rng(0).normal(size=IMAGE).astype(np.float32)
    trial = _quantised(kit, name, Trial(network_of(network), {"x": x}))
    for row in left_by(kit.text, ir.from_proto(trial.proto), manager=kit.manager):
        if network in MIXED:
            raise NotClaimed
        reason = row.reasons[kit.name].text
        raise Failure(f"leaves {row.op_type} '{row.node}', which recipe '{name}' quantises: {reason}", trial)
    expected = kit.reference(trial)
    kit.attempt(_within(trial, expected, SHARE * max(float(np.abs(one).max()) for one in expected.values())))


def _attempt_layer(kit: Kit, name: str, layer: Trial) -> None:
    """Quantise a layer, and run what the backend takes of it beside the reference, by steps of the result's scale."""
    trial = _quantised(kit, name, layer)
    if left_by(kit.text, ir.from_proto(trial.proto), manager=kit.manager):
        raise NotClaimed
    expected, rounded = kit.reference(trial), _rounded(trial.proto)
    ((output, wanted),) = expected.items()
    kit.attempt(_within(trial, expected, SHARE * float(np.abs(wanted).max()) if rounded is None else 1.01 * rounded[1]))
    if rounded is None:
        return
    exact, step, low, high = rounded
    (numbers,) = kit.reference(Trial(exact, trial.feeds)).values()
    _, program = kit.compiled(trial)
    off = np.abs(program.run(dict(trial.feeds))[output] - np.clip(numbers, low, high)).max() / step
    if off > MOST_OFF:
        raise Failure(
            f"a result is {off:.2f} steps of {step:.4g} from the number that is rounded to it; rounding leaves 0.5",
            trial,
        )


def _quantised(kit: Kit, name: str, trial: Trial) -> Trial:
    """Return a float model quantised by a recipe; raise NotClaimed where that quantises nothing of it."""
    recipe = recipe_for(kit.text, name, manager=kit.manager)
    try:
        return Trial(ir.to_proto(quantize(trial.proto, recipe, trial.feeds, manager=kit.manager)), trial.feeds)
    except RecipeError as error:
        if "quantises nothing" in error.message:
            raise NotClaimed from error
        raise


def _within(trial: Trial, expected: Mapping[str, np.ndarray], bound: float) -> Trial:
    """Return a trial whose results may be off by a number, whatever their size."""
    largest = max(1.0, *(float(np.abs(one).max()) for one in expected.values()))  # the unit of an absolute bound
    return Trial(trial.proto, trial.feeds, expected, 0.0, bound / largest)


def _rounded(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, float, float, float] | None:
    """Return a model without the rounding of its result, the step of that, and the least and greatest number.

    None where the result has no scale, or something else that is computed is rounded as well.
    """
    makers = {name: node for node in proto.graph.node for name in node.output}
    rounding = [one for one in proto.graph.node if one.op_type == "QuantizeLinear" and one.input[0] in makers]
    last = makers[proto.graph.output[0].name]
    if last.op_type != "DequantizeLinear" or [makers.get(last.input[0])] != rounding:
        return None
    exact = onnx.ModelProto()
    exact.CopyFrom(proto)
    exact.graph.output[0].name = rounding[0].input[0]
    constants = {one.name: numpy_helper.to_array(one) for one in proto.graph.initializer}
    step, zero = float(constants[last.input[1]]), constants[last.input[2]]
    bounds = np.iinfo(zero.dtype)
    return exact, step, (bounds.min - int(zero)) * step, (bounds.max - int(zero)) * step


def network_of(name: str) -> onnx.ModelProto:
    """Return a network with seeded weights."""
    random = np.random.default_rng(1)
    proto = onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21]>\n' + (NETWORKS | MIXED)[name])
    used = {one for node in proto.graph.node for one in node.input}
    for constant, shape in WEIGHTS.items():
        if constant in used:
            array = FIXED.get(constant)
            if array is None:
                array = np.asarray(random.normal(0, 0.4, shape), np.float32)
            proto.graph.initializer.append(numpy_helper.from_array(array, constant))
    return proto
