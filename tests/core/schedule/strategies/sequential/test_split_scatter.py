"""Scatters of which no axis is an index: parts that threads share, the same bits for any number of threads."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graft
from graft.core.machine.rows import THUMBV7EM, X86_64_V3
from graft.core.schedule.strategies.sequential.split_scatter import split_scatter
from graft.core.tensor_ir.interpreting.interpreter import run_stages
from tests.core.schedule.strategies.sequential.test_sequential_loops import check, function_of

ADDED = """\
input x: float32[{width}]
input places: int64[{rows}, {count}]
input u: float32[{rows}, {count}]
stage y: float32[{width}] at (i) = x[i]
  scatter {operator} over k < {rows}, l < {count} at (places[k, l]): u[k, l]
"""


@pytest.mark.parametrize(
    ("rows", "count", "width", "operator", "parts"),
    [
        (8, 2500, 100, "add", 8),
        (3, 8000, 2900, "max", 8),
        (3, 8000, 3500, "add", 4),
        (4, 5001, 100, "mul", 4),
        (3, 6667, 100, "add", 1),  # no axis can be cut in equal parts
        (8, 2500, 9000, "add", 1),  # copies have more elements than there are updates
        (8, 2500, 100, "set", 1),
        (4, 200, 10, "add", 1),
    ],
)
def test_parts_of_updates_are_added_to_copies(rows: int, count: int, width: int, operator: str, parts: int) -> None:
    text = ADDED.format(rows=rows, count=count, width=width, operator=operator)
    kernel, _ = function_of(text)
    stages = [part for stage in kernel.stages for part in split_scatter(stage, X86_64_V3)]
    assert len(stages) == (2 if parts > 1 else 1)
    assert parts == 1 or stages[0].buffer.shape[0].value == parts
    rng = np.random.default_rng(0)
    places = rng.integers(0, width, (rows, count))
    values = {"x": rng.normal(size=width), "places": places, "u": rng.uniform(0.99, 1.01, (rows, count))}
    arrays = {one: values[one.name].astype(one.dtype) for one in kernel.inputs}
    (output,) = kernel.outputs
    np.testing.assert_allclose(run_stages(stages, arrays)[output], run_stages(kernel.stages, arrays)[output], rtol=1e-3)


def test_its_loops_do_what_it_says() -> None:
    check(
        ADDED.format(rows=8, count=2500, width=100, operator="max"), {"places": np.arange(20000).reshape(8, 2500) % 99}
    )


@pytest.mark.parametrize("backend", ["llvm", "c_source"])
def test_one_image_of_one_channel_has_the_same_bits_on_any_number_of_threads(backend: str) -> None:
    source = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 22]> g (float[1,1,64,64] x, int64[40000,4] i, float[40000] u)
        => (float[1,1,64,64] y) { y = ScatterND<reduction = "add">(x, i, u) }"""
    )
    rng = np.random.default_rng(0)
    given = {
        "x": rng.normal(size=(1, 1, 64, 64)).astype(np.float32),
        "i": rng.integers(0, (1, 1, 64, 64), (40000, 4)),
        "u": rng.normal(size=40000).astype(np.float32),
    }
    one, two, eight = (
        graft.compile(source, [backend], threads=threads, strict=True, cache=False).run(given)["y"]
        for threads in (1, 2, 8)
    )
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one, eight)
    expected = given["x"].astype(np.float64)
    np.add.at(expected, tuple(given["i"].T), given["u"])
    np.testing.assert_allclose(one, expected, atol=1e-5)


def test_a_machine_without_caches_has_no_room_for_copies() -> None:
    kernel, _ = function_of(ADDED.format(rows=8, count=2500, width=100, operator="add"))
    assert [*split_scatter(kernel.stages[0], THUMBV7EM)] == [kernel.stages[0]]
