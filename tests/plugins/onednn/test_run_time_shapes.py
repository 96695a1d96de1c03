"""Regions of oneDNN whose shapes vary: primitives for the shapes that calls bring, the numbers of the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import graft
from graft.errors import GraftError
from graft.plugins.onednn import library
from graft.runtime.typical_shapes import shape_at

pytestmark = pytest.mark.skipif(library.open_library() is None, reason=library.MISSING)

HEADER = '<ir_version: 10, opset_import: ["" : 20]>'
IMAGE = """g (float[n, 3, h, w] x) => (float[n, c, p, q] y) {
  a = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, k1, b1)
  b = Relu(a)
  c = Conv <auto_pad = "SAME_UPPER", group = 8> (b, k2)
  d = Add(c, b)
  e = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], ceil_mode = 1> (d)
  f = AveragePool <kernel_shape = [2, 2], auto_pad = "SAME_LOWER"> (e)
  y = Concat <axis = 1> (f, e)
}"""
POOLED = """g (float[n, 3, h, w] x) => (float[n, 8, 1, 1] y) {
  a = Conv <pads = [1, 1, 1, 1]> (x, k1, b1)
  y = GlobalAveragePool(a)
}"""
DECODER = """g (float[batch, seq, 16] x, float[batch, past, 16] cache) => (float[a, t, 16] y, float[a, b, 16] kept) {
  wide = MatMul(x, w1)
  keys, values = Split <axis = 2, num_outputs = 2> (wide)
  kept = Concat <axis = 1> (cache, keys)
  transposed = Transpose <perm = [0, 2, 1]> (kept)
  scores = MatMul(values, transposed)
  weights = Softmax(scores)
  mixed = MatMul(weights, kept)
  added = Add(mixed, x)
  normal = LayerNormalization(added, scale, shift)
  tail = Slice(normal, start, end, axes)
  y = Gelu(tail)
}"""
FOLDED = """g (float[batch, seq, 4, 4] x) => (float[rows, 8] y) {
  flat = Reshape(x, target)
  z = Gemm <transB = 1> (flat, w2, b1)
  y = Tanh(z)
}"""
CONSTANTS: Mapping[str, Sequence[int]] = {
    "k1": (8, 3, 3, 3), "b1": (8,), "k2": (8, 1, 3, 3), "w1": (16, 32), "scale": (16,), "shift": (16,), "w2": (8, 16),
}  # fmt: skip
INTEGERS = {"start": [-2], "end": [100], "axes": [1], "target": [-1, 16]}
MODELS = {"image": IMAGE, "pooled": POOLED, "decoder": DECODER, "folded": FOLDED}


def model_of(text: str) -> onnx.ModelProto:
    """Return a model with the constants that its text reads."""
    model = parser.parse_model(HEADER + text)
    read = {name for node in model.graph.node for name in node.input}
    generator = np.random.default_rng(0)
    for name, shape in CONSTANTS.items():
        if name in read:
            array = generator.standard_normal(shape).astype(np.float32) / 4
            model.graph.initializer.append(numpy_helper.from_array(array, name))
    for name, values in INTEGERS.items():
        if name in read:
            model.graph.initializer.append(numpy_helper.from_array(np.array(values, np.int64), name))
    return model


def feeds_of(program: graft.Program, values: Mapping[str, int]) -> list[np.ndarray]:
    """Return arrays of the shapes that the symbols' values give the inputs."""
    generator = np.random.default_rng(sum(values.values()))
    entry = program.description.procedures[0]
    shapes = [shape_at(entry.tensors[index].shape or (), values) for index in entry.inputs]
    return [generator.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("threads", [1, 2])
def test_any_shape_gives_what_the_reference_gives(name: str, threads: int) -> None:
    model = model_of(MODELS[name])
    program = graft.compile(model, ["onednn", "reference"], threads=threads)
    assert program.description.metadata["summary"].startswith("onednn")
    reference = graft.compile(model, ["reference"])
    symbols = [symbol.name for symbol in program.description.procedures[0].symbols]
    assert symbols
    numbers = {"h": (9, 32), "w": (17,), "n": (1, 3), "batch": (1, 2), "seq": (1, 7), "past": (0, 1, 9)}
    for chosen in product(*(numbers[symbol] for symbol in symbols)):
        arrays = feeds_of(program, dict(zip(symbols, chosen, strict=True)))
        found, wanted = program(*arrays), reference(*arrays)
        for one, other in zip(_several(found), _several(wanted), strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5, err_msg=str(chosen))


def _several(results: object) -> tuple[np.ndarray, ...]:
    return results if isinstance(results, tuple) else (results,)  # type: ignore[return-value]


def test_what_has_no_elements_does_not_reach_the_library() -> None:
    model = model_of(DECODER)
    program, reference = graft.compile(model, ["onednn", "reference"]), graft.compile(model, ["reference"])
    for batch, seq, past in ((0, 3, 2), (2, 0, 3), (1, 0, 0), (0, 0, 0)):
        arrays = feeds_of(program, {"batch": batch, "seq": seq, "past": past})
        for one, other in zip(program(*arrays), reference(*arrays), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_product_over_no_elements_is_zero_and_its_sum_the_bias() -> None:
    text = """g (float[m, k] a, float[k, 8] b) => (float[m, 8] y) { p = MatMul(a, b) s = Add(p, b1) y = Relu(s) }"""
    program = graft.compile(model_of(text), ["onednn"])
    assert "onednn.matmul_bias_relu" in str(program.description.files["model.onnx"])
    for rows, depth in ((3, 0), (3, 2), (1, 0)):
        arrays = feeds_of(program, {"m": rows, "k": depth})
        bias = numpy_helper.to_array(model_of(text).graph.initializer[0])
        np.testing.assert_allclose(program(*arrays), np.maximum(arrays[0] @ arrays[1] + bias, 0), rtol=1e-4, atol=1e-5)


def test_a_mean_of_no_elements_is_an_error_that_names_node_and_shape() -> None:
    text = "g (float[n, 8, h, w] x) => (float[n, 8, 1, 1] y) { y = GlobalAveragePool(x) }"
    program = graft.compile(model_of(text), ["onednn"])
    with pytest.raises(GraftError) as caught:
        program(np.ones((2, 8, 0, 3), np.float32))
    assert (
        "region 'onednn_0', GlobalAveragePool (node 'y'): it computes nothing from 'x', which is of shape [2,8,0,3] "
        "(n = 2, h = 0, w = 3)"
    ) in str(caught.value)
    assert program(np.ones((2, 8, 1, 3), np.float32)).shape == (2, 8, 1, 1)


def test_more_shapes_than_are_kept_and_the_first_again() -> None:
    model = model_of(FOLDED)
    program, reference = graft.compile(model, ["onednn"], threads=1), graft.compile(model, ["reference"])
    for seq in (*range(1, 25), 1, 2, 24):
        arrays = feeds_of(program, {"batch": 1, "seq": seq})
        np.testing.assert_allclose(program(*arrays), reference(*arrays), rtol=1e-4, atol=1e-5)


def test_calls_at_the_same_time_with_several_shapes() -> None:
    model = model_of(DECODER)
    program, reference = graft.compile(model, ["onednn"], threads=1), graft.compile(model, ["reference"])
    shapes = [{"batch": 1 + n % 2, "seq": 1 + n % 3, "past": n % 20} for n in range(120)]
    arrays = [feeds_of(program, values) for values in shapes]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda given: program(*given), arrays))
    for given, found in zip(arrays[:60], results[:60], strict=True):
        np.testing.assert_allclose(found[0], reference(*given)[0], rtol=2e-4, atol=2e-5)


