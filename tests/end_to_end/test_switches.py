"""Optimisations switched off one by one: the outputs stay the same."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser

import graft
from benchmarks.zoo import model, path_of
from examples.models.seed_weights import SeedWeights
from graft.core.machine.target import OPTIMISATIONS
from graft.core.passes.normalize import PASSES
from graft.core.shapes.sample_inputs import sample_inputs
from graft.errors import GraftError
from graft.runtime.program import Program
from tests.memory import check_memory

MODELS = ("cnn", "dense", "inception", "transformer", "lstm")

CNN = """g (float[1, 24, 26, 28] x) => (float[1, 10] y) {
    a = Conv <pads = [1, 1, 1, 1]> (x, w0)
    b = BatchNormalization (a, s, c, c, v)
    d = Relu (b)
    e = Conv <pads = [1, 1, 1, 1]> (d, w1)
    f = Add (e, x)
    h = Relu (f)
    l = Conv (h, w3)
    m = Conv (h, w4)
    p = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (l)
    q = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (m)
    o = Concat <axis = 1> (q, p)
    i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (o)
    j = GlobalAveragePool (i)
    k = Flatten (j)
    y = Gemm (k, w2, n) }"""

DENSE = """g (float[1, 16, 14, 14] x) => (float[1, 40, 14, 14] y) {
    a = Relu (x)
    b = Conv <pads = [1, 1, 1, 1]> (a, w0)
    d = Concat <axis = 1> (a, b)
    e = BatchNormalization (d, s, c, c, v)
    f = Relu (e)
    h = Conv <pads = [1, 1, 1, 1]> (f, w1)
    i = Concat <axis = 1> (d, h)
    j = Conv (i, w2)
    k = Concat <axis = 1> (a, b, h, j)
    l = Sigmoid (k)
    y = Mul (k, l) }"""

INCEPTION = """g (float[1, 16, 14, 14] x) => (float[1, 32, 14, 14] y) {
    a = Conv (x, w0)
    b = Relu (a)
    d = Conv <pads = [1, 1, 1, 1]> (b, w1)
    e = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x)
    f = Concat <axis = 1> (b, d, e, x)
    j = Conv (f, w2)
    l = Tanh (j)
    h = Exp (f)
    i = Conv (h, w2)
    k = Sigmoid (i)
    m = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (l)
    n = Add (k, m)
    y = Div (n, o) }"""

TRANSFORMER = """g (float[1, 20, 48] x) => (float[1, 20, 48] y) {
    a = LayerNormalization (x, s, c)
    q = MatMul (a, w0)
    k = MatMul (a, w1)
    v = MatMul (a, w2)
    o = Attention <q_num_heads = 4, kv_num_heads = 4, is_causal = 1> (q, k, v)
    p = MatMul (o, w3)
    b = Add (p, x)
    d = RMSNormalization (b, s)
    e = MatMul (d, w4)
    f = Gelu (e)
    h = MatMul (f, w5)
    i = Sigmoid (b)
    j = Mul (b, i)
    y = Add (h, j) }"""

SHAPES = {
    "cnn": (
        CNN,
        {
            "w0": (24, 24, 3, 3),
            "w1": (24, 24, 3, 3),
            "w2": (24, 10),
            "w3": (16, 24, 1, 1),
            "w4": (8, 24, 1, 1),
            "s": (24,),
            "c": (24,),
            "v": (24,),
            "n": (10,),
        },
    ),
    "dense": (
        DENSE,
        {"w0": (8, 16, 3, 3), "w1": (8, 24, 3, 3), "w2": (8, 32, 1, 1), "s": (24,), "c": (24,), "v": (24,)},
    ),
    "inception": (INCEPTION, {"w0": (8, 16, 1, 1), "w1": (8, 8, 3, 3), "w2": (32, 48, 1, 1), "o": (32, 1, 1)}),
    "transformer": (
        TRANSFORMER,
        {
            "w0": (48, 48),
            "w1": (48, 48),
            "w2": (48, 48),
            "w3": (48, 48),
            "w4": (48, 96),
            "w5": (96, 48),
            "s": (48,),
            "c": (48,),
        },
    ),
}


@cache
def source(name: str) -> ir.Model:
    if name not in SHAPES:
        return model(name)
    text, shapes = SHAPES[name]
    proto = parser.parse_model(f'<ir_version: 11, opset_import: ["" : 23]> {text}')
    proto.graph.initializer.extend(
        numpy_helper.from_array(np.full(shape, 0.5, np.float32), weight) for weight, shape in shapes.items()
    )
    onnx.checker.check_model(proto)
    loaded = graft.load(proto)
    SeedWeights().run(loaded)
    return loaded


def program(name: str, without: tuple[str, ...] = ()) -> Program:
    return graft.compile(source(name), ["llvm"], threads=2, strict=True, without=without)


@cache
def usual(name: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    feeds = sample_inputs(source(name))
    return feeds, program(name).run(feeds)


def calls(name: str, *without: str) -> list[str]:
    (procedure,) = program(name, without).description.procedures
    return [call.function for call in procedure.calls]


@pytest.mark.parametrize(
    ("switch", "name"),
    [*((switch, name) for switch in OPTIMISATIONS for name in MODELS), *((switch, "transformer") for switch in PASSES)],
)
def test_switching_an_optimisation_off_keeps_the_outputs(switch: str, name: str) -> None:
    feeds, wanted = usual(name)
    results = program(name, (switch,)).run(feeds)
    for output, value in wanted.items():
        assert np.std(value) > 1e-3, "a constant output proves nothing"
        np.testing.assert_allclose(results[output], value, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_all_of_them_off_keep_the_outputs(name: str) -> None:
    feeds, wanted = usual(name)
    results = program(name, tuple(OPTIMISATIONS)).run(feeds)
    for output, value in wanted.items():
        np.testing.assert_allclose(results[output], value, rtol=1e-3, atol=1e-4)


def test_without_fusion_every_operator_is_a_kernel() -> None:
    assert len(calls("cnn")) < len(calls("cnn", "fusion"))
    assert all("_more" not in function for function in calls("cnn", "fusion"))


def test_without_attention_it_is_no_kernel_with_its_transpositions() -> None:
    assert any("transpose" in function and "more" in function for function in calls("transformer"))
    assert len(calls("transformer")) < len(calls("transformer", "attention"))


def test_products_and_convolutions_of_one_input_are_one_kernel() -> None:
    assert len(calls("transformer", "horizontal")) == len(calls("transformer")) + 2
    assert len(calls("cnn", "in-place", "horizontal")) == len(calls("cnn", "in-place")) + 1


def test_without_views_they_are_copied() -> None:
    assert len(calls("transformer", "views")) > len(calls("transformer"))
    kinds = {tensor.storage for tensor in program("transformer", ("views",)).description.procedures[0].tensors}
    assert "view" not in kinds
    assert "view" in {tensor.storage for tensor in program("transformer").description.procedures[0].tensors}


def test_without_in_place_concats_are_copied_and_all_results_have_memory_of_their_own() -> None:
    for name, concats in (("dense", 3), ("inception", 1)):
        on, off = program(name), program(name, ("in-place",))
        check_memory(on.description.procedures[0])
        check_memory(off.description.procedures[0])
        assert on.arena_bytes < off.arena_bytes
        assert sum("concat" in call for call in calls(name, "in-place")) == concats
        assert not any("concat" in call for call in calls(name))


def test_a_result_takes_the_place_of_what_dies() -> None:
    (procedure,) = program("inception").description.procedures
    replaced = [
        call
        for call in procedure.calls
        if any(
            procedure.tensors[call.inputs[position]].offset == procedure.tensors[call.outputs[0]].offset
            for position in call.in_place
            if procedure.tensors[call.outputs[0]].storage == procedure.tensors[call.inputs[position]].storage == "arena"
        )
    ]
    assert replaced
    (without,) = program("inception", ("in-place",)).description.procedures
    assert not any(call.in_place for call in without.calls)


def test_without_threads_the_bits_are_the_same() -> None:
    feeds, wanted = usual("cnn")
    results = program("cnn", ("threads",)).run(feeds)
    for output, value in wanted.items():
        np.testing.assert_array_equal(results[output], value)


def test_an_unknown_optimisation_is_named_with_the_nearest() -> None:
    with pytest.raises(GraftError) as caught:
        graft.compile(path_of("digits"), without=["fusoin"])
    assert str(caught.value) == "there is no optimisation 'fusoin' to switch off; did you mean 'fusion'"
    with pytest.raises(GraftError) as caught:
        graft.compile(path_of("digits"), without=["zzz"])
    known = ", ".join(sorted((*OPTIMISATIONS, *PASSES)))
    assert str(caught.value) == f"there is no optimisation 'zzz' to switch off; there are {known}"
