"""Sums of quantised products in types of a recipe: the bits of an oracle of their own, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

import graft
from graft.datatypes import convert_scaled, encode_scaled, matmul_scaled, register_fixed
from graft.errors import DatatypeError, RecipeError
from graft.quantization import compare, notes_of, quantize, recipe_of
from tests.quantization.networks import model, run

K = 40
X = np.random.default_rng(0).normal(1, 2, (3, K)).astype(np.float32)
MATMUL = "g (float[n,40] x) => (float[n,7] y) { [mm] y = MatMul (x, w) }"


def saturating(bits: int) -> Callable[[float], float]:
    return lambda one: float(np.clip(one, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1))


ROUNDED: dict[str, Callable[[float], float]] = {
    "int16": saturating(16),
    "int20": saturating(20),
    "float16": lambda one: float(np.float16(one)),
    "bfloat16": lambda one: float(np.float64(one).astype(np.float32).astype(ml_dtypes.bfloat16)),
}


def in_order(left: np.ndarray, right: np.ndarray, rounded: Callable[[float], float]) -> np.ndarray:
    """The product of matrices of float64, each product and each sum rounded, the first term first."""
    found = np.zeros((len(left), right.shape[1]))
    for i, j in np.ndindex(*found.shape):
        for one, other in zip(left[i], right[:, j], strict=True):
            found[i, j] = rounded(found[i, j] + rounded(float(one) * float(other)))
    return found


def constants_of(one: ir.Model) -> dict[str, np.ndarray]:
    return {name: value.const_value.numpy() for name, value in one.graph.initializers.items()}


@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_codes_of_both_sides_are_summed_in_the_type_and_scaled_after(name):
    if name == "int20":
        if "int20" not in graft.datatypes.DATATYPES:
            register_fixed("int20", 20, 0)
        given = "custom[int20]20"
    else:
        given = name
    floats = model(MATMUL, w=np.random.default_rng(1).normal(1, 1, (K, 7)))
    recipe = {"base": "int8-channel", "correct_bias": False}
    plain, found = (quantize(floats, {**recipe, **more}, {"x": X}) for more in ({}, {"accumulators": given}))
    held = constants_of(plain)
    scale, zero = held["x_scale"], held["x_zero"].astype(np.float64)
    codes = np.clip(np.rint(X / scale) + zero, -128, 127) - zero
    sums = in_order(codes, held["w_codes"].astype(np.float64), ROUNDED[name]).astype(np.float32)
    wanted = sums * (np.float32(scale) * held["w_scale"])
    np.testing.assert_array_equal(graft.compile(found)(X), wanted)
    onnx.checker.check_model(ir.to_proto(found), full_check=True)
    exact = codes @ held["w_codes"].astype(np.float64)
    assert (sums != exact).any() == (name != "int20")  # which holds all of these sums


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_beside_floats_numbers_are_rounded_to_the_type_and_summed(name):
    floats = model(MATMUL, w=(K, 7))
    recipe = {"weights": {"type": "int4", "granularity": "group", "group": 16}}
    found = quantize(floats, {**recipe, "accumulators": name})
    w = run(quantize(floats, recipe), x=np.eye(K, dtype=np.float32))
    left, right = (np.vectorize(ROUNDED[name])(one) for one in (X, w))
    np.testing.assert_array_equal(graft.compile(found)(X), in_order(left, right, ROUNDED[name]).astype(np.float32))


FORMS = {
    "Gemm": ("[p] y = Gemm <transB = 1, alpha = 0.5, beta = 2.0> (x, w, b)", "float[n,7]", (7, K), {"b": (7,)}, "x"),
    "Conv": ("[p] y = Conv <pads = [1,1,1,1], group = 2> (x, w, b)", "float[n,6,5,5]", (6, 2, 3, 3), {"b": (6,)}, "i"),
    "ConvTranspose": ("[p] y = ConvTranspose <group = 2> (x, w, b)", "float[n,6,7,7]", (4, 3, 3, 3), {"b": (6,)}, "i"),
    "both activations": (
        "s = Softmax (x) t = Transpose <perm = [1,0]> (s) [p] y = MatMul (x, t)", "float[n,n]", None, {}, "x"
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_in_a_type_that_holds_all_sums_nothing_changes(form):
    text, made, shape, others, kind = FORMS[form]
    taken = "float[n,40]" if kind == "x" else "float[n,4,5,5]"
    x = X if kind == "x" else np.random.default_rng(3).normal(size=(3, 4, 5, 5)).astype(np.float32)
    weights = {**({} if shape is None else {"w": shape}), **others}
    floats = model(f"g ({taken} x) => ({made} y) {{ {text} }}", **weights)
    plain, found = (quantize(floats, {"base": "int8-channel", "accumulators": one}, {"x": x}) for one in ("", "int24"))
    assert {node.op_type for node in found.graph if node.domain == "graft.custom"} > {"Cast"}
    np.testing.assert_allclose(np.asarray(graft.compile(found)(x)), run(plain, x=x), rtol=1e-5, atol=1e-5)
    rows = [compare(floats, one, {"x": x}).layers for one in (plain, found)]
    assert [(row.layer, row.operator, row.saturated, row.underflowed) for row in rows[1]] == [
        (row.layer, row.operator, row.saturated, row.underflowed) for row in rows[0]
    ]


def test_bytes_are_summed_in_int32_anyway():
    floats = model(MATMUL, w=(K, 7))
    found = quantize(floats, {"base": "int8-channel", "accumulators": "int32"}, {"x": X})
    assert all(node.domain == "" for node in found.graph)
    assert notes_of(found)[0].endswith("sums in int32")


@pytest.mark.parametrize("name", ["float16", "posit16", "float64"])
def test_blocks_are_added_in_the_type(name):
    floats = model(MATMUL, w=(K, 7))
    w = onnx.numpy_helper.to_array(floats.graph.initializer[0])
    sides = encode_scaled(X, "mxfp4"), encode_scaled(w, "mxfp4", axis=0)
    wanted = matmul_scaled(*sides, accumulate=name)
    found = quantize(floats, {"base": "mxfp4", "accumulators": name})
    np.testing.assert_array_equal(graft.compile(found)(X), wanted)
    np.testing.assert_array_equal(graft.compile(convert_scaled(floats, "mxfp4", accumulate=name))(X), wanted)
    if name == "float16":
        parts = [
            matmul_scaled(encode_scaled(X[:, one], "mxfp4"), encode_scaled(w[one], "mxfp4", axis=0))
            for one in (slice(0, 32), slice(32, K))
        ]
        np.testing.assert_array_equal(wanted, parts[0].astype(np.float16) + parts[1].astype(np.float16))


def test_a_layer_has_accumulators_of_its_own():
    text = "g (float[n,40] x) => (float[n,3] y) { [first] t = MatMul (x, w) [second] y = MatMul (t, v) }"
    recipe = recipe_of(
        {"base": "int8-channel", "layers": {"second": {"base": "int8-channel", "accumulators": "float16"}}}
    )
    found = quantize(model(text, w=(K, 7), v=(7, 3)), recipe, {"x": X})
    assert [node.op_type for node in found.graph if node.domain == "graft.custom"] == ["Cast", "MatMul", "Cast"]
    (product,) = (node for node in found.graph if (node.domain, node.op_type) == ("graft.custom", "MatMul"))
    assert product.name == "second_sums"
    assert 'accumulators = "float16"' in recipe.to_toml()


REFUSED = {
    "flaot16": ({"base": "int8"}, "recipe: accumulators: sums are rounded in no way called 'flaot16'; did you mean "
                "'float16'; or write custom[name]bits"),
    "quire": ({"base": "int8"}, "recipe: accumulators are of a type, such as float16 or int32, not 'quire'"),
    "int16": ({"base": "int8-weights"}, "accumulators of custom[int]16 add whole numbers, but MatMul (node 'mm') "
              "multiplies float32; quantise weights and activations, or give a type with fractions, such as float16"),
    "posit8": ({"base": "int8"}, "accumulators of custom[posit]8 do not hold the codes of MatMul (node 'mm'): -"),
    "float16": ({"base": "int8", "weights": {"granularity": "group"}}, "the sums of MatMul (node 'mm') have no type of "
                "their own where groups of 32 weights have scales; give weights.granularity = 'channel', or leave "
                "activations in float32"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_summed_so_is_refused(name):
    recipe, message = REFUSED[name]
    with pytest.raises(RecipeError) as caught:
        quantize(model(MATMUL, w=(K, 7)), {**recipe, "accumulators": name}, {"x": X})
    assert caught.value.message.startswith(message)


def test_blocks_are_not_summed_in_whole_numbers():
    with pytest.raises(DatatypeError) as caught:
        quantize(model(MATMUL, w=(K, 7)), {"base": "mxfp4", "accumulators": "int16"})
    assert caught.value.message == (
        "custom[int]16 has whole numbers alone; sums of blocks are of a type with fractions, such as float16"
    )
