"""ONNX Runtime's own operators against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import graft
from graft.core.importer.load import load
from graft.errors import ModelError

DOMAIN = "com.microsoft"
BATCH, LENGTH, HEADS, SIZE = 2, 5, 4, 16
HIDDEN = HEADS * SIZE
DRAWN = np.random.default_rng(0)


def real(*shape: int) -> np.ndarray:
    return (DRAWN.standard_normal(shape) * 0.5).astype(np.float32)


def bytes_of(*shape: int) -> np.ndarray:
    return DRAWN.integers(0, 255, shape).astype(np.uint8)


def signed(*shape: int) -> np.ndarray:
    return DRAWN.integers(-127, 127, shape).astype(np.int8)


SCALE, ZERO = np.array(0.05, np.float32), np.array(120, np.uint8)


@dataclass(frozen=True)
class Case:
    """One node: inputs (None: absent), types of outputs ("": absent), attributes, inputs that are constants."""

    operator: str
    inputs: Sequence[np.ndarray | None]
    outputs: Sequence[str] = ("FLOAT",)
    attributes: dict[str, Any] = field(default_factory=dict)
    constants: Sequence[int] = ()
    tolerance: float = 2e-4
    domain: str = DOMAIN
    symbols: dict[tuple[int, int], str] = field(default_factory=dict)

    def model(self) -> onnx.ModelProto:
        names = [f"i{number}" if one is not None else "" for number, one in enumerate(self.inputs)]
        while not names[-1]:
            names.pop()
        outputs = [f"o{number}" if kind else "" for number, kind in enumerate(self.outputs)]
        node = helper.make_node(self.operator, names, outputs, domain=self.domain, **self.attributes)
        given, constants = [], []
        for number, one in enumerate(self.inputs):
            if one is not None and number in self.constants:
                constants.append(numpy_helper.from_array(one, f"i{number}"))
            elif one is not None:
                shape = [self.symbols.get((number, axis), extent) for axis, extent in enumerate(one.shape)]
                kind = helper.np_dtype_to_tensor_dtype(one.dtype)
                given.append(helper.make_tensor_value_info(f"i{number}", kind, shape))
        results = [
            helper.make_tensor_value_info(name, TensorProto.DataType.Value(kind), None)
            for name, kind in zip(outputs, self.outputs, strict=True)
            if name
        ]
        graph = helper.make_graph([node], "one", given, results, constants)
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)

    def feeds(self) -> dict[str, np.ndarray]:
        return {f"i{k}": one for k, one in enumerate(self.inputs) if one is not None and k not in self.constants}


def attention(*more: np.ndarray | None, **attributes: Any) -> Case:
    given = (real(BATCH, LENGTH, 16), real(16, 3 * HIDDEN), real(3 * HIDDEN), *more)
    outputs = ("FLOAT", "FLOAT") if len(more) > 1 and more[1] is not None else ("FLOAT",)
    return Case("Attention", given, outputs, {"num_heads": HEADS, **attributes})


def grouped(past: int, length: int, *more: np.ndarray | None, packed: bool = False, **attributes: Any) -> Case:
    width, total = 2 * SIZE, past + length
    query = real(BATCH, length, HIDDEN + 2 * width if packed else HIDDEN)
    key, value = (None, None) if packed else (real(BATCH, length, width), real(BATCH, length, width))
    old = real(BATCH, 2, past, SIZE), real(BATCH, 2, past, SIZE)
    lengths = np.full(BATCH, total - 1, np.int32), np.array(total, np.int32)
    requested = {"num_heads": HEADS, "kv_num_heads": 2, **attributes}
    return Case("GroupQueryAttention", (query, key, value, *old, *lengths, *more), ("FLOAT",) * 3, requested)


def many_heads(*inputs: np.ndarray | None, **attributes: Any) -> Case:
    outputs = ("FLOAT",) * 3 if len(inputs) > 6 else ("FLOAT",)
    return Case("MultiHeadAttention", inputs, outputs, {"num_heads": HEADS, **attributes})


def few_bits(bits: int, depth: int, block: int, columns: int, zeros: str = "") -> Case:
    blocks = -(-depth // block)
    weight, scales = bytes_of(columns, blocks, block * bits // 8), real(columns * blocks) ** 2
    packed = bytes_of(columns * -(-blocks * bits // 8)) if zeros == "packed" else None
    zero = real(columns * blocks) if zeros == "real" else packed
    requested = {"K": depth, "N": columns, "bits": bits, "block_size": block}
    return Case("MatMulNBits", (real(3, depth), weight, scales, zero), ("FLOAT",), requested, (1, 2, 3), 1e-3)


def image(activation: str, *more: np.ndarray | None, **attributes: Any) -> Case:
    requested = {"activation": activation, "pads": [1, 1, 1, 1], **attributes}
    return Case("FusedConv", (real(1, 3, 8, 8), real(4, 3, 3, 3), *more), ("FLOAT",), requested)


MASK = np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32)
IDS = DRAWN.integers(0, 20, (BATCH, LENGTH)).astype(np.int32)
PLACES = np.tile(np.arange(LENGTH), (BATCH, 1)).astype(np.int64)
CACHES = real(32, SIZE // 2), real(32, SIZE // 2)
KEYS = real(BATCH, 6, HIDDEN), real(BATCH, 6, HIDDEN)
QUERY = real(BATCH, LENGTH, HIDDEN)
ROWS_3 = real(BATCH, LENGTH, HIDDEN), real(BATCH, LENGTH, HIDDEN), real(HIDDEN)
FACTOR = np.array(0.03, np.float32)
PAIR = (bytes_of(3, 4), SCALE, ZERO, bytes_of(1, 4), FACTOR, ZERO, SCALE, ZERO)
POOL = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
CASES = {
    "gelu": Case("Gelu", (real(3, 4),)),
    "fast gelu": Case("FastGelu", (real(3, 4), real(4))),
    "fast gelu without bias": Case("FastGelu", (real(3, 4),)),
    "quick gelu": Case("QuickGelu", (real(3, 4),), attributes={"alpha": 1.3}),
    "bias gelu": Case("BiasGelu", (real(3, 4), real(4))),
    "skip": Case("SkipLayerNormalization", (*ROWS_3, real(HIDDEN), real(HIDDEN)), attributes={"epsilon": 1e-5}),
    "skip, the sum": Case("SkipLayerNormalization", ROWS_3, ("FLOAT", "", "", "FLOAT")),
    "skip of all rows": Case("SkipLayerNormalization", (QUERY, real(1, LENGTH, HIDDEN), real(HIDDEN))),
    "simplified skip": Case("SkipSimplifiedLayerNormalization", ROWS_3, ("FLOAT", "", "", "FLOAT")),
    "simplified": Case("SimplifiedLayerNormalization", (QUERY, real(HIDDEN)), attributes={"axis": -1}, domain=""),
    "embedding": Case(
        "EmbedLayerNormalization",
        (IDS, IDS % 2, real(20, HIDDEN), real(10, HIDDEN), real(2, HIDDEN), real(HIDDEN), real(HIDDEN), MASK),
        ("FLOAT", "INT32", "FLOAT"),
    ),
    "embedding of words": Case(
        "EmbedLayerNormalization",
        (IDS, None, real(20, HIDDEN), real(10, HIDDEN), None, real(HIDDEN), real(HIDDEN)),
        ("FLOAT", "INT32"),
    ),
    "product": Case("FusedMatMul", (real(2, 4, 3), real(2, 5, 4)), attributes={"transA": 1, "transB": 1, "alpha": 0.5}),
    "product of batches behind rows": Case(
        "FusedMatMul", (real(3, 2, 4), real(4, 2, 5)), attributes={"transBatchA": 1, "transBatchB": 1}
    ),
    "product, transposed twice": Case(
        "FusedMatMul", (real(4, 2, 3), real(2, 4, 5)), attributes={"transBatchA": 1, "transA": 1}
    ),
    "transposed product": Case("TransposeMatMul", (real(4, 3), real(4, 5)), attributes={"transA": 1}),
    "gemm, relu": Case("FusedGemm", (real(3, 4), real(4, 5), real(5)), attributes={"activation": "Relu"}),
    "gemm, leaky relu": Case(
        "FusedGemm", (real(3, 4), real(4, 5), real(5)), attributes={"activation": "LeakyRelu", "activation_alpha": 0.1}
    ),
    "image, relu": image("Relu", real(4)),
    "image, sum, leaky relu": image("LeakyRelu", real(4), real(1, 4, 8, 8), activation_params=[0.2]),
    "image, clip": image("Clip", activation_params=[0.0, 1.0]),
    "expanded": Case("ExpandDims", (real(3, 4), np.array(1, np.int32)), constants=(1,)),
    "triangle": Case("Trilu", (real(3, 4), np.array(1)), attributes={"upper": 0}),
    "rotary": Case("RotaryEmbedding", (QUERY, PLACES, *CACHES)),
    "rotary, heads apart": Case(
        "RotaryEmbedding", (real(BATCH, HEADS, LENGTH, SIZE), PLACES, *CACHES), attributes={"interleaved": 1}
    ),
    "rotary from a place on": Case("RotaryEmbedding", (QUERY, np.array([3]), *CACHES)),
    "rotary of a part": Case(
        "RotaryEmbedding", (QUERY, PLACES, real(16, 2), real(16, 2)),
        attributes={"num_heads": HEADS, "rotary_embedding_dim": 4},
    ),
    "sum of bytes": Case("QLinearAdd", PAIR, ("UINT8",), constants=(1, 2, 4, 5, 6, 7)),
    "product of bytes": Case("QLinearMul", PAIR, ("UINT8",), constants=(1, 2, 4, 5, 6, 7)),
    "leaky relu of bytes": Case(
        "QLinearLeakyRelu", (bytes_of(3, 4), SCALE, ZERO, FACTOR, ZERO), ("UINT8",), {"alpha": 0.1}, (1, 2, 3, 4)
    ),
    "sigmoid of bytes": Case(
        "QLinearSigmoid", (bytes_of(3, 4), SCALE, ZERO, FACTOR, ZERO), ("UINT8",), constants=(1, 2, 3, 4)
    ),
    "softmax of bytes": Case(
        "QLinearSoftmax", (bytes_of(2, 3, 4), SCALE, ZERO, np.array(1 / 256, np.float32), np.array(0, np.uint8)),
        ("UINT8",), {"opset": 13, "axis": -1}, (1, 2, 3, 4),
    ),
    "softmax of bytes, opset 11": Case(
        "QLinearSoftmax", (bytes_of(2, 3, 4), SCALE, ZERO, np.array(1 / 256, np.float32), np.array(0, np.uint8)),
        ("UINT8",), {"opset": 11, "axis": 1}, (1, 2, 3, 4),
    ),
    "pool of bytes": Case(
        "QLinearAveragePool", (bytes_of(1, 3, 8, 8), SCALE, ZERO, SCALE, ZERO), ("UINT8",), POOL, (1, 2, 3, 4)
    ),
    "global pool of bytes, channels last": Case(
        "QLinearGlobalAveragePool", (bytes_of(1, 8, 8, 3), SCALE, ZERO, SCALE, ZERO), ("UINT8",), {"channels_last": 1},
        (1, 2, 3, 4),
    ),
    "concat of bytes": Case(
        "QLinearConcat", (SCALE, ZERO, bytes_of(2, 3), SCALE, ZERO, bytes_of(2, 4), FACTOR, ZERO), ("UINT8",),
        {"axis": 1}, (0, 1, 3, 4, 6, 7),
    ),
    "choice of bytes": Case(
        "QLinearWhere",
        (DRAWN.random((3, 4)) > 0.5, bytes_of(3, 4), SCALE, ZERO, bytes_of(3, 4), SCALE, ZERO, SCALE, ZERO), ("UINT8",),
        constants=(2, 3, 5, 6, 7, 8),
    ),
    "largest bytes": Case(
        "NhwcMaxPool", (bytes_of(1, 8, 8, 3),), ("UINT8",), {"kernel_shape": [2, 2], "strides": [2, 2]}
    ),
    "dequantize": Case("DequantizeLinear", (bytes_of(3, 4), SCALE, ZERO), constants=(1, 2)),
    "quantize columns": Case(
        "QuantizeLinear", (real(3, 4), real(4) ** 2 + 0.01, np.zeros(4, np.int8)), ("INT8",), {"axis": 1}, (1, 2)
    ),
    "gemm of bytes": Case(
        "QGemm", (bytes_of(3, 4), SCALE, ZERO, bytes_of(4, 5), SCALE, ZERO, None, SCALE, ZERO), ("UINT8",),
        constants=(1, 2, 4, 5, 7, 8),
    ),
    "gemm of bytes to floats": Case(
        "QGemm",
        (bytes_of(3, 4), SCALE, ZERO, signed(4, 5), SCALE, np.array(0, np.int8), np.arange(5, dtype=np.int32)),
        constants=(1, 2, 3, 4, 5, 6),
    ),
    "dynamic product": Case(
        "DynamicQuantizeMatMul", (real(2, 3, 4), signed(4, 5), real(5) ** 2, np.zeros(5, np.int8), real(5)),
        constants=(1, 2, 3, 4),
    ),
    "integers to floats": Case(
        "MatMulIntegerToFloat",
        (bytes_of(3, 4), signed(4, 5), SCALE, SCALE, ZERO, np.array(2, np.int8), real(5)),
        constants=(1, 2, 3, 4, 5, 6),
    ),
    "4 bits": few_bits(4, 64, 32, 24),
    "4 bits, last block in part": few_bits(4, 50, 16, 10),
    "4 bits, packed zeros": few_bits(4, 64, 16, 10, "packed"),
    "4 bits, real zeros": few_bits(4, 64, 32, 10, "real"),
    "8 bits": few_bits(8, 64, 32, 10),
    "8 bits, zeros": few_bits(8, 64, 32, 10, "packed"),
    "attention": attention(),
    "attention, causal": attention(unidirectional=1),
    "attention, scale": attention(scale=0.2),
    "attention, mask": attention(MASK),
    "attention, lengths": attention(np.array([3, 5], np.int32)),
    "attention, ends and beginnings": attention(np.array([4, 5, 1, 0], np.int32)),
    "attention, mask of each query": attention(np.tile(MASK[:, None], (1, LENGTH, 1))),
    "attention, past": attention(None, real(2, BATCH, HEADS, 3, SIZE), unidirectional=1),
    "attention, bias": attention(None, None, real(BATCH, HEADS, LENGTH, LENGTH)),
    "attention of bytes": Case(
        "QAttention",
        (bytes_of(BATCH, LENGTH, 16), signed(16, 3 * HIDDEN), real(3 * HIDDEN), SCALE, SCALE, MASK, ZERO,
         np.array(0, np.int8)),
        attributes={"num_heads": HEADS}, constants=(1, 2, 3, 4, 6, 7), tolerance=1e-2,
    ),
    "heads": many_heads(QUERY, *KEYS),
    "heads, bias": many_heads(QUERY, *KEYS, real(3 * HIDDEN)),
    "heads, lengths": many_heads(QUERY, *KEYS, None, np.array([3, 6], np.int32)),
    "heads, bias of scores": many_heads(QUERY, *KEYS, None, None, real(1, HEADS, LENGTH, 6)),
    "heads, keys apart": many_heads(QUERY, real(BATCH, HEADS, 6, SIZE), real(BATCH, HEADS, 6, SIZE)),
    "heads, past": many_heads(
        QUERY, QUERY, QUERY, None, None, None, real(BATCH, HEADS, 3, SIZE), real(BATCH, HEADS, 3, SIZE),
        unidirectional=1,
    ),
    "groups": grouped(3, 1),
    "groups, prompt": grouped(0, 5),
    "groups, rotary": grouped(3, 1, *CACHES, do_rotary=1),
    "groups, packed, rotary": grouped(0, 5, *CACHES, packed=True, do_rotary=1, rotary_interleaved=1),
    "groups, window": grouped(6, 1, local_window_size=3),
    "groups, softcap": grouped(3, 1, softcap=5.0),
    "groups, smooth": grouped(3, 1, smooth_softmax=1),
    "groups, sinks": grouped(3, 1, None, None, None, None, real(HEADS)),
}  # fmt: skip


def run_by_runtime(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results: list[np.ndarray] = session.run(None, feeds)
    return results


@pytest.mark.parametrize("name", CASES)
def test_operator_gives_what_onnx_runtime_gives(name: str) -> None:
    case = CASES[name]
    model, feeds = case.model(), case.feeds()
    found = graft.compile(model, threads=1)(*feeds.values())
    for got, wanted in zip(found if isinstance(found, tuple) else (found,), run_by_runtime(model, feeds), strict=True):
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
        apart = np.abs(got.astype(np.float64) - wanted.astype(np.float64)).max()
        bound = case.tolerance * (1 + np.abs(wanted).max()) if wanted.dtype.kind == "f" else wanted.dtype.itemsize == 1
        assert apart <= bound


def test_lengths_may_vary() -> None:
    symbols = {(0, 0): "batch", (0, 1): "length", (1, 0): "batch", (1, 1): "length", (2, 0): "batch", (2, 1): "length"}
    case = many_heads(QUERY, QUERY, QUERY, unidirectional=1)
    model = Case(case.operator, case.inputs, case.outputs, case.attributes, symbols=symbols).model()
    program = graft.compile(model, threads=1)
    for batch, length in ((1, 1), (2, 5), (3, 7)):
        feeds = {name: real(batch, length, HIDDEN) for name in ("i0", "i1", "i2")}
        np.testing.assert_allclose(program(*feeds.values()), run_by_runtime(model, feeds)[0], rtol=1e-4, atol=1e-5)


def test_layer_normalization_stands_in_models_of_old_opsets() -> None:
    case = Case("LayerNormalization", (QUERY, real(HIDDEN), real(HIDDEN)), domain="")
    model = case.model()
    model.opset_import[0].version = 13
    got = graft.compile(model, threads=1)(*case.feeds().values())
    np.testing.assert_allclose(got, run_by_runtime(model, case.feeds())[0], rtol=1e-4, atol=1e-5)


def test_operator_that_is_not_known_is_refused_with_the_nearest() -> None:
    case = Case("SkipLayerNormalisation", ROWS_3)
    with pytest.raises(ModelError, match=r"did you mean .SkipLayerNormalization"):
        load(case.model())
