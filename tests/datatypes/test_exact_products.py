"""Which products are exact in a float, so that sums of them may be fused: the bits are those of products and sums."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import graft
from graft.core.tensor_ir import numerics
from graft.datatypes import prepare
from graft.datatypes.conversion import convert
from tests.datatypes.proofs.running import all_codes, format_of, stratified_codes

EXACT = {
    "custom[posit]8": ("float32", "float64"),
    "custom[posit]16": ("float32", "float64"),
    "custom[posit_es1]16": ("float64",),
    "custom[posit]32": (),
    "custom[float]16": ("float32", "float64"),
    "custom[bfloat]16": ("float64",),
    "custom[float8e5m2]8": ("float32", "float64"),
    "custom[fixed]16": ("float64",),
    "custom[fixed]32": (),
    "custom[lns]16": (),
}


@pytest.mark.parametrize("dtype", EXACT)
def test_formats_know_in_which_floats_their_products_are_exact(dtype: str) -> None:
    format = format_of(dtype)
    assert tuple(kind for kind in ("float32", "float64") if format.has_exact_products(kind)) == EXACT[dtype]
    numbers = format.to_numbers(all_codes(format) if format.bits == 8 else stratified_codes(format, 3000, 4))
    numbers = numbers[np.isfinite(numbers)]
    pairs = np.stack([numbers, np.random.default_rng(1).permutation(numbers)], 1)
    extremes = [format.largest, format.lowest, format.smallest, 1 + np.finfo("f").eps]
    extremes = [float(format.to_numbers(format.to_bits(np.array([one])))[0]) for one in extremes]
    pairs = np.concatenate([pairs, [(one, other) for one in extremes for other in extremes]])
    for kind in EXACT[dtype]:
        with np.errstate(all="raise"):
            products = pairs[:, 0].astype(kind) * pairs[:, 1].astype(kind)
        for (left, right), product in zip(pairs.tolist(), products.tolist(), strict=True):
            assert Fraction(left) * Fraction(right) == Fraction(product), (left, right)


def test_fused_sums_have_the_bits_of_products_and_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(2)
    weights = random.normal(0, 1, (12, 9, 3, 3)).astype("f")
    x = random.normal(0, 1, (1, 9, 17, 17)).astype("f")
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
    result = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 12, 15, 15))]
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "sums", given, result, [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    converted = convert(model, "custom[posit]16", accumulate="float32")
    fused = [graft.compile(converted, ["llvm"], threads=1, cpu=cpu)(x) for cpu in ("native", "x86-64")]
    monkeypatch.setattr(prepare, "FUSED", {})
    apart = graft.compile(converted, ["llvm"], threads=1)(x)
    np.testing.assert_array_equal(fused[0], apart)
    np.testing.assert_array_equal(fused[1], apart)


def test_the_interpreter_fuses_an_exact_product() -> None:
    factors = np.array([3.0, -0.5], "f"), np.array([4.0, 8.0], "f"), np.array([0.25, 1.0], "f")
    assert numerics.intrinsic("muladd", factors, "float32").tolist() == [12.25, -3.0]
