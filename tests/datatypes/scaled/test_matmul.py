"""MatMul on scaled types: kernels give the bits of the product in NumPy, which is proved in exact rationals."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import onnx
import pytest
from onnx import helper

import graft
from graft.core.operators.definition import build as b
from graft.core.schedule.products.block_loops import BlockLoops
from graft.core.tensor_ir.ir import Allocate, Statement
from graft.core.tensor_ir.visit import walk_statements
from graft.datatypes.scaled.blocks import ScaledArray, encode_scaled
from graft.datatypes.scaled.operators import DOMAIN
from graft.datatypes.scaled.products import matmul_scaled
from graft.datatypes.scaled.scaled_type import SCALED_TYPES, ScaledType
from graft.errors import GraftError


def model_of(left: ScaledArray, right: ScaledArray, rows: list[int | str], **changes: object) -> onnx.ModelProto:
    """A product of an input of elements and scales and a constant."""
    attributes = {
        "left_element": left.type.element, "left_scale": left.type.scale, "right_element": right.type.element,
        "right_scale": right.type.scale, "block": left.type.block, **changes,
    }  # fmt: skip
    names = ["elements", "scales", "weights", "weight_scales"]
    constants = {"weights": right.elements, "weight_scales": right.scales}
    if left.type.tensor_scale:
        names += ["whole", "weight_whole"]
        constants |= {"whole": np.float32(left.tensor_scale), "weight_whole": np.float32(right.tensor_scale)}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), [*rows, array.shape[-1]])
        for name, array in (("elements", left.elements), ("scales", left.scales))
    ]
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    node = helper.make_node("MatMul", names, ["y"], domain=DOMAIN, **attributes)
    given = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph([node], "product", inputs, [y], given)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return model


def operands(
    left: str | ScaledType, right: str | ScaledType, shape: tuple[int, int, int]
) -> tuple[ScaledArray, ScaledArray]:
    """Draws with zeros, far exponents and NaN among them."""
    random = np.random.default_rng(sum(shape))
    m, k, n = shape
    x = random.standard_normal((m, k)) * np.exp2(random.integers(-9, 9, (m, 1)))
    y = random.standard_normal((k, n))
    x[0], y[: k // 2, 0] = 0, 0
    x[1, 1] = np.nan
    return encode_scaled(x.astype(np.float32), left), encode_scaled(y.astype(np.float32), right, axis=0)


PAIRS = [
    ("mxfp4", "mxfp4"), ("mxfp8e4m3", "mxfp4"), ("mxfp6e2m3", "mxfp6e3m2"), ("mxint8", "mxint8"), ("nvfp4", "nvfp4"),
    ("msfp16", "msfp12"), ("mxfp8e4m3", "mxfp8e4m3"),
]  # fmt: skip


@pytest.mark.parametrize("shape", [(3, 32, 5), (17, 100, 33), (40, 256, 70)])
@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_a_kernel_gives_the_bits_of_numpy(left: str, right: str, shape: tuple[int, int, int]) -> None:
    x, y = operands(left, right, shape)
    expected = matmul_scaled(x, y)
    for threads in (1, 2):
        program = graft.compile(model_of(x, y, [shape[0]]), ["llvm"], threads=threads)
        np.testing.assert_array_equal(program.run({"elements": x.elements, "scales": x.scales})["y"], expected)


@pytest.mark.parametrize("shape", [(1, 64, 24), (2, 96, 1), (7, 40, 13), (130, 64, 200)])
@pytest.mark.parametrize("pair", [("mxfp4", "mxfp6e3m2"), ("mxfp8e4m3", "nvfp4")], ids="-".join)
@pytest.mark.parametrize("rows", ["fixed", "open"])
def test_blocks_are_scaled_and_added_within_tiles(
    pair: tuple[str, str], shape: tuple[int, int, int], rows: str
) -> None:
    left = SCALED_TYPES[pair[0]] if pair[1] != "nvfp4" else replace(SCALED_TYPES["mxfp8e4m3"], block=16)
    right = replace(SCALED_TYPES[pair[1]], tensor_scale=False)
    random = np.random.default_rng(sum(shape))
    m, k, n = shape
    x = encode_scaled(random.standard_normal((m, k)).astype(np.float32), left)
    y = encode_scaled(random.standard_normal((k, n)).astype(np.float32), right, axis=0)
    for threads in (1, 2):
        program = graft.compile(model_of(x, y, [m if rows == "fixed" else "rows"]), ["llvm"], threads=threads)
        found = program.run({"elements": x.elements, "scales": x.scales})["y"]
        np.testing.assert_array_equal(found, matmul_scaled(x, y))
    (call,) = program.description.procedures[0].calls
    assert call.schedule["strategy"] == "block_scaled"


def test_neither_widened_factors_nor_sums_of_blocks_are_whole_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies: list[Statement] = []
    body = BlockLoops.body

    def kept(loops: BlockLoops) -> Statement:
        bodies.append(body(loops))
        return bodies[-1]

    monkeypatch.setattr(BlockLoops, "body", kept)
    x, y = operands("mxfp4", "mxfp4", (8, 512, 256))
    graft.compile(model_of(x, y, [8]), ["llvm"])
    memory = [one.buffer for one in walk_statements(bodies[0]) if isinstance(one, Allocate)]
    assert memory and max(prod(b.dims(buffer)) for buffer in memory) == 8 * 512  # the rows of the left factor
    assert 8 * 8 * 512 < 512 * 256


def test_leading_extents_may_be_several_and_may_vary() -> None:
    x, y = operands("mxfp4", "mxfp4", (12, 64, 5))
    program = graft.compile(model_of(x, y, ["batch", 4]), ["llvm"])
    found = program.run({"elements": x.elements.reshape(3, 4, 64), "scales": x.scales.reshape(3, 4, 2)})["y"]
    np.testing.assert_array_equal(found, matmul_scaled(x, y).reshape(3, 4, 5))


def test_c_source_gives_the_same_bits() -> None:
    x, y = operands("mxfp8e4m3", "mxfp4", (7, 70, 9))
    program = graft.compile(model_of(x, y, [7]), ["c_source"])
    np.testing.assert_array_equal(
        program.run({"elements": x.elements, "scales": x.scales})["y"], matmul_scaled(x, y)
    )  # fmt: skip


def test_what_is_added_behind_a_product_is_rounded_after_it() -> None:
    x, y = operands("nvfp4", "nvfp4", (6, 64, 8))
    model = model_of(x, y, [6])
    bias = np.random.default_rng(1).standard_normal(8).astype(np.float32)
    model.graph.node[0].output[0] = "product"
    model.graph.node.append(helper.make_node("Add", ["product", "bias"], ["y"]))
    model.graph.initializer.append(onnx.numpy_helper.from_array(bias, "bias"))
    found = graft.compile(model, ["llvm"]).run({"elements": x.elements, "scales": x.scales})["y"]
    np.testing.assert_array_equal(found, matmul_scaled(x, y) + bias)


def refused(left: str | ScaledType, **changes: object) -> str:
    x, y = operands(left, left, (2, 64, 3))
    with pytest.raises(GraftError) as caught:
        graft.compile(model_of(x, y, [2], **changes), ["llvm"])
    return caught.value.message


def test_what_does_not_fit_is_refused() -> None:
    assert "block is 0, where at least 1 is expected" in refused("mxfp4", block=0)
    assert "datatype 'fp4' is not registered" in refused("mxfp4", left_element="custom[fp4]4")
    assert "scales" in refused("mxfp4", block=16)
    exceeds = "sums of 32 products of custom[float8e5m2]8 and custom[float8e5m2]8 exceed 53 bits"
    assert exceeds in refused("mxfp8e5m2")
    integer = ScaledType("custom[integer]8", "custom[float]32", 32, "nearest")
    assert "sums of 32 products under custom[float]32 and custom[float]32 exceed 53 bits" in refused(integer)
    assert SCALED_TYPES["mxfp8e5m2"].block == 32
