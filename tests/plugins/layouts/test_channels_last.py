"""Backends that ask for images with channels last: what they get, where Transposes stand, and what comes out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import graft
from graft.errors import PluginError
from graft.plugins.json_graph import TRANSPOSE, JsonGraph, JsonNode

ASKED = ("AveragePool", "BatchNormalization", "Concat", "Conv", "GlobalAveragePool", "MaxPool", "Softmax")
OTHERS = ("Add", "Clip", "Flatten", "Mul", "PRelu", "Relu", "ReduceSum", "Sigmoid", "Sub", "Transpose")
RANDOM = np.random.default_rng(0)


def values(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def order(rank: int) -> list[int]:
    return [0, *range(2, rank), 1]


class Last(graft.JsonBackend):
    """Computes one operator at a time by onnx.reference, and those that it asks for on images with channels last."""

    name = "last"
    channels_last: ClassVar[frozenset[str]] = frozenset(ASKED)
    seen: ClassVar[list[JsonGraph]] = []

    @graft.supports(*ASKED, *OTHERS)
    def all(self, node: Any) -> bool:
        return True

    def load(self, graph: JsonGraph, constants: Mapping[str, np.ndarray]) -> Any:
        self.seen.append(graph)
        return lambda inputs: graph.run(inputs, constants, self.computed)

    def computed(self, node: JsonNode, arrays: Sequence[np.ndarray | None]) -> Sequence[np.ndarray]:
        (row,) = node.body
        given, is_asked = list(arrays), row.op in ASKED
        attributes = dict(row.attributes)
        if is_asked:
            count = len(given) if row.op == "Concat" else 1
            given[:count] = [np.moveaxis(one, -1, 1) for one in given[:count] if one is not None]
            if "axis" in attributes:
                rank = len(node.shape[0] or ())
                attributes["axis"] = order(rank)[attributes["axis"] % rank]
        names = [f"x{place}" if one is not None else "" for place, one in enumerate(given)]
        made = onnx.helper.make_node(row.op, names, ["y"], **{k: v for k, v in attributes.items() if v is not None})
        types = [onnx.helper.make_tensor_value_info(name, 1, None) for name in names if name]
        graph = onnx.helper.make_graph([made], "g", types, [onnx.helper.make_tensor_value_info("y", 1, None)])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 22)])
        (result,) = ReferenceEvaluator(model).run(None, {n: x for n, x in zip(names, given, strict=True) if n})
        result = np.moveaxis(result, 1, -1) if is_asked else result
        assert result.shape == node.shape[0], node.where
        return [np.ascontiguousarray(result)]


IMAGE = "float[2,6,9,7] x"
FORMS: dict[str, tuple[str, str, dict[str, np.ndarray], int]] = {
    "a residual block": (
        "a = Conv<pads=[1,1,1,1]>(x, w, b) c = Relu(a) d = Conv(c, v) e = Add(d, x) f = Sigmoid(e) "
        "y = MaxPool<kernel_shape=[2,2]>(f)", IMAGE,
        {"w": values(8, 6, 3, 3), "b": values(8), "v": values(6, 8, 1, 1)}, 2,
    ),
    "constants that are broadcast": (
        "a = Conv(x, v) b = Mul(a, s) c = Add(b, t) d = PRelu(c, p) e = Sub(d, r) f = Clip(e, low, high) "
        "y = BatchNormalization(f, m, m, m, q)", IMAGE,
        {"v": values(4, 6, 1, 1), "s": values(1, 4, 1, 1), "t": values(4, 1, 1), "p": values(4, 1, 1), "r": values(7),
         "low": np.float32(-1), "high": np.float32(2), "m": values(4), "q": np.abs(values(4))}, 2,
    ),
    "a scale that is computed": (
        "a = Conv(x, v) b = GlobalAveragePool(a) c = Sigmoid(b) d = Mul(a, c) y = AveragePool<kernel_shape=[3,3]>(d)",
        IMAGE, {"v": values(4, 6, 1, 1)}, 2,
    ),
    "joined channels": (
        "a = Conv(x, v) b = MaxPool<kernel_shape=[1,1]>(x) c = Concat<axis=1>(a, b) y = Softmax<axis=-3>(c)",
        IMAGE, {"v": values(4, 6, 1, 1)}, 2,
    ),
    "what wants channels first": (
        "a = Conv(x, v) b = Relu(a) c = Flatten(b) y = Relu(c)", IMAGE, {"v": values(4, 6, 1, 1)}, 2,
    ),
    "an operator between that wants them first": (
        "a = Conv(x, v) b = Transpose<perm=[0,1,3,2]>(a) c = Relu(b) y = Conv(c, w)", IMAGE,
        {"v": values(4, 6, 1, 1), "w": values(3, 4, 2, 2)}, 4,
    ),
    "what lies before images alone": (
        "a = Relu(x) y = Conv(a, v)", IMAGE, {"v": values(4, 6, 1, 1)}, 2,
    ),
    "a matrix that is added to an image": (
        "a = Conv(x, v) s = ReduceSum<keepdims=0>(a, axes) y = Add(a, s)", IMAGE,
        {"v": values(4, 6, 1, 1), "axes": np.array([0, 1])}, 2,
    ),
    "lines": ("a = Conv<pads=[1,1]>(x, w) y = Relu(a)", "float[2,6,9] x", {"w": values(5, 6, 3)}, 2),
    "volumes": ("a = Conv(x, w) y = Relu(a)", "float[1,3,4,5,6] x", {"w": values(2, 3, 2, 2, 2)}, 2),
    "no image": ("y = Relu(x)", IMAGE, {}, 0),
    "extents that vary": (
        "a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a) y = Add(b, x)", "float[n,6,h,w0] x", {"w": values(6, 6, 3, 3)}, 2,
    ),
}  # fmt: skip


def model_of(form: str) -> onnx.ModelProto:
    body, x, weights, _ = FORMS[form]
    rank = len(x.split(","))
    text = f'<ir_version: 10, opset_import: ["" : 22]> g ({x}) => (float[{", ".join("abcde"[:rank])}] y) {{ {body} }}'
    if form == "what wants channels first":
        text = text.replace("float[a, b, c, d] y", "float[a, b] y")
    made = onnx.parser.parse_model(text)
    made.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(one), name) for name, one in weights.items())
    return made


@pytest.mark.parametrize("form", FORMS)
def test_a_backend_that_asks_gets_images_with_channels_last(form: str) -> None:
    Last.seen.clear()
    model, shape = model_of(form), [int(one) for one in re.sub("[a-z]+0?", "3", FORMS[form][1][5:-2])[1:-1].split(",")]
    x = values(*shape)
    program = graft.compile(model, [Last()], strict=True, without=["fold-batch-normalization"])
    np.testing.assert_allclose(program(x), ReferenceEvaluator(model).run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)
    graph = Last.seen[-1]
    assert sum(node.name == TRANSPOSE for node in graph.kernels) == FORMS[form][3]


class Copies(graft.CSourceBackend):
    """Takes Relu of positive numbers in C, on images with channels last."""

    name = "copies"
    shapes = "symbolic"
    channels_last = frozenset({"Relu"})
    libraries = ("libc.so.6",)
    headers = ("string.h",)
    calls: ClassVar[Mapping[str, Any]] = {
        "Relu": lambda kernel: f"memcpy({{Y}}, {{X}}, {np.dtype(kernel[0].dtype).itemsize} * {{Y.size}})",
    }

    @graft.supports("Relu", "Neg")
    def relu(self, node: Any) -> bool:
        return bool(node.op_type == "Relu")


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("shape", ["n,20,h,17", "2,3,40", "1,2,3,4,5"])
def test_transposes_in_c_are_for_each_type_and_extents_that_vary(dtype: str, shape: str) -> None:
    kind = {"float32": "float", "float64": "double"}.get(dtype, dtype)
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 22]> g ({kind}[{shape}] x) => ({kind}[{shape}] y) '
        "{ a = Relu(x) b = Neg(a) c = Neg(b) y = Relu(c) }"
    )
    x = np.abs(RANDOM.integers(0, 100, [int(one) for one in re.sub("[nh]", "5", shape).split(",")])).astype(dtype)
    program = graft.compile(model, [Copies(), "llvm"], strict=True, cache=False)
    np.testing.assert_array_equal(program(x), x)
    texts = [one.source.text for one in program.description.modules if one.source is not None]
    assert all(len(re.findall(r"^.*graft_transpose_\d+\(\w", text, re.MULTILINE)) >= 2 for text in texts) and texts


def test_what_is_no_set_of_operators_is_told() -> None:
    class Wrong(Last):
        name = "wrong"
        channels_last: Any = ("Conv",)

    with pytest.raises(PluginError, match=re.escape("set it to a frozenset of operators, as in frozenset({'MaxPool'")):
        graft.plan(model_of("lines"), [Wrong()])
