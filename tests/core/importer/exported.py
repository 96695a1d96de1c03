"""Small models with the shape arithmetic that exporters write, in ONNX's text form, and values for their symbols."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper, parser

HEADER = '<ir_version: 10, opset_import: ["" : 20]>'


@dataclass(frozen=True)
class Exported:
    """A model's text, the shapes of its random float weights by name, and bindings of its symbols to try."""

    text: str
    weights: dict[str, tuple[int, ...]]
    bindings: tuple[dict[str, int], ...]

    def model(self) -> onnx.ModelProto:
        """Return the model with its weights."""
        model = parser.parse_model(f"{HEADER} {self.text}")
        generator = np.random.default_rng(5)
        for name, shape in self.weights.items():
            array = generator.standard_normal(shape).astype(np.float32)
            model.graph.initializer.append(numpy_helper.from_array(array, name))
        return model

    def feeds(self, binding: dict[str, int]) -> dict[str, np.ndarray]:
        """Return random inputs for values of the symbols."""
        generator = np.random.default_rng(7)
        found = {}
        for value in self.model().graph.input:
            tensor = value.type.tensor_type
            shape = [one.dim_value or binding[one.dim_param] for one in tensor.shape.dim]
            if tensor.elem_type == onnx.TensorProto.FLOAT:
                found[value.name] = generator.standard_normal(shape).astype(np.float32)
            else:
                found[value.name] = generator.integers(0, 2, shape).astype(np.int64)
        return found


TEXTS = tuple({"batch": batch, "seq": seq} for batch, seq in ((1, 1), (2, 5), (3, 4), (1, 7), (4, 1)))

ATTENTION = Exported(
    """g (int64[batch, seq] ids, int64[batch, seq] mask) => (float[batch, seq, 8] y)
    <int64 zero = {0}, int64 one = {1}, int64[1] first = {0}, int64[1] two = {1}, int64[1] third = {2},
     int64[1] heads = {2}, int64[1] width = {4}, int64[1] whole = {8}, float most = {-10000.0}, float ones = {1.0},
     int64[1] minus = {-1}, int64[1] begin = {0}, int64[1] end = {9223372036854775807}> {
      x = Gather(words, ids)
      s0 = Shape(ids)
      count = Gather <axis = 0> (s0, one)
      places = Range(zero, count, one)
      placed = Gather(positions, places)
      h = Add(x, placed)
      s1 = Shape(h) b = Gather <axis = 0> (s1, zero)
      s2 = Shape(h) l = Gather <axis = 0> (s2, one)
      b1 = Unsqueeze(b, first) l1 = Unsqueeze(l, first)
      split = Concat <axis = 0> (b1, l1, heads, width)
      q0 = MatMul(h, wq) q1 = Reshape(q0, split) q = Transpose <perm = [0, 2, 1, 3]> (q1)
      k0 = MatMul(h, wk) k1 = Reshape(k0, split) k = Transpose <perm = [0, 2, 3, 1]> (k1)
      v0 = MatMul(h, wv) v1 = Reshape(v0, split) v = Transpose <perm = [0, 2, 1, 3]> (v1)
      sh = Shape(q) last = Slice(sh, minus, end, begin) lastf = Cast <to = 1> (last) scale = Sqrt(lastf)
      scores0 = MatMul(q, k) scores = Div(scores0, scale)
      m1 = Unsqueeze(mask, two) m2 = Unsqueeze(m1, third)
      sq = Shape(scores) bq = Slice(sq, begin, two) rest = Slice(sq, third, end)
      wide = Concat <axis = 0> (bq, two, rest)
      m3 = Expand(m2, wide) m4 = Cast <to = 1> (m3) m5 = Sub(ones, m4) m6 = Mul(m5, most)
      masked = Add(scores, m6) p = Softmax <axis = -1> (masked)
      c0 = MatMul(p, v) c1 = Transpose <perm = [0, 2, 1, 3]> (c0)
      s3 = Shape(c1) b2 = Gather <axis = 0> (s3, zero) l2 = Gather <axis = 0> (s3, one)
      b3 = Unsqueeze(b2, first) l3 = Unsqueeze(l2, first)
      joint = Concat <axis = 0> (b3, l3, whole)
      y = Reshape(c1, joint)
    }""",
    {"words": (2, 8), "positions": (16, 8), "wq": (8, 8), "wk": (8, 8), "wv": (8, 8)},
    TEXTS,
)
"""The attention of torch.onnx's tracing exporter: extents by Gather and Concat, a mask by Expand, a Range."""

