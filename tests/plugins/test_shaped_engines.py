"""Vendors whose engines are made for numbers, in models whose shapes vary."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser

import graft
from graft.errors import GraftError
from graft.plugins.shaped_engines import KEPT

MODEL = """<ir_version: 10, opset_import: ["" : 20]>
g (float[batch, seq, 4] x, float[4, 8] w) => (float[batch, rows, 8] y) <float[4, 8] w = {WEIGHTS}> {
  twice = Concat <axis = 1> (x, x)
  product = MatMul(twice, w)
  y = Relu(product)
}""".replace("WEIGHTS", ", ".join(map(str, range(32))))


class Counting(graft.JsonBackend):
    """Keeps the shapes that its engines were made for."""

    name = "counting"

    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []
        self.calls = 0

    @graft.supports("MatMul", "Relu", "Concat")
    def all(self, node: Any) -> bool:
        return True

    def load(self, graph: Any, constants: Any) -> Any:
        shapes = tuple(node.shape[0] for node in graph.nodes if node.op != "const")
        assert all(isinstance(size, int) for shape in shapes for size in shape)
        self.made.append(shapes)
        kernels = {"MatMul": np.matmul, "Relu": lambda a: np.maximum(a, 0)}

        def engine(inputs: Any) -> Any:
            self.calls += 1
            assert tuple(array.shape for array in inputs) == shapes[: len(inputs)]

            def kernel(node: Any, arrays: Any) -> Any:
                return [np.concatenate(arrays, 1) if node.name == "Concat" else kernels[node.name](*arrays)]

            return graph.run(inputs, constants, kernel)

        return engine


def compiled(backend: graft.JsonBackend) -> graft.Program:
    return graft.compile(parser.parse_model(MODEL), [backend], threads=1)


def expected(x: np.ndarray) -> np.ndarray:
    weights = np.arange(32, dtype=np.float32).reshape(4, 8)
    return np.maximum(np.concatenate([x, x], 1) @ weights, 0)


def sample(batch: int, seq: int) -> np.ndarray:
    return np.random.default_rng(batch + 10 * seq).standard_normal((batch, seq, 4)).astype(np.float32)


def test_an_engine_is_made_for_each_new_shape_and_gets_numbers() -> None:
    backend = Counting()
    program = compiled(backend)
    assert backend.made == []
    for batch, seq in ((2, 3), (1, 5), (2, 3)):
        np.testing.assert_allclose(program(sample(batch, seq)), expected(sample(batch, seq)), rtol=1e-6)
    made = [((b, s, 4), (b, 2 * s, 4), (b, 2 * s, 8), (b, 2 * s, 8)) for b, s in ((2, 3), (1, 5))]
    assert backend.made == made


def test_an_extent_of_zero_makes_no_engine_where_results_are_empty() -> None:
    backend = Counting()
    program = compiled(backend)
    assert program(sample(0, 3)).shape == (0, 6, 8)
    assert program(sample(2, 0)).shape == (2, 0, 8)
    assert (backend.made, backend.calls) == ([], 0)


def test_the_least_recently_used_engine_is_dropped() -> None:
    backend = Counting()
    program = compiled(backend)
    for seq in (*range(1, KEPT + 1), 1, KEPT + 1, 1, 2):
        program(sample(1, seq))
    assert [shapes[0][1] for shapes in backend.made] == [*range(1, KEPT + 1), KEPT + 1, 2]


def test_calls_at_the_same_time_make_one_engine_for_a_shape() -> None:
    backend = Counting()
    program = compiled(backend)
    lengths = [1 + number % 5 for number in range(40)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda seq: program(sample(2, seq)), lengths))
    for seq, found in zip(lengths, results, strict=True):
        np.testing.assert_allclose(found, expected(sample(2, seq)), rtol=1e-6)
    assert sorted(shapes[0][1] for shapes in backend.made) == [1, 2, 3, 4, 5]


def test_a_shape_that_the_engine_refuses_is_an_error_that_names_it() -> None:
    class Short(Counting):
        name = "short"

        def load(self, graph: Any, constants: Any) -> Any:
            if graph.inputs[0].shape[0][1] > 4:
                raise ValueError("at most 4 rows")
            return super().load(graph, constants)

    program = compiled(Short())
    program(sample(1, 4))
    with pytest.raises(GraftError) as caught:
        program(sample(1, 5))
    assert (
        "region 'short_0' cannot be loaded for batch = 1, seq = 5: ValueError: at most 4 rows; compile with dims in "
        "ranges that this backend takes, or on backends without it"
    ) in str(caught.value)
    program(sample(1, 4))


def test_a_symbolic_backend_gets_the_graph_with_its_symbols_once() -> None:
    class Symbolic(graft.JsonBackend):
        name = "symbolic"
        shapes = "symbolic"

        @graft.supports("Relu")
        def relu(self, node: Any) -> bool:
            return True

        def load(self, graph: Any, constants: Any) -> Any:
            self.shape = tuple(map(str, graph.inputs[0].shape[0]))
            return lambda inputs: [np.maximum(inputs[0], 0)]

    backend = Symbolic()
    program = graft.compile(parser.parse_model(MODEL), [backend, "reference"])
    assert backend.shape == ("batch", "product_1", "8")
    np.testing.assert_allclose(program(sample(2, 3)), expected(sample(2, 3)), rtol=1e-6)


def test_a_static_backend_is_not_asked_about_symbols() -> None:
    class Static(Counting):
        name = "static"
        shapes = "static"

        @graft.supports("MatMul", "Relu", "Concat")
        def all(self, node: Any) -> bool:
            assert all(value.static_shape is not None for value in (*node.inputs, *node.outputs))
            return True

    plan = graft.plan(parser.parse_model(MODEL), [Static(), "reference"])
    reasons = {row.op_type: row.reasons["static"] for row in plan.placements}
    assert str(reasons["MatMul"]) == "dynamic-shape: axis 0 of 'twice' is batch; static compiles static shapes"
    plan = graft.plan(parser.parse_model(MODEL), [Static(), "reference"], dims={"batch": 1, "seq": 2})
    assert {row.backend for row in plan.placements} == {"static"}


def test_an_artifact_keeps_the_shapes_as_programs(tmp_path: Path) -> None:
    compiled(Counting()).save(tmp_path / "model.graft")
    backend = Counting()
    program = graft.runtime.load(tmp_path / "model.graft", loaders=backend.module_loaders())
    np.testing.assert_allclose(program(sample(3, 2)), expected(sample(3, 2)), rtol=1e-6)
    assert len(backend.made) == 1


def test_what_shapes_are_called_is_checked() -> None:
    class Odd(Counting):
        name = "odd"
        shapes = "dynamic"  # type: ignore[assignment]

    with pytest.raises(GraftError) as caught:
        compiled(Odd())
    assert caught.value.message.endswith("has shapes = 'dynamic'; set it to one of symbolic, static, run-time")
