"""Decoders with a cache, as exporters write them: a GPT-2 and a Llama with seeded random weights.

Both take ``ids`` of any batch and length and the keys and values of what came before, ``past_k0``, ``past_v0``, ...;
they give ``logits`` and the caches with the new rows behind them. The Llama has rotary positions, and fewer heads of
keys and values than of queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


@dataclass(frozen=True)
class Config:
    """The sizes of a decoder: the defaults are small."""

    layers: int = 2
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    """Heads of keys and values; of a Llama alone."""
    inner: int = 160
    vocabulary: int = 100
    positions: int = 1024
    """The longest text of a GPT-2."""
    seed: int = 0

    @property
    def head(self) -> int:
        """The size of a head."""
        return self.width // self.heads


@dataclass
class Graph:
    """An ONNX graph under construction; methods return the names of values."""

    config: Config
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    caches: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.config.seed)

    def op(self, kind: str, *inputs: str, result: str = "", **attributes: object) -> str:
        """Add a node with one output."""
        name = result or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def whole(self, *numbers: int) -> str:
        """Return a constant list of integers."""
        return self._constant("i_" + "_".join(map(str, numbers)), np.array(numbers, np.int64))

    def real(self, number: float) -> str:
        """Return a constant number."""
        return self._constant(f"f_{number}", np.array(number, np.float32))

    def weight(self, name: str, *shape: int) -> str:
        """Return random weights."""
        scale = 1.0 if len(shape) == 1 else shape[0] ** -0.5
        return self._constant(name, (self._random.standard_normal(shape, np.float32) * np.float32(scale)))

    def linear(self, x: str, name: str, columns: int, *, rows: int = 0, bias: bool = False) -> str:
        """Multiply by weights, of as many rows as the model is wide."""
        product = self.op("MatMul", x, self.weight(name, rows or self.config.width, columns))
        return self.op("Add", product, self.weight(f"{name}_bias", columns)) if bias else product

    def heads(self, x: str, count: int) -> str:
        """Return ``[batch, seq, width]`` as ``[batch, count, seq, head]``."""
        split = self.op("Reshape", x, self.whole(0, 0, count, self.config.head))
        return self.op("Transpose", split, perm=[0, 2, 1, 3])

    def appended(self, kind: str, layer: int, rows: str) -> str:
        """Put rows behind those of a cache."""
        self.caches.append(f"{kind}{layer}")
        return self.op("Concat", f"past_{kind}{layer}", rows, result=f"present_{kind}{layer}", axis=2)

    def attention(self, q: str, k: str, v: str, mask: str) -> str:
        """Return what queries find, as ``[batch, seq, width]``; the mask is added to the scores."""
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scaled = self.op("Mul", scores, self.real(self.config.head**-0.5))
        weights = self.op("Softmax", self.op("Add", scaled, mask), axis=-1)
        joined = self.op("Transpose", self.op("MatMul", weights, v), perm=[0, 2, 1, 3])
        return self.op("Reshape", joined, self.whole(0, 0, self.config.width))

    def lengths(self) -> tuple[str, str]:
        """Return the number of old rows, and that of all."""
        past = self.op("Gather", self.op("Shape", "past_k0"), self._constant("second", np.array(2, np.int64)))
        new = self.op("Gather", self.op("Shape", "ids"), self._constant("first", np.array(1, np.int64)))
        return past, self.op("Add", past, new)

    def causal_mask(self, past: str, total: str) -> tuple[str, str]:
        """Return the positions of the new rows, and what is added to their scores: 0, or a large negative number."""
        one = self._constant("one", np.array(1, np.int64))
        rows = self.op("Range", past, total, one)
        columns = self.op("Range", self._constant("none", np.array(0, np.int64)), total, one)
        seen = self.op("LessOrEqual", columns, self.op("Unsqueeze", rows, self.whole(1)))
        mask = self.op("Where", seen, self.real(0.0), self.real(-1e9))
        return rows, self.op("Unsqueeze", mask, self.whole(0, 1))

    def model(self, name: str, kv_heads: int) -> onnx.ModelProto:
        """Return the model of all nodes."""
        size, caches = self.config.head, self.caches
        inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "seq"])]
        inputs += [self._cache(f"past_{one}", ["batch", kv_heads, "past", size]) for one in caches]
        outputs = [self._cache("logits", ["batch", "seq", self.config.vocabulary])]
        outputs += [self._cache(f"present_{one}", ["batch", kv_heads, "total", size]) for one in caches]
        weights = [numpy_helper.from_array(array, key) for key, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, name, inputs, outputs, weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)

    def _constant(self, name: str, array: np.ndarray) -> str:
        self.constants.setdefault(name, array)
        return name

    @staticmethod
    def _cache(name: str, shape: Sequence[int | str]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def gpt2(config: Config = Config()) -> onnx.ModelProto:
    """Return a GPT-2: learned positions, layer normalisation before each block, biases."""
    g, width = Graph(config), config.width
    past, total = g.lengths()
    rows, mask = g.causal_mask(past, total)
    tokens = g.op("Gather", g.weight("embedding", config.vocabulary, width), "ids")
    x = g.op("Add", tokens, g.op("Gather", g.weight("positions", config.positions, width), rows))

    def normalized(x: str, name: str) -> str:
        return g.op("LayerNormalization", x, g.weight(f"{name}_scale", width), g.weight(f"{name}_shift", width))

    for i in range(config.layers):
        a = normalized(x, f"norm_a{i}")
        q, k, v = (g.heads(g.linear(a, f"{one}{i}", width, bias=True), config.heads) for one in "qkv")
        found = g.attention(q, g.appended("k", i, k), g.appended("v", i, v), mask)
        x = g.op("Add", x, g.linear(found, f"o{i}", width, bias=True))
        hidden = g.op("Gelu", g.linear(normalized(x, f"norm_b{i}"), f"up{i}", config.inner, bias=True))
        x = g.op("Add", x, g.linear(hidden, f"down{i}", width, rows=config.inner, bias=True))
    g.op("MatMul", normalized(x, "norm"), g.weight("head", width, config.vocabulary), result="logits")
    return g.model("gpt2", config.heads)


def llama(config: Config = Config()) -> onnx.ModelProto:
    """Return a Llama: rotary positions, grouped queries, RMS normalisation, a gated product."""
    g, width, size = Graph(config), config.width, config.head
    past, total = g.lengths()
    rows, mask = g.causal_mask(past, total)
    cos, sin = _rotations(g, rows)
    x = g.op("Gather", g.weight("embedding", config.vocabulary, width), "ids")

    def normalized(x: str, name: str) -> str:
        mean = g.op("ReduceMean", g.op("Mul", x, x), g.whole(-1), keepdims=1)
        root = g.op("Sqrt", g.op("Add", mean, g.real(1e-5)))
        return g.op("Mul", g.op("Div", x, root), g.weight(name, width))

    def rotated(x: str) -> str:
        half = g.op("Slice", x, g.whole(0), g.whole(size // 2), g.whole(3))
        rest = g.op("Slice", x, g.whole(size // 2), g.whole(size), g.whole(3))
        rotated = g.op("Concat", g.op("Neg", rest), half, axis=-1)
        return g.op("Add", g.op("Mul", x, cos), g.op("Mul", rotated, sin))

    def repeated(x: str) -> str:
        groups = config.heads // config.kv_heads
        shape = g.op("Concat", g.op("Shape", "ids", end=1), g.whole(config.kv_heads, groups),
                     g.op("Unsqueeze", total, g.whole(0)), g.whole(size), axis=0)  # fmt: skip
        each = g.op("Expand", g.op("Unsqueeze", x, g.whole(2)), shape)
        return g.op("Reshape", each, g.whole(0, config.heads, -1, size))

    for i in range(config.layers):
        a = normalized(x, f"norm_a{i}")
        q = rotated(g.heads(g.linear(a, f"q{i}", width), config.heads))
        k = rotated(g.heads(g.linear(a, f"k{i}", config.kv_heads * size), config.kv_heads))
        v = g.heads(g.linear(a, f"v{i}", config.kv_heads * size), config.kv_heads)
        found = g.attention(q, repeated(g.appended("k", i, k)), repeated(g.appended("v", i, v)), mask)
        x = g.op("Add", x, g.linear(found, f"o{i}", width))
        b = normalized(x, f"norm_b{i}")
        gate, up = g.linear(b, f"gate{i}", config.inner), g.linear(b, f"up{i}", config.inner)
        hidden = g.op("Mul", g.op("Mul", gate, g.op("Sigmoid", gate)), up)
        x = g.op("Add", x, g.linear(hidden, f"down{i}", width, rows=config.inner))
    g.op("MatMul", normalized(x, "norm"), g.weight("head", width, config.vocabulary), result="logits")
    return g.model("llama", config.kv_heads)


def _rotations(g: Graph, rows: str) -> tuple[str, str]:
    """Return cosines and sines of the new positions, ``[seq, head]``."""
    frequencies = 10000.0 ** -(np.arange(0, g.config.head, 2, dtype=np.float32) / g.config.head)
    g.constants["frequencies"] = frequencies.astype(np.float32)
    places = g.op("Cast", g.op("Unsqueeze", rows, g.whole(1)), to=TensorProto.FLOAT)
    angles = g.op("Mul", places, "frequencies")
    both = g.op("Concat", angles, angles, axis=-1)
    return g.op("Cos", both), g.op("Sin", both)
