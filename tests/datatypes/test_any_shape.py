"""Custom datatypes in models whose dimensions are symbols: the bits of a program for these numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import graft
from graft.core.graph.save import save_model

TYPE = "custom[posit]16"
HEADER = '<ir_version: 10, opset_import: ["" : 23]> g'
BINDINGS = ({"b": 2, "s": 5, "t": 6}, {"b": 1, "s": 1, "t": 9}, {"b": 3, "s": 17, "t": 20})


def normal(*shape: int) -> np.ndarray:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * 0.4).astype(np.float32)


MODELS = {
    "product": ("(float[b,s,7] x) => (float[b,s,5] y) { y = MatMul(x, w) }", {"w": normal(7, 5)}),
    "attention": ("(float[b,2,s,8] x) => (float[b,2,s,8] y) { y = Attention(x, x, x) }", {}),
    "normalisation": (
        "(float[b,s,7] x) => (float[b,s,7] y) { y = LayerNormalization <axis = -1> (x, w) }", {"w": normal(7)},
    ),
    "convolution": (
        "(float[b,16,s,t] x) => (float[b,16,u,v] y) { c = Conv <pads = [1,1,1,1]> (x, w) y = Relu(c) }",
        {"w": normal(16, 16, 3, 3)},
    ),
    "recurrent layer": (
        "(float[s,b,3] x) => (float[s,e,b,4] y) { y, h, c = LSTM <hidden_size = 4> (x, w, r) }",
        {"w": normal(1, 16, 3), "r": normal(1, 16, 4)},
    ),
}  # fmt: skip


def model_of(name: str) -> onnx.ModelProto:
    text, weights = MODELS[name]
    model = onnx.parser.parse_model(f"{HEADER} {text}")
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, key) for key, array in weights.items())
    return model


def given(model: onnx.ModelProto, binding: dict[str, int]) -> np.ndarray:
    return normal(*(one.dim_value or binding[one.dim_param] for one in model.graph.input[0].type.tensor_type.shape.dim))


@pytest.mark.parametrize("name", MODELS)
def test_a_program_of_any_shape_gives_the_bits_of_one_for_the_shape(name: str) -> None:
    model = model_of(name)
    program = graft.compile(graft.datatypes.convert(model, TYPE), ["llvm"], cache=False)
    for binding in BINDINGS:
        dims = {key: binding[key] for key in {"b", "s", "t"} & {str(one) for one in program.inputs[0].shape or ()}}
        static = graft.compile(graft.datatypes.convert(graft.load(model, dims=dims), TYPE), ["llvm"], cache=False)
        x = given(model, binding)
        np.testing.assert_array_equal(program(x), static(x))


def test_a_converted_model_keeps_its_symbols_in_a_file(tmp_path: Path) -> None:
    model = model_of("convolution")
    converted = graft.datatypes.convert(model, TYPE)
    save_model(converted, tmp_path / "posit.onnx")
    again = graft.compile(tmp_path / "posit.onnx", ["llvm"], cache=False)
    assert again.outputs[0].shape == ("b", 16, "s", "t")
    x = given(model, BINDINGS[0])
    np.testing.assert_array_equal(again(x), graft.compile(converted, ["llvm"], cache=False)(x))
