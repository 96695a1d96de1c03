"""Derivatives of elementwise operators at kinks, where differences say nothing: they are PyTorch's."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graft
from tests.core.differentiation.differences import of_text

HEADER = '<ir_version: 10, opset_import: ["" : 22, "ai.onnx.preview.training" : 1]>'


def gradient(nodes: str, **feeds: list[float]) -> dict[str, list[float]]:
    """Return the gradients of the sum of ``y`` by all inputs."""
    inputs = ", ".join(f"float[{len(value)}] {name}" for name, value in feeds.items())
    outputs = ", ".join(f"float[{len(value)}] d{name}" for name, value in feeds.items())
    names, results = ", ".join(feeds), ", ".join(f"d{name}" for name in feeds)
    xs = ", ".join(f'"{name}"' for name in feeds)
    model = onnx.parser.parse_model(f"""{HEADER} g ({inputs}) => ({outputs}) {{
        {nodes} {results} = ai.onnx.preview.training.Gradient <xs = [{xs}], y = "y"> ({names}) }}""")
    found = graft.compile(model, ["reference"], threads=1, cache=False).run({
        name: np.float32(value) for name, value in feeds.items()
    })  # fmt: skip
    return {name[1:]: np.asarray(value).tolist() for name, value in found.items()}


@pytest.mark.parametrize(
    ("nodes", "x", "expected"),
    [
        ("y = Relu (x)", [-1, 0, 1], [0, 0, 1]),
        ("y = Abs (x)", [-1, 0, 1], [-1, 0, 1]),
        ("y = LeakyRelu <alpha = 0.5> (x)", [-1, 0, 1], [0.5, 0.5, 1]),
        ("y = Elu <alpha = 2.0> (x)", [0, 1], [2, 1]),
        ("y = HardSigmoid <alpha = 0.25> (x)", [-2, 0, 2], [0, 0.25, 0]),
        ("y = Floor (x) z = Identity (x)", [1.5], [0]),
        ("t = Constant <value_float = 2.0> () y = Pow (x, t)", [-3, 0], [-6, 0]),
        ("t = Constant <value_float = 0.0> () y = Pow (x, t)", [-3, 0], [0, 0]),
        ("y = Add (x, x)", [5], [2]),
        ("c = IsNaN (x) l = Log (x) o = Constant <value_float = 1.0> () y = Where (c, l, o)", [-1], [0]),
    ],
)
def test_a_kink_has_the_derivative_of_pytorch(nodes: str, x: list[float], expected: list[float]) -> None:
    assert gradient(nodes, x=x)["x"] == expected


def test_bounds_of_clip_pass_what_lies_at_them_and_have_what_lies_beyond() -> None:
    nodes = "l = Squeeze (a) h = Squeeze (b) y = Clip (x, l, h)"
    found = gradient(nodes, x=[-2, -1, 0, 1, 2, 3], a=[-1], b=[1])
    assert found == {"x": [0, 1, 1, 1, 0, 0], "a": [1], "b": [2]}


def test_an_upper_bound_under_the_lower_one_has_everything() -> None:
    found = gradient("l = Squeeze (a) h = Squeeze (b) y = Clip (x, l, h)", x=[-2, 0, 2], a=[1], b=[-1])
    assert found == {"x": [0, 0, 0], "a": [0], "b": [3]}


def test_equal_operands_share_evenly() -> None:
    assert gradient("y = Max (a, b)", a=[1, 2, 3], b=[1, 0, 4]) == {"a": [0.5, 1, 0], "b": [0.5, 0, 1]}


@pytest.mark.parametrize(
    "text",
    [
        "y = Max (x, z, x)", "y = Min (x, z)", "y = Pow (x, z)", "y = Mean (x, z, z)", "y = Sum (x, z)",
        "y = PRelu (x, z)", "y = Mod <fmod = 1> (x, z)", "y = Div (x, z)",
        "a = Cast <to = 11> (x) y = Mul (a, z)", "y = Swish (x)", "y = Mish (z)",
    ],
)  # fmt: skip
def test_operands_are_broadcast(text: str) -> None:
    assert of_text(text, {"x": (2, 3, 4), "z": (3, 1)}, low=0.3) <= 1


def test_dropout_in_training_passes_what_it_keeps() -> None:
    nodes = """r = Constant <value_float = 0.5> () t = Constant <value = bool {1}> ()
        y, mask = Dropout <seed = 1> (x, r, t)"""
    found = gradient(nodes, x=[1.0] * 64)["x"]
    assert set(found) == {0.0, 2.0}
