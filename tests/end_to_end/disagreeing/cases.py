"""One model for each operator that demands something of extents, all its axes named apart, with what must agree.

A tie says it in words of its own, independent of the operator table: ``j = k``, ``j ~ k`` (broadcast), ``j > k``
(``j`` is ``k`` or 1), ``j <= k``, ``j >= k``, ``j % k`` (a multiple); its right side is an expression over names before
it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

NUMPY = {
    "float": np.float32,
    "int64": np.int64,
    "int32": np.int32,
    "uint8": np.uint8,
    "int8": np.int8,
    "bool": np.bool_,
    "string": np.object_,
}
Sizes = Mapping[str, int]
TRAINING = "ai.onnx.preview.training"


@dataclass(frozen=True)
class Case:
    """``inputs`` in ONNX's text; ``ranks`` of the outputs; ``values``: what inputs of whole numbers hold (else 0)."""

    name: str
    inputs: str
    outputs: str
    body: str
    ties: tuple[str, ...]
    values: Mapping[str, object] = field(default_factory=dict)
    initial: str = ""
    fixed: Mapping[str, int] = field(default_factory=dict)
    """Names that have a number, which nothing demands but the model's meaning."""
    opset: int = 24

    @property
    def model(self) -> onnx.ModelProto:
        """The model."""
        initial = f"<{self.initial}>" if self.initial else ""
        graph = f"g ({self.inputs}) => ({self.outputs}) {initial} {{ {self.body} }}"
        imports = f'"" : {self.opset}, "{TRAINING}" : 1'
        return onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{imports}]> {graph}")

    @property
    def shapes(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """Type and dimensions of each input."""
        found = re.findall(r"(\w+)(?:\[([^\]]*)\])? (\w+)(?:,|$)", self.inputs)
        return {name: (kind, tuple(filter(None, re.split(r",\s*", axes)))) for kind, axes, name in found}

    @property
    def names(self) -> list[str]:
        """The names of all dimensions that are not numbers."""
        return [*dict.fromkeys(one for _, axes in self.shapes.values() for one in axes if not one.isdigit())]

    def valid(self, generator: np.random.Generator) -> dict[str, int]:
        """Return sizes that satisfy every tie."""
        tied = {tie.split()[0] for tie in self.ties}
        sizes = {name: int(generator.integers(2, 6)) for name in self.names if name not in tied} | dict(self.fixed)
        for tie in self.ties:
            left, kind, wanted = self.read(tie, sizes)
            sizes[left] = {
                "<=": int(generator.integers(1, wanted + 1)), ">=": wanted + int(generator.integers(0, 4)),
                "%": wanted * int(generator.integers(0, 4)),
            }.get(kind, wanted)  # fmt: skip
            if kind in (">", "~") and generator.random() < 0.3:
                sizes[left] = 1
        return sizes

    def violated(self, generator: np.random.Generator) -> tuple[dict[str, int], str]:
        """Return sizes that break one tie, and that tie."""
        while True:
            sizes = self.valid(generator)
            tie = str(generator.choice(self.ties))
            left, kind, wanted = self.read(tie, sizes)
            wrong = int(generator.integers(0 if kind in ("=", ">=", "%") else 2, 12))
            if not _agree(kind, wrong, wanted):
                return {**sizes, left: wrong}, tie

    @staticmethod
    def read(tie: str, sizes: Sizes) -> tuple[str, str, int]:
        """Return the name on the left, how it must agree, and the number on the right."""
        left, kind, right = tie.split(maxsplit=2)
        return left, kind, int(eval(right, {}, dict(sizes)))

    def arrays(self, sizes: Sizes, generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Return inputs of these sizes."""
        found = {}
        for name, (kind, axes) in self.shapes.items():
            shape = tuple(int(one) if one.isdigit() else sizes[one] for one in axes)
            if name in self.values:
                found[name] = np.broadcast_to(np.array(self.values[name]), shape).astype(NUMPY[kind])
            elif kind == "string":
                found[name] = np.full(shape, "a", object)
            elif kind == "float":
                found[name] = generator.uniform(0.5, 2, shape).astype("float32")
            else:
                found[name] = np.zeros(shape, NUMPY[kind])
        return found


def _agree(kind: str, left: int, right: int) -> bool:
    match kind:
        case "=":
            return left == right
        case ">":
            return left in (1, right)
        case "~":
            return left in (1, right) or right == 1
        case "<=":
            return left <= right
        case ">=":
            return left >= right
        case _:
            return left % right == 0


def joined(cases: Sequence[Case]) -> Case:
    """Return one case of several beside each other, with names of their own."""
    parts = [_renamed(case, f"c{number}_") for number, case in enumerate(cases)]
    return Case(
        " and ".join(case.name for case in cases),
        ", ".join(one.inputs for one in parts),
        ", ".join(one.outputs for one in parts),
        " ".join(one.body for one in parts),
        tuple(tie for one in parts for tie in one.ties),
        {name: value for one in parts for name, value in one.values.items()},
        ", ".join(one.initial for one in parts if one.initial),
        {name: value for one in parts for name, value in one.fixed.items()},
    )


_KEPT = re.compile(
    r"(?<![\w.])(?!float\b|int64\b|int32\b|uint8\b|bool\b|max\b)(?<!\")([a-z]\w*)(?![\w(=]|\s*=\s*[\[\"0-9])(?!->)"
)


def _renamed(case: Case, prefix: str) -> Case:
    """Return a case with a prefix before the names of its values and dimensions."""

    def new(text: str) -> str:
        return _KEPT.sub(lambda found: prefix + found[1], text)

    body = "".join(
        part if part.startswith("<") else new(part) for part in re.split(r"(<[^>]*(?:->)?[^>]*>)", case.body)
    )
    return Case(
        case.name, new(case.inputs), new(case.outputs), body, tuple(_renamed_tie(tie, prefix) for tie in case.ties),
        {prefix + name: value for name, value in case.values.items()}, _renamed_initial(case.initial, prefix),
        {prefix + name: value for name, value in case.fixed.items()},
    )  # fmt: skip


def _renamed_tie(text: str, prefix: str) -> str:
    return re.sub(r"(?!max\b)\b([a-z]\w*)", lambda found: prefix + found[1], text)


def _renamed_initial(text: str, prefix: str) -> str:
    return re.sub(r"(\w+(?:\[[^\]]*\])?) (\w+) =", lambda found: f"{found[1]} {prefix}{found[2]} =", text)


def _broadcast(operator: str, kind: str = "float", result: str = "float") -> Case:
    return Case(
        operator, f"{kind}[a,b] x, {kind}[c,d] y", f"{result}[?,?] z", f"z = {operator}(x, y)", ("c ~ a", "d ~ b")
    )


CASES = (
    Case("MatMul", "float[n,k] x, float[j,m] w", "float[?,?] y", "y = MatMul(x, w)", ("j = k",)),
    Case("MatMul-constant", "float[n,k] x", "float[?,?] y", "y = MatMul(x, w)", ("k = 4",),
         initial="float[4,2] w = {1,2,3,4,5,6,7,8}"),
    Case("MatMul-stacks", "float[a,n,k] x, float[b,j,m] w", "float[?,?,?] y", "y = MatMul(x, w)", ("b ~ a", "j = k")),
    Case("MatMul-vector", "float[k] x, float[b,j,m] w", "float[?,?] y", "y = MatMul(x, w)", ("j = k",)),
    Case("Gemm", "float[n,k] x, float[j,m] w", "float[?,?] y", "y = Gemm(x, w)", ("j = k",)),
    Case("Gemm-transposed", "float[k,n] x, float[m,j] w, float[c] b", "float[?,?] y",
         "y = Gemm<transA=1, transB=1>(x, w, b)", ("j = k", "c > m")),
    Case("Gemm-constant", "float[n,k] x", "float[?,?] y", "y = Gemm<transB=1>(x, w)", ("k = 4",),
         initial="float[2,4] w = {1,2,3,4,5,6,7,8}"),
    Case("Einsum", "float[n,k] x, float[j,m] w", "float[?,?] y", 'y = Einsum<equation="ij,jk->ik">(x, w)', ("j ~ k",)),
    Case("MatMulInteger", "uint8[n,k] x, uint8[j,m] w", "int32[?,?] y", "y = MatMulInteger(x, w)", ("j = k",)),
    Case("Concat-0", "float[a,n] x, float[b,m] w", "float[?,?] y", "y = Concat<axis=0>(x, w)", ("m = n",)),
    Case("Concat-1", "float[n,a] x, float[m,b] w", "float[?,?] y", "y = Concat<axis=1>(x, w)", ("m = n",)),
    Case("Concat-3", "float[n,a,p] x, float[m,b,q] w, float[o,c,r] v", "float[?,?,?] y",
         "y = Concat<axis=1>(x, w, v)", ("m = n", "q = p", "o = n", "r = p")),
    Case("Concat-number", "float[5,64] x, float[a,64] w", "float[?,?] y", "y = Concat<axis=1>(x, w)", ("a = 5",)),
    Case("Concat-token", "float[batch,4,8] x", "float[?,5,8] y", "y = Concat<axis=1>(t, x)", ("batch = 1",),
         initial="float[1,1,8] t = {1,2,3,4,5,6,7,8}"),
    Case("Conv-bias", "float[n,3,h,w] x, float[4,3,2,2] k, float[b] b0", "float[?,?,?,?] y", "y = Conv(x, k, b0)",
         ("b = 4",)),
    Case("Conv-channels", "float[n,c,h,w] x, float[4,3,2,2] k", "float[?,?,?,?] y", "y = Conv(x, k)", ("c = 3",)),
    Case("ConvTranspose", "float[n,3,h,w] x, float[3,4,2,2] k, float[b] b0", "float[?,?,?,?] y",
         "y = ConvTranspose(x, k, b0)", ("b = 4",)),
    Case("BatchNormalization", "float[n,c,h] x, float[p] s, float[q] b, float[r] m, float[t] v", "float[?,?,?] y",
         "y = BatchNormalization(x, s, b, m, v)", ("p = c", "q = c", "r = c", "t = c")),
    Case("InstanceNormalization", "float[n,3,h] x, float[p] s, float[q] b", "float[?,?,?] y",
         "y = InstanceNormalization(x, s, b)", ("p = 3", "q = 3")),
    Case("LayerNormalization", "float[n,c] x, float[p] s, float[q] b", "float[?,?] y",
         "y = LayerNormalization(x, s, b)", ("p > c", "q > c")),
    Case("GridSample", "float[n,2,h,w] x, float[m,p,q,2] g", "float[?,?,?,?] y", "y = GridSample(x, g)", ("m = n",)),
    Case("GatherND", "float[n,c,d] x, int64[m,k,1] i", "float[?,?,?] y", "y = GatherND<batch_dims=1>(x, i)",
         ("m = n",)),
    Case("GatherElements", "float[n,c] x, int64[m,k] i", "float[?,?] y", "y = GatherElements<axis=1>(x, i)",
         ("m <= n",)),
    Case("ScatterElements", "float[n,c] x, int64[m,k] i, float[p,q] u", "float[?,?] y",
         "y = ScatterElements<axis=1, reduction=\"add\">(x, i, u)", ("m <= n", "p = m", "q = k")),
    Case("ScatterND", "float[n,c] x, int64[m,1] i, float[p,q] u", "float[?,?] y",
         "y = ScatterND<reduction=\"add\">(x, i, u)", ("p = m", "q = c")),
    Case("OneHot", "int64[n] i, float[v] v0", "float[?,5] y", "y = OneHot(i, d, v0)", ("v = 2",),
         initial="int64 d = {5}"),
    Case("ReverseSequence", "float[t,n,c] x, int64[m] l", "float[?,?,?] y", "y = ReverseSequence(x, l)", ("m = n",),
         {"l": 2}),
    Case("PRelu", "float[n,c] x, float[p] s", "float[?,?] y", "y = PRelu(x, s)", ("p > c",)),
    Case("LSTM", "float[t,n,3] x, float[d,m,2] h", "float[?,?,?,?] y, float[?,?,?] z",
         "y, z = LSTM<hidden_size=2>(x, w, r, , , h)", ("d = 1", "m = n"),
         initial="float[1,8,3] w = {" + ",".join(["0.1"] * 24) + "}, "
                 "float[1,8,2] r = {" + ",".join(["0.2"] * 16) + "}"),
    Case("GRU-lengths", "float[t,n,3] x, int32[m] l", "float[?,?,?,?] y",
         "y = GRU<hidden_size=2>(x, w, r, , l)", ("m = n",), {"l": 1},
         initial="float[1,6,3] w = {" + ",".join(["0.1"] * 18) + "}, "
                 "float[1,6,2] r = {" + ",".join(["0.2"] * 12) + "}"),
    Case("Attention", "float[b,2,s,4] q, float[c,2,t,4] k, float[d,2,u,4] v", "float[?,2,?,4] y",
         "y = Attention(q, k, v)", ("c = b", "d = b", "u = t")),
    Case("Attention-mask", "float[b,2,s,4] q, float[b,2,t,4] k, float[b,2,t,4] v, float[m,p] a", "float[?,2,?,4] y",
         "y = Attention(q, k, v, a)", ("m > s", "p <= t")),
    Case("RotaryEmbedding", "float[b,2,s,4] x, float[c,t,2] cos, float[d,u,2] sin", "float[?,2,?,4] y",
         "y = RotaryEmbedding(x, cos, sin)", ("c = b", "t = s", "d = c", "u = t")),
    Case("QuantizeLinear", "float[n,c] x, float[p] s, uint8[q] z", "uint8[?,?] y",
         "y = QuantizeLinear<axis=1>(x, s, z)",
         ("p = c", "q = p")),
    Case("DequantizeLinear", "uint8[n,c] x, float[p] s", "float[?,?] y", "y = DequantizeLinear<axis=1>(x, s)",
         ("p = c",)),
    Case("Pad-amounts", "float[n,c] x, int64[p] a", "float[?,?] y", "y = Pad(x, a)", ("p = 4",)),
    Case("Pad-reflect", "float[2,n] x", "float[?,?] y", "y = Pad<mode=\"reflect\">(x, a)", ("n >= 5",),
         initial="int64[4] a = {0, 4, 0, 0}", fixed={}),
    Case("Reshape", "float[n,c] x", "float[3,4] y", "y = Reshape(x, s)", ("n = 3", "c = 4"),
         initial="int64[2] s = {3, 4}"),
    Case("Reshape-rest", "float[n] x", "float[?,4] y", "y = Reshape(x, s)", ("n % 4",), initial="int64[2] s = {-1, 4}"),
    Case("Split", "float[n,c] x", "float[2,?] y, float[3,?] z", "y, z = Split<axis=0>(x, s)", ("n = 5",),
         initial="int64[2] s = {2, 3}"),
    Case("Squeeze", "float[n,c] x", "float[?] y", "y = Squeeze(x, a)", ("n = 1",), initial="int64[1] a = {0}"),
    Case("TopK", "float[n,c] x", "float[?,3] y, int64[?,3] i", "y, i = TopK(x, k)", ("c >= 3",),
         initial="int64[1] k = {3}"),
    Case("Where", "bool[a,b] p, float[c,d] x, float[e,f] y", "float[?,?] z", "z = Where(p, x, y)",
         ("c ~ a", "d ~ b", "e ~ max(a, c)", "f ~ max(b, d)")),
    Case("Sum", "float[a] p, float[b] q, float[c] r, float[d] s, float[e] t", "float[?] z", "z = Sum(p, q, r, s, t)",
         ("b ~ a", "c ~ max(a, b)", "d ~ max(a, b, c)", "e ~ max(a, b, c, d)")),
    Case("Expand", "float[n,c] x", "float[3,4] y", "y = Expand(x, s)", ("n > 3", "c > 4"),
         initial="int64[2] s = {3, 4}"),
    Case("MaxUnpool", "float[n,c,3] x, int64[m,d,3] i", "float[?,?,6] y",
         "y = MaxUnpool<kernel_shape=[2], strides=[2]>(x, i)", ("m = n", "d = c")),
    *map(_broadcast, ("Add", "Mul", "Div", "Sub", "Pow")),
    _broadcast("Greater", result="bool"),
)  # fmt: skip
"""Those that a sample of every run compiles."""

RARE = (
    Case("ConvInteger", "uint8[n,c,h,w] x, uint8[p] z, uint8[q] v", "int32[?,?,?,?] y", "y = ConvInteger(x, k, s, v)",
         ("c = 3", "q = 2"), initial="uint8[2,3,1,1] k = {1,2,3,4,5,6}, uint8 s = {0}", fixed={"p": 1}),
    Case("QLinearConv", "uint8[n,c,h,w] x, float[p] s, int32[b] b0", "uint8[?,?,?,?] y",
         "y = QLinearConv(x, one, z, k, s, z, one, z, b0)", ("c = 3", "p = 2", "b = 2"),
         initial="uint8[2,3,1,1] k = {1,2,3,4,5,6}, float one = {1}, uint8 z = {0}"),
    Case("QLinearMatMul", "uint8[n,k] x, uint8[j,m] w", "uint8[?,?] y", "y = QLinearMatMul(x, o, z, w, o, z, o, z)",
         ("j = k",), initial="float o = {1}, uint8 z = {0}"),
    Case("GroupNormalization", "float[n,4,h] x, float[p] s, float[q] b", "float[?,?,?] y",
         "y = GroupNormalization<num_groups=2>(x, s, b)", ("p = 4", "q = 4")),
    Case("RMSNormalization", "float[n,c] x, float[p] s", "float[?,?] y", "y = RMSNormalization(x, s)", ("p > c",)),
    Case("RNN", "float[t,n,3] x, float[d,m,2] h", "float[?,?,?,?] y", "y = RNN<hidden_size=2>(x, w, r, , , h)",
         ("d = 1", "m = n"),
         initial="float[1,2,3] w = {.1,.1,.1,.1,.1,.1}, float[1,2,2] r = {.2,.2,.2,.2}".replace("{.", "{0.").replace(
             ",.", ",0.")),
    Case("TensorScatter", "float[n,1,t,2] x, float[m,1,s,2] u, int64[p] w", "float[?,1,?,2] y",
         "y = TensorScatter(x, u, w)", ("m = n", "s <= t", "p = n")),
    Case("STFT", "float[n,t,1] x, float[w] v", "float[?,?,?,2] y", "y = STFT(x, step, v, len)", ("w = 4", "t >= 4"),
         initial="int64 step = {2}, int64 len = {4}"),
    Case("Slice", "float[n,c] x, int64[p] s, int64[q] e", "float[?,?] y", "y = Slice(x, s, e)", ("q = p",),
         {"e": 2}, fixed={"p": 1}),
    Case("Tile", "float[n,c] x, int64[p] r", "float[?,?] y", "y = Tile(x, r)", ("p = 2",), {"r": 2}),
    Case("CenterCropPad", "float[n,c] x, int64[p] s", "float[?,?] y", "y = CenterCropPad(x, s)", ("p = 2",), {"s": 3}),
    Case("Det", "float[n,k,j] x", "float[?] y", "y = Det(x)", ("j = k",)),
    Case("DeformConv", "float[n,2,4,4] x, float[m,2,p,q] o", "float[?,?,?,?] y", "y = DeformConv(x, w, o)",
         ("m = n", "p = 4", "q = 4"), initial="float[1,2,1,1] w = {1,2}"),
    Case("Col2Im", "float[n,c,l] x", "float[?,?,4,4] y", "y = Col2Im(x, i, b)", ("c % 4", "l = 9"),
         initial="int64[2] i = {4,4}, int64[2] b = {2,2}"),
    Case("AffineGrid", "float[n,2,3] x", "float[3,4,4,2] y", "y = AffineGrid(x, s)", ("n = 3",),
         initial="int64[4] s = {3,1,4,4}"),
    Case("RoiAlign", "float[n,1,4,4] x, float[r,4] b, int64[s] i", "float[?,1,1,1] y", "y = RoiAlign(x, b, i)",
         ("s = r",)),
    Case("NonMaxSuppression", "float[n,k,4] b, float[m,c,j] s", "int64[?,3] y", "y = NonMaxSuppression(b, s, o)",
         ("m = n", "j = k"), initial="int64 o = {1}"),
    Case("Scan", "float[t,a] x, float[u,a] z", "float[?,?] y",
         "y = Scan<num_scan_inputs=2, body = b (float[?] p, float[?] q) => (float[?] v) { v = Add(p, q) }>(x, z)",
         ("u = t",)),
    Case("Resize", "float[n,c,h] x, float[p] s", "float[?,?,?] y", "y = Resize(x, , s)", ("p = 3",), {"s": 2}),
    *(_broadcast(one, "bool", "bool") for one in ("And", "Or", "Xor")),
    *(_broadcast(one, "uint8", "uint8") for one in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    *(_broadcast(one, result="bool") for one in ("Equal", "Less", "LessOrEqual", "GreaterOrEqual")),
    *map(_broadcast, ("Max", "Min", "Mean")),
    Case("Mod", "float[a,b] x, float[c,d] y", "float[?,?] z", "z = Mod<fmod=1>(x, y)", ("c ~ a", "d ~ b")),
    *(
        Case(f"{operator}", f"float r, int64 t, float[n,k] x, float[m,j] g{states}", results,
             f"{names} = {TRAINING}.{operator}<norm_coefficient=0.0{settings}>(r, t, x, g{given})",
             ("m = n", "j = k", *ties))
        for operator, states, given, results, names, settings, ties in (
            ("Adagrad", ", float[p,q] h", ", h", "float[?,?] y, float[?,?] z", "y, z", "", ("p = n", "q = k")),
            ("Momentum", ", float[p,q] v", ", v", "float[?,?] y, float[?,?] z", "y, z",
             ', alpha=0.9, beta=1.0, mode="standard"', ("p = n", "q = k")),
            ("Adam", ", float[p,q] v, float[u,w] h", ", v, h", "float[?,?] y, float[?,?] z, float[?,?] s", "y, z, s",
             "", ("p = n", "q = k", "u = n", "w = k")),
        )
    ),
    Case("MaxRoiPool", "float[n,c,4,4] x, float[r,p] b", "float[?,?,2,2] y", "y = MaxRoiPool<pooled_shape=[2,2]>(x, b)",
         ("p = 5",)),
    Case("StringConcat", "string[a,b] x, string[c,d] y", "string[?,?] z", "z = StringConcat(x, y)",
         ("c ~ a", "d ~ b")),
    Case("Upsample", "float[n,c,h] x, float[p] s", "float[?,?,?] y", "y = Upsample(x, s)", ("p = 3",), {"s": 2},
         opset=9),
    Case("BitShift", "uint8[a,b] x, uint8[c,d] y", "uint8[?,?] z", 'z = BitShift<direction="LEFT">(x, y)',
         ("c ~ a", "d ~ b")),
)  # fmt: skip
"""Those that conformance runs compile."""
