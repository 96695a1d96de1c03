"""`graft.compile(..., precision=...)` and int8 models on every processor level, from the front door."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

import graft
from graft.compiler.api import compile_model
from graft.compiler.request import Request
from graft.core.machine.rows import ROWS
from graft.core.machine.target import host_target
from graft.errors import GraftError
from graft.runtime.dtypes import numpy_dtype
from tests.compiler.models import feeds, model

PRODUCT = model("t = MatMul(x, w)\n u = Relu(t)\n y = Exp(u)", "float[9,70] x, float[70,40] w", "float[9,40] y")
INTEGER = model(
    "y = QLinearConv(x, xs, xz, w, ws, wz, ys, yz)",
    "uint8[1,7,9,9] x, float xs, uint8 xz, int8[6,7,3,3] w, float ws, int8 wz, float ys, uint8 yz",
    "uint8[1,6,7,7] y",
)


def small() -> dict[str, np.ndarray]:
    """Inputs of `PRODUCT` whose products are below the limits of Exp."""
    return {name: 0.1 * array for name, array in feeds(PRODUCT).items()}


def test_bf16_rounds_the_factors_of_products_and_nothing_else() -> None:
    given = small()
    program = graft.compile(PRODUCT, ["llvm"], threads=1, precision="bf16", strict=True)
    rounded = {name: array.astype(numpy_dtype("bfloat16")).astype(np.float32) for name, array in given.items()}
    expected = np.exp(np.maximum(rounded["x"] @ rounded["w"], 0))
    np.testing.assert_allclose(program.run(given)["y"], expected, rtol=1e-5)
    exact = np.exp(np.maximum(given["x"] @ given["w"], 0))
    assert np.abs(program.run(given)["y"] - exact).max() > 1e-4


def test_float32_is_the_precision_that_is_left_out() -> None:
    given = small()
    plain, named = (graft.compile(PRODUCT, ["llvm"], threads=1, **more) for more in ({}, {"precision": "float32"}))
    np.testing.assert_array_equal(plain.run(given)["y"], named.run(given)["y"])


def test_both_precisions_have_their_own_place_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    results = [
        graft.compile(PRODUCT, ["llvm"], threads=1, precision=one).run(small())["y"] for one in ("float32", "bf16")
    ]
    again = [
        graft.compile(PRODUCT, ["llvm"], threads=1, precision=one).run(small())["y"] for one in ("float32", "bf16")
    ]
    assert (results[0] != results[1]).any()
    np.testing.assert_array_equal(results, again)


def test_an_artifact_says_its_precision() -> None:
    assert compile_model(PRODUCT, Request(["llvm"], precision="bf16")).description.metadata["precision"] == "bf16"
    assert compile_model(PRODUCT, Request(["llvm"])).description.metadata["precision"] == "float32"


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(GraftError) as caught:
        graft.compile(PRODUCT, ["llvm"], precision="fp8")
    assert str(caught.value) == "unknown precision 'fp8'; choose one of float32, bf16, fp16, tf32"


CHAIN = (
    "a = Conv<strides = [2, 2], pads = [3, 3, 3, 3]>(x, w0)\n"
    "p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(a)\n r = Relu(p)\n",
    "c = Conv(r, w1)\n s = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(c, w2)\n y = MaxPool<kernel_shape = [2, 2]>(s)",
)
SHAPES = {"w0": (16, 3, 7, 7), "w1": (24, 16, 1, 1), "w2": (8, 24, 3, 3)}


def network(body: str, source: str, result: str) -> ir.Model:
    """A model of one input and small whole weights."""
    random = np.random.default_rng(5)
    weights = {name: random.integers(-3, 4, shape).astype(np.float32) for name, shape in SHAPES.items()}
    used = {name: array for name, array in weights.items() if name in body}
    inputs = ", ".join((source, *(f"float[{','.join(map(str, array.shape))}] {name}" for name, array in used.items())))
    proto = model(body, inputs, result)
    del proto.graph.input[1:]
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in used.items())
    return ir.from_proto(proto)


def images_stored(program: graft.Program) -> list[str]:
    """The types of the tensors between kernels."""
    return [one.dtype for one in program.description.procedures[0].tensors if one.storage == "arena"]


def test_images_between_bf16_convolutions_are_stored_as_they_are_multiplied() -> None:
    """Sums are exact here, and too long for bfloat16: whoever rounds them, and when, they are rounded once."""
    image = np.random.default_rng(1).integers(-8, 9, (1, 3, 18, 22)).astype(np.float32)
    halves = [
        network(CHAIN[0], "float[1,3,18,22] x", "float[1,16,4,5] r"),
        network(CHAIN[1], "float[1,16,4,5] r", "float[1,8,1,2] y"),
    ]
    whole = network("".join(CHAIN), "float[1,3,18,22] x", "float[1,8,1,2] y")
    first, second = (graft.compile(half, ["llvm"], threads=1, precision="bf16", strict=True) for half in halves)
    program = graft.compile(whole, ["llvm"], threads=1, precision="bf16", strict=True)
    middle = first.run({"x": image})["r"]
    assert (middle.astype(numpy_dtype("bfloat16")).astype(np.float32) != middle).any()
    assert set(images_stored(program)) == {"bfloat16"} and "bfloat16" not in images_stored(second)
    expected = second.run({"r": middle})["y"].astype(numpy_dtype("bfloat16")).astype(np.float32)
    np.testing.assert_array_equal(program.run({"x": image})["y"], expected)


@pytest.mark.parametrize("without", [(), ("winograd",), ("channels-last",)])
def test_a_residual_network_in_bf16_is_as_exact_as_its_factors(without: tuple[str, ...]) -> None:
    body = (
        "a = Conv<pads = [1, 1, 1, 1]>(x, w0)\n r = Relu(a)\n c = Conv<pads = [1, 1, 1, 1]>(r, w1)\n d = Add(c, r)\n"
        "e = Relu(d)\n f = Conv(e, w2)\n g = GlobalAveragePool(f)\n y = Flatten(g)"
    )
    random = np.random.default_rng(2)
    shapes = {"w0": (32, 3, 3, 3), "w1": (32, 32, 3, 3), "w2": (16, 32, 1, 1)}
    proto = model(
        body, ", ".join(("float[2,3,14,14] x", *(f"float[{','.join(map(str, s))}] {n}" for n, s in shapes.items()))),
        "float[2,16] y",
    )  # fmt: skip
    del proto.graph.input[1:]
    for name, shape in shapes.items():
        weights = (random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    image = random.standard_normal((2, 3, 14, 14)).astype(np.float32)
    (expected,) = ReferenceEvaluator(proto).run(None, {"x": image})
    program = graft.compile(ir.from_proto(proto), ["llvm"], threads=1, precision="bf16", strict=True, without=without)
    error = np.abs(program.run({"x": image})["y"] - expected).max() / np.abs(expected).max()
    assert 1e-6 < error < 2e-2
    assert ("bfloat16" in images_stored(program)) == ("channels-last" not in without)


@pytest.mark.parametrize("cpu", ["native", *(name for name, row in ROWS.items() if row.arch == "x86_64")])
@pytest.mark.parametrize("constant", [True, False])
def test_integer_convolutions_are_the_same_on_every_processor(cpu: str, constant: bool) -> None:
    if cpu != "native" and not ROWS[cpu].features <= host_target().features:
        pytest.skip(f"this processor is no {cpu}")
    random = np.random.default_rng(3)
    given = {
        "x": random.integers(0, 256, (1, 7, 9, 9)).astype(np.uint8),
        "w": random.integers(-128, 128, (6, 7, 3, 3)).astype(np.int8),
        "xs": np.float32(0.02), "ws": np.float32(0.03), "ys": np.float32(0.7),
        "xz": np.uint8(131), "wz": np.int8(-3), "yz": np.uint8(120),
    }  # fmt: skip
    given = {name: np.asarray(array) for name, array in given.items()}
    (expected,) = ReferenceEvaluator(INTEGER).run(None, given)
    source = onnx.ModelProto.FromString(INTEGER.SerializeToString())
    if constant:
        for value in [one for one in source.graph.input if one.name != "x"]:
            source.graph.input.remove(value)
            source.graph.initializer.append(onnx.numpy_helper.from_array(given.pop(value.name), value.name))
    program = graft.compile(ir.from_proto(source), ["llvm"], threads=1, cpu=cpu, strict=True)
    np.testing.assert_array_equal(program.run(given)["y"], expected)
