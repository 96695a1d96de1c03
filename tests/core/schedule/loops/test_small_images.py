"""Windows over small images, whose pixels are one axis: when, and that they are what the interpreter says."""

import numpy as np
import onnx
import pytest

import graft
from graft.core.machine.target import target_named
from graft.core.schedule.loops.flat_stages import Layout, flatten
from graft.core.schedule.loops.small_images import joined_pixels
from graft.core.schedule.strategies.nests.clipped_windows import schedule_pooling
from graft.core.tensor_ir.interpreting.interpreter import run_function, run_stages
from graft.core.tensor_ir.parser import parse_stages
from graft.core.tensor_ir.rewriting.simplify import Simplifier
from graft.core.tensor_ir.verifying.verifier import verify
from tests.core.schedule.strategies.nests.test_clipped_windows import kernel_of


def pool(height: int, width: int, kernel: tuple[int, int], pads: tuple[int, int], operator: str = "max") -> str:
    (a, c), (top, left) = kernel, pads
    inside = f"h + a - {top} >= 0 & h + a - {top} < {height} & w + b - {left} >= 0 & w + b - {left} < {width}"
    value = f"x[n, q, h + a - {top}, w + b - {left}; {inside}]"
    if operator == "max":
        value = f"select({inside}, {value}, float32(-inf))"
    pair = f"[{height}, {width}]"
    return f"""\
input x: float32[2, 3, {height}, {width}]
stage y: float32[2, 3, {height}, {width}] at (n, q, h, w) = reduce {operator} over a < {a}, b < {c} from \
float32({"-inf" if operator == "max" else 0.0}): {value}
  as pooling(windows = windows(source = {pair}, kernel = [{a}, {c}], target = {pair}, strides = [1, 1], \
dilations = [1, 1], begins = [{top}, {left}], ends = [{a - 1 - top}, {c - 1 - left}]))
"""


@pytest.mark.parametrize("target", ["x86-64-v4", "x86-64-v3", "armv8-a", "x86-64"])
@pytest.mark.parametrize("operator", ["max", "add"])
@pytest.mark.parametrize(
    ("height", "width", "kernel", "pads"),
    [
        (7, 7, (3, 3), (1, 1)), (5, 3, (3, 3), (1, 1)), (4, 4, (2, 2), (0, 1)), (1, 9, (1, 3), (0, 2)),
        (9, 11, (5, 5), (2, 2)), (3, 14, (2, 4), (1, 0)), (6, 8, (3, 1), (2, 0)),
    ],
)  # fmt: skip
def test_pixels_of_a_small_image_are_one_axis(height, width, kernel, pads, operator, target):
    made = kernel_of(pool(height, width, kernel, pads, operator))
    function = schedule_pooling(made, target_named(target)).function
    verify(function)
    x = np.random.default_rng(height).standard_normal((2, 3, height, width), np.float32)
    wanted = run_stages(made.stages, {made.inputs[0]: x})[made.outputs[0]]
    found = run_function(function, [x.reshape(-1)])[0].reshape(wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(
    ("text", "is_joined"),
    [
        (pool(7, 7, (3, 3), (1, 1)), True),
        (pool(60, 60, (3, 3), (1, 1)), False),  # large
        (pool(7, 7, (3, 3), (1, 1)).replace("w + b - 1", "2 * w + b - 1"), False),  # neighbours lie apart
        (pool(7, 7, (3, 3), (1, 1)).replace("7, 7]\n", "7, 9]\n"), False),  # rows are longer than those of the result
    ],
)
def test_pixels_are_joined_where_neighbours_lie_side_by_side(text, is_joined):
    (stage,) = parse_stages(text.split("  as")[0])
    simplifier = Simplifier()
    flat = flatten(stage, Layout(simplifier))
    joined = joined_pixels(flat, simplifier, 16)
    assert (joined is not None) == is_joined
    if joined is not None:
        assert [axis.extent for axis in joined.axes] == [2, 3, 49]


@pytest.mark.parametrize("node", ["MaxPool", "AveragePool", "AveragePool<count_include_pad=1>"])
@pytest.mark.parametrize("threads", [1, 2])
def test_whole_pools_are_those_of_the_reference(node, threads):
    x = np.random.default_rng(3).standard_normal((2, 40, 13, 13)).astype(np.float32)
    x[1, 7, 5, 6] = np.nan  # which stays
    operator, _, own = node.rstrip(">").partition("<")
    given = ", ".join(filter(None, [own, "kernel_shape = [5, 3], pads = [2, 1, 2, 1]"]))
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 22]> g (float[2,40,13,13] x) => (float[2,40,13,13] y) '
        f"{{ y = {operator}<{given}>(x) }}"
    )
    wanted, found = (graft.compile(model, [one], threads=threads, cache=False)(x) for one in ("reference", "llvm"))
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6)
    assert np.isnan(found).sum() == 15
