"""Large windows in two parts: when, and that they are the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import graft
from graft.core.operators.definition import build as b
from graft.core.schedule.loops.separable import separated
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from graft.core.tensor_ir.ir import Stage
from graft.core.tensor_ir.parser import parse_stages
from graft.core.tensor_ir.visit import loads

INSIDE = "h + a - 2 >= 0 & h + a - 2 < 9 & w + 2 * b - 1 >= 0 & w + 2 * b - 1 < 21"
LARGE = f"""\
input x: float32[3, 9, 21]
stage y: float32[3, 9, 15] at (n, h, w) = reduce max over a < 9, b < 4 from float32(-inf): \
select({INSIDE}, x[n, h + a - 2, w + 2 * b - 1; {INSIDE}], float32(-inf))
"""


def test_a_large_window_is_reduced_along_its_rows_first() -> None:
    (stage,) = parse_stages(LARGE)
    parts = separated(stage, 16)
    assert parts is not None
    assert [len(one.reduction.axes) for one in parts if one.reduction is not None] == [1, 1]
    check_same(stage, parts)


def test_the_axis_of_the_second_part_may_be_chosen() -> None:
    (stage,) = parse_stages(LARGE.replace("2 * b", "b"))
    parts = separated(stage, 16, 0)
    assert parts is not None
    assert parts[0].buffer.shape == tuple(map(b.index, (3, 17, 15)))
    check_same(stage, parts)


def check_same(stage: Stage, parts: Sequence[Stage]) -> None:
    (source,) = {load.buffer for load in loads(stage.value)}
    x = np.random.default_rng(1).standard_normal((3, 9, 21), np.float32)
    wanted, found = (run_stages(list(one), {source: x}) for one in ((stage,), parts))
    np.testing.assert_array_equal(found[parts[-1].buffer], wanted[stage.buffer])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a < 9, b < 4", "a < 3, b < 3"),  # small
        ("x[n, h + a - 2, w + 2 * b - 1;", "x[n, h + a - 2, w + 2 * b - 1 + w / 2;"),  # no window
        ("stage y: float32[3, 9, 15]", "stage y: float32[3, 9, 1]"),  # nothing lies beside
    ],
)
def test_what_would_not_gain_stays_whole(old: str, new: str) -> None:
    (stage,) = parse_stages(LARGE.replace(old, new))
    assert separated(stage, 16) is None


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    "attributes",
    [
        "kernel_shape = [5, 5], pads = [2, 2, 2, 2]",
        "kernel_shape = [7, 7], strides = [7, 7]",
        "kernel_shape = [4, 6], strides = [2, 3], pads = [1, 2, 3, 1]",
        "kernel_shape = [9, 3], strides = [1, 2]",
        "kernel_shape = [5, 4], dilations = [2, 3], pads = [3, 0, 1, 2]",
    ],
)
def test_pools_of_large_windows_are_those_of_the_reference(operator: str, attributes: str) -> None:
    x = np.random.default_rng(2).standard_normal((2, 3, 28, 29)).astype(np.float32)
    if operator == "MaxPool":
        x[0, 1, 5, 7] = np.nan  # which stays
    node = f"y = {operator} <{attributes}> (x)"
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 22]> g (float[2,3,28,29] x) => (float[n,c,h,w] y) {{ {node} }}'
    )
    wanted = ReferenceEvaluator(model).run(None, {"x": np.nan_to_num(x)})[0]
    found = graft.compile(model, ["llvm"], threads=1, cache=False)(x)
    known = ~np.isnan(found)
    np.testing.assert_allclose(found[known], wanted[known], rtol=2e-6, atol=2e-6)
    assert known.all() == (operator != "MaxPool")