def test_an_artifact_runs_new_shapes(tmp_path: Path) -> None:
    model = model_of(IMAGE)
    graft.compile(model, ["onednn"]).save(tmp_path / "image.graft")
    program, reference = graft.runtime.load(tmp_path / "image.graft"), graft.compile(model, ["reference"])
    for values in ({"n": 1, "h": 20, "w": 9}, {"n": 2, "h": 7, "w": 64}):
        arrays = feeds_of(program, values)
        np.testing.assert_allclose(program(*arrays), reference(*arrays), rtol=2e-4, atol=2e-5)


def test_the_graph_says_shapes_as_programs() -> None:
    program = graft.compile(model_of(FOLDED), ["onednn"])
    (module,) = program.description.modules
    assert b'"symbols":[{"name":"batch","input":0,"axis":0},{"name":"seq","input":0,"axis":1}]' in module.data
    assert b'"extents":[["mul","s0","s1"]]' in module.data


def test_means_that_count_pads_in_windows_beyond_the_image_are_left_to_others_where_extents_are_open() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 22]>
        g (float[1,1,n] x) => (float[1,1,m] y) {
            y = AveragePool <ceil_mode = 1, count_include_pad = 1, kernel_shape = [3], pads = [1, 1],
                             strides = [3]> (x) }""")
    plan = graft.plan(model, ["onednn", "reference"])
    assert str(plan["y"].reasons["onednn"]) == (
        "dynamic-shape: ceil_mode with count_include_pad counts as the extents say"
    )
    x = np.ones((1, 1, 15), np.float32)
    np.testing.assert_allclose(graft.compile(model)(x).ravel(), [2 / 3, 1, 1, 1, 1, 0.5])
