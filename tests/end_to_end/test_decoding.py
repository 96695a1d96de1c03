"""One step of decoding, a sequence of length 1, by the default choice of backends: every layout is ambiguous there."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

import graft
from tests.plugins.onednn.models import needs_library

WIDTH, HEADS, KEYS, SIZE, PAST, LAYERS = 32, 4, 2, 8, 5, 2


def layer(number: int, head_norms: bool) -> str:
    """Return a layer with grouped queries, rotary positions, a cache of keys and values, and a gated product."""

    def norm(source: str, result: str, weight: str) -> str:
        return f"""
        {result}_p = Pow({source}, two) {result}_m = ReduceMean<keepdims = 1>({result}_p, last)
        {result}_e = Add({result}_m, epsilon) {result}_s = Sqrt({result}_e) {result}_r = Div(one, {result}_s)
        {result}_n = Mul({source}, {result}_r) {result} = Mul({weight}, {result}_n)"""

    def heads(name: str, count: str) -> str:
        found = f"""
        {name}l = MatMul(a{number}, w{name[0]}{number}) {name}v = Reshape({name}l, {count})"""
        source = f"{name}v"
        if head_norms and not name.startswith("v"):
            found += norm(f"{name}v", f"{name}h", f"g{name[0]}{number}")
            source = f"{name}h"
        return f"{found} {name}t = Transpose<perm = [0, 2, 1, 3]>({source})"

    def rotated(name: str) -> str:
        return f"""
        {name}a = Slice({name}t, zero, half, end) {name}b = Slice({name}t, half, most, end) {name}c = Neg({name}b)
        {name}d = Concat<axis = -1>({name}c, {name}a) {name}e = Mul({name}t, cos) {name}f = Mul({name}d, sin)
        {name}o = Add({name}e, {name}f)"""

    q, k, v, i = f"q{number}", f"k{number}", f"v{number}", number
    return f"""
    {norm(f"x{i}", f"a{i}", f"ga{i}")} {heads(q, "queries")} {heads(k, "keys")} {heads(v, "keys")}
    {rotated(q)} {rotated(k)}
    present_k{i} = Concat<axis = 2>(past_k{i}, {k}o) present_v{i} = Concat<axis = 2>(past_v{i}, {v}t)
    {k}u = Unsqueeze(present_k{i}, two_axis) {k}x = Expand({k}u, groups) {k}g = Reshape({k}x, all)
    {v}u = Unsqueeze(present_v{i}, two_axis) {v}x = Expand({v}u, groups) {v}g = Reshape({v}x, all)
    {k}z = Transpose<perm = [0, 1, 3, 2]>({k}g) s{i} = MatMul({q}o, {k}z) c{i} = Mul(s{i}, scale) m{i} = Add(c{i}, mask)
    p{i} = Softmax<axis = -1>(m{i}) o{i} = MatMul(p{i}, {v}g) y{i} = Transpose<perm = [0, 2, 1, 3]>(o{i})
    z{i} = Reshape(y{i}, joined) r{i} = MatMul(z{i}, wo{i}) h{i} = Add(x{i}, r{i})
    {norm(f"h{i}", f"b{i}", f"gb{i}")}
    t{i} = MatMul(b{i}, wt{i}) u{i} = MatMul(b{i}, wu{i}) i{i} = Sigmoid(t{i}) j{i} = Mul(t{i}, i{i})
    n{i} = Mul(j{i}, u{i}) d{i} = MatMul(n{i}, wd{i}) x{i + 1} = Add(h{i}, d{i})"""


def decoder(head_norms: bool) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a decoder's step and its inputs; ``head_norms`` as in Qwen3 and Gemma 3."""
    caches = [f"past_{kind}{number}" for number in range(LAYERS) for kind in "kv"]
    inputs = ", ".join(f"float[1,{KEYS},{PAST},{SIZE}] {name}" for name in caches)
    outputs = ", ".join(f"float[1,{KEYS},{PAST + 1},{SIZE}] {name.replace('past', 'present')}" for name in caches)
    body = "".join(layer(number, head_norms) for number in range(LAYERS))
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> decoder (float[1,1,{WIDTH}] x0, '
        f"float[1,1,1,{PAST + 1}] mask, {inputs}) => (float[1,1,{WIDTH}] x{LAYERS}, {outputs}) {{ {body} }}"
    )
    rng = np.random.default_rng(0)
    constants = {name: np.float32(value) for name, value in
                 {"two": 2, "one": 1, "epsilon": 1e-6, "scale": SIZE**-0.5}.items()}  # fmt: skip
    whole = {
        "last": [-1], "zero": [0], "half": [SIZE // 2], "most": [2**62], "end": [-1], "two_axis": [2],
        "queries": [1, 1, HEADS, SIZE], "keys": [1, 1, KEYS, SIZE], "joined": [1, 1, HEADS * SIZE],
        "groups": [1, KEYS, HEADS // KEYS, PAST + 1, SIZE], "all": [1, HEADS, PAST + 1, SIZE],
    }  # fmt: skip
    shapes = {"cos": (1, 1, 1, SIZE), "sin": (1, 1, 1, SIZE)}
    for i in range(LAYERS):
        shapes |= {
            f"wq{i}": (WIDTH, HEADS * SIZE), f"wk{i}": (WIDTH, KEYS * SIZE), f"wv{i}": (WIDTH, KEYS * SIZE),
            f"wo{i}": (HEADS * SIZE, WIDTH), f"wt{i}": (WIDTH, 48), f"wu{i}": (WIDTH, 48), f"wd{i}": (48, WIDTH),
            f"ga{i}": (WIDTH,), f"gb{i}": (WIDTH,), f"gq{i}": (SIZE,), f"gk{i}": (SIZE,),
        }  # fmt: skip
    constants |= {name: np.array(value, np.int64) for name, value in whole.items()}
    constants |= {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    read = {name for node in model.graph.node for name in node.input}
    for name, value in constants.items():
        if name in read:
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    feeds = {
        value.name: rng.normal(size=[one.dim_value for one in value.type.tensor_type.shape.dim]).astype(np.float32)
        for value in model.graph.input
    }
    return model, feeds


@needs_library
@pytest.mark.parametrize("backends", [None, ["onednn", "llvm"], ["onednn", "reference"], ["llvm"]], ids=str)
@pytest.mark.parametrize("head_norms", [False, True], ids=["as Qwen2", "as Qwen3"])
def test_a_decoding_step_is_right(head_norms, backends):
    model, feeds = decoder(head_norms)
    expected = ReferenceEvaluator(model).run(None, feeds)
    program = graft.compile(model, backends, strict=True)
    for _ in range(2):
        got = program.run(feeds)
        for value, wanted in zip(model.graph.output, expected, strict=True):
            np.testing.assert_allclose(got[value.name], wanted, rtol=1e-3, atol=1e-4)
