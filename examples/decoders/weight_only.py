"""A Llama with weights of 4 bits, as exporters for ONNX Runtime write it, with seeded random weights.

Its products are MatMulNBits, its attention is GroupQueryAttention with rotary positions in it, its normalisations are
SkipSimplifiedLayerNormalization. It takes ``ids`` of one text, of any length, and the caches of what came before.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from examples.decoders.models import Config

BLOCK = 32
"""The terms that share a scale."""
DOMAIN = "com.microsoft"


class _Graph:
    def __init__(self, config: Config) -> None:
        self.config, self.random = config, np.random.default_rng(config.seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}

    def op(self, kind: str, *inputs: str, results: int = 1, domain: str = "", **attributes: object) -> list[str]:
        """Add a node and return the names of its outputs."""
        names = [f"{kind.lower()}_{len(self.nodes)}_{number}" for number in range(results)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, names[0], domain=domain, **attributes))
        return names

    def constant(self, name: str, array: np.ndarray) -> str:
        """Return a constant."""
        self.constants[name] = array
        return name

    def linear(self, x: str, name: str, columns: int, terms: int = 0) -> str:
        """Multiply by random weights of 4 bits, of as many terms as the model is wide."""
        terms = terms or self.config.width
        packed = self.random.integers(0, 256, (columns, terms // BLOCK, BLOCK // 2), np.uint8)
        scales = self.random.random((columns, terms // BLOCK), np.float32) * np.float32(0.3 * terms**-0.5)
        names = self.constant(f"{name}_packed", packed), self.constant(f"{name}_scales", scales.reshape(-1))
        sizes = {"K": terms, "N": columns, "bits": 4, "block_size": BLOCK}
        return self.op("MatMulNBits", x, *names, domain=DOMAIN, **sizes)[0]

    def normalized(self, x: str, more: str, name: str) -> tuple[str, str]:
        """Return a sum normalised, and the sum."""
        scale = self.constant(name, self.random.random(self.config.width, np.float32) + np.float32(0.5))
        kind = "SkipSimplifiedLayerNormalization"
        normal, _, _, total = self.op(kind, x, more, scale, results=4, domain=DOMAIN, epsilon=1e-5)
        self.nodes[-1].output[1:3] = ["", ""]
        return normal, total

    def rotations(self) -> tuple[str, str]:
        """Return cosines and sines of all positions, ``[positions, head / 2]``."""
        head = self.config.head
        angles = np.outer(np.arange(self.config.positions), 10000.0 ** -(np.arange(0, head, 2) / head))
        both = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        return self.constant("cosines", both[0]), self.constant("sines", both[1])

    def lengths(self) -> tuple[str, str]:
        """Return the last position of the text, and the number of all of them, as GroupQueryAttention wants them."""
        second = self.constant("second", np.array([2], np.int64))
        past = self.op("Gather", self.op("Shape", "past_k0")[0], second)[0]
        new = self.op("Gather", self.op("Shape", "ids")[0], self.constant("first", np.array([1], np.int64)))[0]
        total = self.op("Cast", self.op("Add", past, new)[0], to=TensorProto.INT32)[0]
        last = self.op("Sub", total, self.constant("step", np.array([1], np.int32)))[0]
        return last, self.op("Squeeze", total)[0]


def llama_4bit(config: Config) -> onnx.ModelProto:
    """Return a Llama of one text with weights of 4 bits, in blocks of 32 terms."""
    g, width, size = _Graph(config), config.width, config.head
    (last, total), (cos, sin) = g.lengths(), g.rotations()
    embedding = g.constant("embedding", g.random.standard_normal((config.vocabulary, width), np.float32))
    x = g.op("Gather", embedding, "ids")[0]
    first = g.constant("norm_first", np.ones(width, np.float32))
    a = g.op("SimplifiedLayerNormalization", x, first, axis=-1, epsilon=1e-5)[0]
    caches: list[str] = []
    for i in range(config.layers):
        q = g.linear(a, f"q{i}", width)
        k, v = (g.linear(a, f"{one}{i}", config.kv_heads * size) for one in "kv")
        old = [f"past_k{i}", f"past_v{i}"]
        sizes = {"num_heads": config.heads, "kv_num_heads": config.kv_heads, "do_rotary": 1}
        found = g.op("GroupQueryAttention", q, k, v, *old, last, total, cos, sin, results=3, domain=DOMAIN, **sizes)
        g.nodes[-1].output[1:] = [one.replace("past", "present") for one in old]
        caches += old
        b, x = g.normalized(x, g.linear(found[0], f"o{i}", width), f"norm_b{i}")
        gate, up = g.linear(b, f"gate{i}", config.inner), g.linear(b, f"up{i}", config.inner)
        hidden = g.op("Mul", g.op("Mul", gate, g.op("Sigmoid", gate)[0])[0], up)[0]
        a, x = g.normalized(x, g.linear(hidden, f"down{i}", width, config.inner), f"norm_a{i}")
    g.nodes[-1].output[3:] = []
    g.linear(a, "head", config.vocabulary)
    g.nodes[-1].output[0] = "logits"
    return _model(g, caches)


def _model(g: _Graph, caches: list[str]) -> onnx.ModelProto:
    def value(name: str, *shape: int | str, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    size, heads = g.config.head, g.config.kv_heads
    inputs = [value("ids", 1, "seq", kind=TensorProto.INT64)]
    inputs += [value(one, 1, heads, "past", size) for one in caches]
    outputs = [value("logits", 1, "seq", g.config.vocabulary)]
    outputs += [value(one.replace("past", "present"), 1, heads, "total", size) for one in caches]
    weights = [numpy_helper.from_array(array, key) for key, array in g.constants.items()]
    graph = helper.make_graph(g.nodes, "llama_4bit", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)