CAUSAL = Exported(
    """g (float[batch, 2, seq, 4] q, float[batch, 2, past, 4] pk, float[batch, 2, seq, 4] k)
      => (float[batch, 2, seq, total] y)
    <int64 two = {2}, int64[1] first = {0}, int64[1] second = {1}, int64[1] third = {2},
     int64[1] fourth = {3}, int64[2] inner = {2, 3}, float low = {-9.0}> {
      all = Concat <axis = 2> (pk, k)
      s = Shape(all) total = Gather <axis = 0> (s, two)
      t = Shape(q) length = Gather <axis = 0> (t, two)
      from = Sub(total, length)
      from1 = Unsqueeze(from, first) total1 = Unsqueeze(total, first)
      rows = Slice(triangle, from1, total1, third, second)
      both = Slice(rows, first, total1, fourth, second)
      transposed = Transpose <perm = [0, 1, 3, 2]> (all)
      scores = MatMul(q, transposed)
      y = Where(both, scores, low)
    }""",
    {},
    tuple({"batch": b, "seq": s, "past": p} for b, s, p in ((1, 3, 0), (2, 1, 6), (1, 4, 2), (3, 2, 5))),
)
"""A causal mask cut out of a constant triangle, at the length of a growing cache: nobody can prove that it fits."""

IMAGE = Exported(
    """g (float[batch, 3, height, width] x) => (float[batch, 5] y)
    <int64[1] first = {0}, int64[1] two = {2}, int64[1] end = {4}, int64[2] factor = {2, 2}, int64[1] one = {1},
     int64[1] minus = {-1}, float[0] none = {}> {
      c = Conv <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (x, w)
      p = MaxPool <kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1> (c)
      s = Shape(p) head = Slice(s, first, two) size = Slice(s, two, end) double = Mul(size, factor)
      sizes = Concat <axis = 0> (head, double)
      u = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">
        (p, none, none, sizes)
      g = GlobalAveragePool(u)
      n = Shape <start = 0, end = 1> (g)
      flat = Concat <axis = 0> (n, minus)
      f = Reshape(g, flat)
      y = Gemm <transB = 1> (f, v)
    }""",
    {"w": (6, 3, 3, 3), "v": (5, 6)},
    tuple({"batch": b, "height": h, "width": w} for b, h, w in ((1, 8, 8), (2, 9, 13), (1, 16, 5), (3, 7, 7))),
)
"""A small network over images: strides, windows that are rounded up, an Upsample by computed sizes."""

GUARDED = Exported(
    """g (float[batch, seq, 4] x, float[seq, 4] z) => (float[a, b, c, d] y, int64[two] shape)
    <int64[3] wanted = {-1, -1, -1}, int64[3] ones = {1, 1, 1}, int64 minus = {-1}, int64[1] m1 = {-1},
     int64[1] eight = {8}, int64[1] one = {1}, int64[1] zero = {0}> {
      same = Equal(wanted, minus)
      s = Shape(x)
      target = Where(same, s, ones)
      wide = Expand(z, target)
      sum = Add(x, wide)
      n = Size(sum)
      n1 = Reshape(n, m1)
      parts = Div(n1, eight)
      half = Div(n1, parts)
      big = Max(half, one)
      b0 = Slice(s, zero, one)
      filled = ConstantOfShape <value = float[1] {2.0}> (b0)
      shape = Concat <axis = 0> (b0, big)
      joint = Concat <axis = 0> (b0, m1, one, one)
      flat = Reshape(sum, joint)
      more = Unsqueeze(filled, ones_axes)
      y = Add(flat, more)
    }""",
    {},
    tuple({"batch": b, "seq": s} for b, s in ((1, 2), (2, 4), (4, 6), (3, 2))),
)
"""An Expand as torch writes it (Equal, Where), Size, division of extents, ConstantOfShape, and an output of extents."""


def causal() -> onnx.ModelProto:
    """Return `CAUSAL` with its triangle."""
    model = CAUSAL.model()
    triangle = np.tril(np.ones((12, 12), bool)).reshape(1, 1, 12, 12)
    model.graph.initializer.append(numpy_helper.from_array(triangle, "triangle"))
    return model


def guarded() -> onnx.ModelProto:
    """Return `GUARDED` with the axes of its last Unsqueeze."""
    model = GUARDED.model()
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, 2, 3]), "ones_axes"))
    return model


MODELS = {
    "attention": (ATTENTION, ATTENTION.model),
    "causal": (CAUSAL, causal),
    "image": (IMAGE, IMAGE.model),
    "guarded": (GUARDED, guarded),
}
"""By name: what says the bindings, and what makes the model."""
