"""The smallest forms of what exported architectures do with open lengths: native, and right at every length."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import graft
from graft.errors import InputError

DIFFERENCES = """(int64[b,s] x) => (int64[b,t] y) {
  zero = Constant <value = int64[1] {0}> ()  one = Constant <value = int64[1] {1}> ()
  last = Constant <value = int64[1] {9223372036854775807}> ()
  first = Slice (x, zero, one, one)  before = Sub (first, one)  whole = Concat <axis = 1> (before, x)
  count = Shape <start = 1, end = 2> (whole)  shorter = Sub (count, one)
  right = Slice (whole, one, last, one)  left = Slice (whole, zero, shorter, one)  y = Sub (right, left)
}"""
"""``diff(position_ids, prepend=position_ids[:, :1] - 1)``, as every decoder has it that is exported without a mask."""
PADDED_AND_CUT = """(float[b,s,3] x) => (float[b,s,3] y) {
  zero = Constant <value = int64[1] {0}> ()  four = Constant <value = int64[1] {4}> ()
  axis = Constant <value = int64[1] {1}> ()  zeros = Constant <value = int64[1] {0}> ()
  count = Shape <start = 1, end = 2> (x)  negative = Neg (count)  rest = Mod (negative, four)
  pads = Concat <axis = 0> (zeros, rest)  padded = Pad (x, pads, , axis)  e = Exp (padded)
  cut = Slice (e, zero, count, axis)  y = Add (cut, x)
}"""
"""Windows of four: the image is padded to a multiple of them, and cut to its size again."""
IN_CHUNKS = """(float[b,s,4] x) => (float[b,s,4] y) {
  zero = Constant <value = int64[1] {0}> ()  eight = Constant <value = int64[1] {8}> ()
  axis = Constant <value = int64[1] {1}> ()  copied = Constant <value = int64[1] {0}> ()
  rest_of = Constant <value = int64[1] {-1}> ()  four = Constant <value = int64[1] {4}> ()
  batch = Shape <start = 0, end = 1> (x)  count = Shape <start = 1, end = 2> (x)
  negative = Neg (count)  rest = Mod (negative, eight)  pads = Concat <axis = 0> (copied, rest)
  padded = Pad (x, pads, , axis)  chunks = Concat <axis = 0> (batch, rest_of, eight, four)
  cut = Reshape (padded, chunks)  sums = CumSum (cut, two)  whole = Concat <axis = 0> (batch, rest_of, four)
  flat = Reshape (sums, whole)  y = Slice (flat, zero, count, axis)
}"""
"""Chunks of eight positions, as state space models sum them."""
LATEST = """(float[b,s,4] x, int64[n] kept) => (float[b,t,4] y) {
  last = Constant <value = int64[1] {9223372036854775807}> ()  axis = Constant <value = int64[1] {1}> ()
  count = Shape (kept)  begin = Neg (count)  y = Slice (x, begin, last, axis)
}"""
"""The last positions, as many as another input has."""
BAGS = """(float[b,s,4] x) => (int64[b] y) {
  zero = Constant <value = int64 {0}> ()  count = Shape <start = 1, end = 2> (x)  each = Squeeze (count)
  two = Constant <value = int64[1] {2}> ()  shape = Shape <start = 0, end = 2> (x)
  whole = ReduceProd <keepdims = 0> (shape)  y = Range (zero, whole, each)
}"""
"""Where each bag of indices begins, among all of them in one row (EmbeddingBag)."""
CASES = {
    "differences": DIFFERENCES, "padded and cut": PADDED_AND_CUT, "in chunks": IN_CHUNKS, "latest": LATEST,
    "bags": BAGS,
}  # fmt: skip


def parsed(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {text}')
    if "CumSum" in text:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(2), "two"))
    return model


@pytest.mark.parametrize("name", CASES)
def test_what_architectures_do_with_open_lengths_is_native(name: str) -> None:
    model = parsed(CASES[name])
    program, evaluator = graft.compile(model, ["llvm"], strict=True), ReferenceEvaluator(model)
    random = np.random.default_rng(0)
    for batch, length in ((1, 1), (2, 7), (3, 16), (1, 9)):
        feeds = {
            "x": random.integers(0, 9, (batch, length))
            if name == "differences"
            else random.standard_normal((batch, length, 4 if name != "padded and cut" else 3)).astype(np.float32)
        }
        if name == "latest":
            feeds["kept"] = np.zeros(5, np.int64)
        (wanted,) = evaluator.run(None, feeds)
        np.testing.assert_allclose(program.run(feeds)["y"], wanted, rtol=1e-5, atol=1e-6)


def test_lengths_that_agree_for_some_inputs_are_compared_at_the_call() -> None:
    model = parsed(
        """(float[b,4,t] x) => (float[b,8,u] y) {
          half = AveragePool <kernel_shape = [4], strides = [4]> (x)
          quarter = AveragePool <kernel_shape = [4], strides = [4]> (half)
          scales = Constant <value = float[3] {1.0, 1.0, 4.0}> ()  wide = Resize <mode = "nearest"> (quarter, , scales)
          y = Concat <axis = 1> (half, wide)
        }"""
    )
    program, evaluator = graft.compile(model, ["llvm"], strict=True), ReferenceEvaluator(model)
    x = np.random.default_rng(0).standard_normal((2, 4, 32)).astype(np.float32)
    np.testing.assert_allclose(program(x), evaluator.run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match=r"Concat \(node 'y'\): axis 2 of 'half' is 5 and axis 2 of 'wide' is 4"):
        program(x[:, :, :21])


@pytest.mark.parametrize("counts_padding", [0, 1])
def test_the_last_window_of_a_pool_may_hang_over_an_image_of_any_size(counts_padding: int) -> None:
    pool = (
        "AveragePool <kernel_shape = [5], strides = [3], pads = [1, 1], ceil_mode = 1,"
        f" count_include_pad = {counts_padding}>"
    )
    program = graft.compile(parsed(f"(float[b,2,s] x) => (float[b,2,t] y) {{ y = {pool} (x) }}"), ["llvm"])
    random = np.random.default_rng(0)
    for length in (1, 2, 6, 7, 8, 9, 14):
        x = random.standard_normal((2, 2, length)).astype(np.float32)
        np.testing.assert_allclose(program(x), averaged(x, counts_padding=bool(counts_padding)), rtol=1e-5, atol=1e-6)


def averaged(x: np.ndarray, *, counts_padding: bool) -> np.ndarray:
    """Means of windows of 5, a step of 3, with one zero at each end; what lies behind that one is no element."""
    padded, counted = (
        np.pad(x, [(0, 0), (0, 0), (1, 1)]),
        np.pad(np.ones(x.shape[-1]), 1, constant_values=counts_padding),
    )
    begins = range(0, x.shape[-1] + 1, 3)[: -(-(x.shape[-1] - 3) // 3) + 1]
    return np.stack([padded[..., at : at + 5].sum(-1) / counted[at : at + 5].sum() for at in begins], -1)


def test_an_axis_without_elements_is_resized_to_none_alone() -> None:
    sizes = "sizes = Constant <value = int64[4] {1, 2, 3, 4}> ()"
    text = f"(float[b,2,h,4] x) => (float[b,2,p,4] y) {{ {sizes} y = Resize (x, , , sizes) }}"
    program = graft.compile(parsed(text), ["llvm"])
    assert program(np.ones((1, 2, 2, 4), np.float32)).shape == (1, 2, 3, 4)
    with pytest.raises(InputError) as error:
        program(np.ones((1, 2, 0, 4), np.float32))
    assert str(error.value) == (
        "Resize (node 'y'): min('y'[2], 1) is 1 and axis 2 of 'x' is 0; the first must be at most the second"
    )


def test_an_image_without_pixels_is_sampled_among_zeros_alone() -> None:
    inputs, feeds = "float[1,1,h,3] x, float[1,2,2,2] grid", {"grid": np.zeros((1, 2, 2, 2), np.float32)}
    feeds["x"] = np.zeros((1, 1, 0, 3), np.float32)
    zeros, border = (
        graft.compile(parsed(f"({inputs}) => (float[1,1,2,2] y) {{ y = GridSample {settings} (x, grid) }}"), ["llvm"])
        for settings in ("", '<padding_mode = "border">')
    )
    assert not zeros.run(feeds)["y"].any()
    with pytest.raises(InputError) as error:
        border.run(feeds)
    assert str(error.value) == "GridSample (node 'y'): at least 1 is wanted where axis 2 of 'x' is 0"


JOINED = """(float[b,4,s,16] x) => (float[p,s,16] y) {
  four, depth = Split <num_outputs = 2> (sizes) length = Shape <start = 2, end = 3> (x)
  batch = Shape <start = 0, end = 1> (x) rows = Mul (batch, four) target = Concat <axis = 0> (rows, length, depth)
  y = Reshape (x, target) }"""


@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_a_computed_0_that_copies_what_is_none_is_an_error_of_the_call(backend: str) -> None:
    model = parsed(JOINED.replace("{\n", "{ sizes = Constant <value_ints = [4, 16]> ()\n", 1))
    program = graft.compile(model, [backend])
    for batch, length in ((2, 3), (2, 0), (0, 3)):
        assert program(np.ones((batch, 4, length, 16), np.float32)).shape == (4 * batch, length, 16)
    with pytest.raises(InputError) as error:
        program(np.ones((0, 4, 0, 16), np.float32))
    assert str(error.value) == (
        "Reshape (node 'y'): a computed 0 copies axis 1 of 'x', which is 4 and not 0; set allowzero to 1 to keep the 0"
    )


@pytest.mark.parametrize("backend", ["llvm", "reference"])
def test_a_computed_0_beside_an_inferred_extent_is_an_error_of_the_call(backend: str) -> None:
    """ONNX copies axis 2 and infers 0 for axis 1; what is inferred may be 0 itself."""
    model = parsed(
        """(float[b,3,h,w] x) => (float[b,n,w] y, float[b,m] z) {
        batch = Shape <start = 0, end = 1> (x) width = Shape <start = 3> (x) rest = Constant <value_ints = [-1]> ()
        to_y = Concat <axis = 0> (batch, rest, width) y = Reshape (x, to_y)
        to_z = Concat <axis = 0> (batch, rest) z = Reshape (x, to_z) }"""
    )
    program = graft.compile(model, [backend])
    for batch, height, width in ((2, 4, 5), (0, 4, 5), (2, 0, 5), (2, 0, 0)):
        y, z = program(np.ones((batch, 3, height, width), np.float32))
        assert (y.shape, z.shape) == ((batch, 3 * height, width), (batch, 3 * height * width))
    with pytest.raises(InputError) as error:
        program(np.ones((2, 3, 4, 0), np.float32))
    assert str(error.value) == (
        "Reshape (node 'y'): a computed 0 copies axis 2 of 'x', which is 4 and not 0; set allowzero to 1 to keep the 0"
    )


def test_blocks_of_any_batch_and_channels_are_added_in_compiled_code() -> None:
    """The unfolded patches of MobileViTv2."""
    numbers = "i = Constant <value_ints = [5, 4]> () k = Constant <value_ints = [2, 2]> ()"
    model = parsed(f"(float[n,c,12] x) => (float[n,d,5,4] y) {{ {numbers} y = Col2Im (x, i, k) }}")
    program = graft.compile(model, ["llvm"])
    for batch, channels in ((2, 2), (1, 3)):
        x = np.random.default_rng(batch).standard_normal((batch, 4 * channels, 12)).astype(np.float32)
        blocks, wanted = x.reshape(batch, channels, 2, 2, 4, 3), np.zeros((batch, channels, 5, 4), np.float32)
        for row, column in np.ndindex(2, 2):
            wanted[:, :, row : row + 4, column : column + 3] += blocks[:, :, row, column]
        np.testing.assert_allclose(program(x), wanted, rtol=1e-5, atol=1e-6)
