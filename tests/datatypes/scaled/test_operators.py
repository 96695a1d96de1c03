"""Operators on scaled types: kernels give the bits of NumPy's form, with any number of threads; what does not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import graft
from graft.core.graph.view import data_type
from graft.core.types import storage_dtype
from graft.datatypes.scaled.blocks import decode_scaled, encode_scaled
from graft.datatypes.scaled.operators import DOMAIN, attributes_of
from graft.datatypes.scaled.scaled_type import SCALED_TYPES, ScaledType
from graft.errors import GraftError
from tests.datatypes.scaled.test_blocks import blocks_of_every_kind

POSIT = ScaledType("custom[posit]16", block=None)
INTEGER = ScaledType("custom[integer]8", "custom[float]32", 32, "nearest")
TYPES = {**SCALED_TYPES, "posit16": POSIT, "int8": INTEGER}


def model_of(
    type: ScaledType, shape: list[int | str], axis: int = -1, *, tensor_scale: float | None = None,
    change: dict[str, object] | None = None, **options: object,
) -> onnx.ModelProto:  # fmt: skip
    """Encode and Decode, both with results; ``change`` are attributes of the second alone."""
    scale = [] if tensor_scale is None else ["whole"]
    common = {"domain": DOMAIN, "axis": axis, **attributes_of(type)}
    nodes = [
        helper.make_node("Encode", ["x", *scale], ["elements", "scales"], **common, **options),
        helper.make_node("Decode", ["elements", "scales", *scale], ["y"], **{**common, **(change or {})}),
    ]
    outputs = [
        helper.make_tensor_value_info("elements", data_type(storage_dtype(type.element)).value, None),
        helper.make_tensor_value_info("scales", data_type(storage_dtype(type.scale)).value, None),
        helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None),
    ]
    given = [helper.make_tensor("whole", onnx.TensorProto.FLOAT, [], [tensor_scale])] if scale else []
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "scaled", [x], outputs, given)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return model


def check(
    type: ScaledType, x: np.ndarray, axis: int = -1, backend: str = "llvm", threads: int = 1, **options: object
) -> None:
    """A program gives the bits of the form in NumPy."""
    expected = encode_scaled(x, type, axis, **options)  # type: ignore[arg-type]
    whole = expected.tensor_scale if type.tensor_scale else None
    model = model_of(type, list(x.shape), axis, tensor_scale=whole, **options)
    found = graft.compile(model, [backend], threads=threads).run({"x": x})
    np.testing.assert_array_equal(found["scales"], expected.scales)
    np.testing.assert_array_equal(found["elements"], expected.elements)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found["y"], decode_scaled(expected).astype(np.float32))


def numbers() -> np.ndarray:
    """Rows of every kind, NaN and infinity among them, of an extent that no block divides."""
    x = blocks_of_every_kind(4, 75, 1)
    x[1, 3], x[2, 70] = np.nan, np.inf
    return x


@pytest.mark.parametrize("name", TYPES)
def test_a_kernel_gives_the_bits_of_numpy(name: str) -> None:
    check(TYPES[name], numbers())


@pytest.mark.parametrize("rule", ["even", "ceil", "rceil"])
@pytest.mark.parametrize("name", ["mxfp8e4m3", "mxfp4", "mxint8"])
def test_a_kernel_has_every_rule_and_axis(name: str, rule: str) -> None:
    check(replace(SCALED_TYPES[name], rule=rule), np.ascontiguousarray(numbers().T), axis=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["mxfp8e5m2", "nvfp4", "posit16"])
def test_c_source_gives_the_same_bits(name: str) -> None:
    check(TYPES[name], numbers().reshape(3, 7, 75), backend="c_source")


@pytest.mark.parametrize("rounding", ["stochastic", "zero"])
def test_a_rounding_gives_the_same_bits_with_one_and_two_threads(rounding: str) -> None:
    x = np.random.default_rng(2).standard_normal((64, 1000)).astype(np.float32)
    for threads in (1, 2):
        check(SCALED_TYPES["mxfp4"], x, threads=threads, rounding=rounding, seed=5)
    check(SCALED_TYPES["mxfp6e2m3"], x[:40, :90], rounding=rounding, seed=(1 << 40) + 3)


def test_what_is_added_behind_decoding_is_rounded_after_it() -> None:
    x = np.random.default_rng(6).standard_normal((3, 64)).astype(np.float32)
    model = model_of(INTEGER, [3, 64])
    model.graph.node[1].output[0] = "decoded"
    model.graph.node.append(helper.make_node("Add", ["decoded", "x"], ["y"]))
    expected = decode_scaled(encode_scaled(x, INTEGER)).astype(np.float32) + x
    np.testing.assert_array_equal(graft.compile(model, ["llvm"]).run({"x": x})["y"], expected)


def test_extents_beside_that_of_blocks_may_vary() -> None:
    program = graft.compile(model_of(SCALED_TYPES["mxfp4"], ["batch", 64]), ["llvm"])
    for rows in (1, 5):
        x = np.random.default_rng(rows).standard_normal((rows, 64)).astype(np.float32)
        np.testing.assert_array_equal(program.run({"x": x})["elements"], encode_scaled(x, "mxfp4").elements)


def test_a_program_of_scaled_types_is_saved_and_run(tmp_path: Path) -> None:
    x = np.random.default_rng(3).standard_normal((4, 64)).astype(np.float32)
    program = graft.compile(model_of(SCALED_TYPES["mxfp4"], [4, 64]), ["llvm"])
    program.save(tmp_path / "scaled.graft")
    again = graft.runtime.load(tmp_path / "scaled.graft").run({"x": x})
    np.testing.assert_array_equal(again["y"], program.run({"x": x})["y"])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"rounding": "up"}, "rounding is 'up', where one of 'nearest', 'zero', 'stochastic' is expected"),
        ({"axis": 2}, "axis 2 is out of range: an axis of a tensor of rank 2 is in [-2, 1]"),
        ({"type": ("rule", "most")}, "a scale's rule is one of floor, even, ceil, rceil, nearest, not 'most'"),
        ({"type": ("element", "custom[posits]8")}, "datatype 'posits' is not registered; did you mean 'posit'"),
        ({"change": {"block": 16}}, "scales"),
    ],
)
def test_what_does_not_fit_is_refused_when_the_model_is_loaded(options: dict[str, object], expected: str) -> None:
    def tried() -> None:
        field, value = options.pop("type", ("", ""))  # type: ignore[misc]
        model = model_of(SCALED_TYPES["mxfp4"], [2, 64], **options)  # type: ignore[arg-type]
        for node in model.graph.node:
            for attribute in node.attribute:
                if attribute.name == field:
                    attribute.s = str(value).encode()
        graft.compile(model, ["llvm"])

    with pytest.raises(GraftError) as caught:
        tried()
    assert expected in caught.value.message
