"""Knobs of kernels for devices: any give the same result, the model of cycles orders them, tuning measures them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import graft
from graft.compiler.api import compile_model
from graft.compiler.request import Request
from graft.core.machine.target import Target
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.parameters import (
    AttentionTileParameters,
    BlockParameters,
    BlockTileParameters,
    Parameters,
    from_json,
    to_json,
)
from graft.core.schedule.strategies.strategy import Anchor
from graft.errors import TuningError
from graft.plugins.cuda import module
from graft.plugins.cuda.backend import CudaBackend
from graft.plugins.cuda.machines import SM_80, SM_90
from graft.plugins.cuda.strategies.attention import STRATEGY, TILES
from graft.plugins.cuda.strategies.tiles import Problem, chosen, ranked
from tests.plugins.cuda.fake_driver import Emulated, build
from tests.plugins.cuda.graphs import graph, node, ran

RANDOM = np.random.default_rng(5)
NEAREST = BlockTileParameters(100, 1000, 3, 3, "warpgroup", stages=9, splits=3)
MODELS = {
    "product": graph(
        [node("MatMul", "x w", "a"), node("Relu", "a")],
        {"x": ("float32", [70, 512])},
        {"w": RANDOM.standard_normal((512, 66)).astype(np.float32)},
    ),
    "rows": graph([node("Softmax", "x")], {"x": ("float32", [6, 300])}),
    "elements": graph([node("Gelu", "x")], {"x": ("float32", [64, 96])}),
    "attention": graph(
        [node("MatMul", "x k", "s"), node("Softmax", "s", "p"), node("MatMul", "p v")],
        {"x": ("float32", [2, 70, 40])},
        {
            "k": RANDOM.standard_normal((2, 40, 130)).astype(np.float32),
            "v": RANDOM.standard_normal((2, 130, 24)).astype(np.float32),
        },
    ),
}


def inputs(name: str) -> dict[str, np.ndarray]:
    shape = [one.dim_value for one in MODELS[name].graph.input[0].type.tensor_type.shape.dim]
    return {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}


CHOICES: list[tuple[str, Parameters, str, int | str]] = [
    ("product", BlockTileParameters(64, 32, 4, 4, "thread", stages=2, splits=4), "block", "64x32x16"),
    ("product", BlockTileParameters(64, 32, 4, 4, "thread", stages=2, splits=4), "splits", 4),
    ("product", NEAREST, "block", "64x64x16"),
    ("rows", BlockParameters(threads=256), "threads", 256),
    ("rows", BlockParameters(threads=1), "threads", 32),
    ("elements", BlockParameters(lanes=2), "lanes", 2),
    ("elements", BlockParameters(lanes=64), "lanes", 4),
    *(("attention", tile, "queries", tile.queries) for tile in TILES),
    ("attention", AttentionTileParameters(1000, 5), "queries", 128),
    ("attention", AttentionTileParameters(1000, 5), "keys", 64),
]


@pytest.mark.parametrize(("name", "parameters", "knob", "value"), CHOICES)
def test_a_kernel_takes_the_knobs_that_are_wanted_or_the_nearest(
    name: str, parameters: Parameters, knob: str, value: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = CudaBackend.schedule
    monkeypatch.setattr(CudaBackend, "schedule", lambda self, kernel, target, _: own(self, kernel, target, parameters))
    found = ran(MODELS[name], inputs(name))
    assert found.schedules[0][knob] == value
    assert found.error < 2e-6


@pytest.mark.parametrize("tile", TILES, ids=lambda one: f"{one.queries}-{one.keys}")
def test_attention_by_tensor_instructions_is_right_in_any_tiles(
    tile: AttentionTileParameters, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = CudaBackend.schedule
    monkeypatch.setattr(CudaBackend, "schedule", lambda self, kernel, target, _: own(self, kernel, target, tile))
    found = ran(MODELS["attention"], inputs("attention"), precision="bf16")
    knobs = {"queries": tile.queries, "keys": tile.keys, "instruction": "mma_bfloat16"}
    assert knobs.items() <= found.schedules[0].items()
    assert found.error < 3e-2


@pytest.mark.parametrize(("precision", "count"), [("float32", 6), ("bf16", 9)])
def test_attention_has_a_candidate_for_each_tile_that_fits(
    precision: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    own = CudaBackend.schedule

    def schedule(self: CudaBackend, kernel: Kernel, target: Target, _: object) -> Scheduled:
        assert STRATEGY.candidates is not None
        found.append(len(STRATEGY.candidates(Anchor(kernel), target, 0)))
        return own(self, kernel, target, None)

    monkeypatch.setattr(CudaBackend, "schedule", schedule)
    ran(MODELS["attention"], inputs("attention"), precision=precision)
    assert found == [count]


@pytest.mark.parametrize("parameters", [NEAREST, BlockParameters(threads=64), TILES[3]])
def test_parameters_are_data(parameters: Parameters) -> None:
    assert from_json(to_json(parameters)) == parameters


def test_an_absent_unit_is_refused() -> None:
    text = to_json(NEAREST).replace("warpgroup", "cluster")
    with pytest.raises(TuningError) as caught:
        from_json(text)
    assert str(caught.value) == f"parameters {text!r} of a block_tile have no unit 'cluster'"


def test_the_model_of_cycles_wants_large_tiles_of_large_products_and_splits_narrow_ones() -> None:
    def best(rows: int, columns: int, terms: int):  # type: ignore[no-untyped-def]
        return chosen(Problem(rows, columns, terms, 1, 4, {"": True}), SM_80)

    large, narrow = best(4096, 4096, 4096), best(64, 64, 8192)
    assert large.rows * large.columns >= 64 * 128 and large.splits == 1
    assert narrow.splits > 1
    assert best(8, 4096, 4096).rows <= 16


def test_the_model_of_cycles_wants_a_third_stage_where_two_hide_nothing() -> None:
    """As an H200 has it: 798 us in two stages, 593 in three."""
    problem = Problem(4096, 4096, 4096, 1, 2, {"mma_bfloat16": True})
    first, *rest = (one for one in ranked(problem, SM_90) if one.own_columns == 32)
    assert first.stages == 3
    second = next(one for one in rest if replace(one, stages=3) == first)
    assert problem.cycles(second, SM_90) > 1.1 * problem.cycles(first, SM_90)


def test_the_model_of_cycles_knows_more_work_and_a_faster_device() -> None:
    def cycles(terms: int, machine=SM_80) -> float:  # type: ignore[no-untyped-def]
        problem = Problem(2048, 2048, terms, 1, 2, {"mma_float16": True})
        return problem.cycles(ranked(problem, machine)[0], machine)

    assert 1.8 < cycles(4096) / cycles(2048) < 2.2
    assert cycles(4096, SM_90) <= cycles(4096)
    problem = Problem(2048, 2048, 2048, 1, 2, {"mma_float16": True})
    costs = [problem.cycles(one, SM_80) for one in ranked(problem, SM_80)]
    assert costs == sorted(costs)


@pytest.fixture(scope="module")
def driver() -> Iterator[Path]:
    path = build()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAFT_CUDA_DRIVER", str(path))
        yield path


class Measured(Emulated):
    """Kernels of the emulator behind a driver: their times are none of a device, but they are measured as on one."""

    tune = CudaBackend.tune


def test_tuning_measures_candidates_on_the_device_and_compiles_with_the_best(driver: Path) -> None:
    model, feeds = MODELS["rows"], inputs("rows")
    report = compile_model(model, Request([Measured(), "llvm"], cache=False, threads=1, tune=30.0)).tuning
    assert report is not None and report.total == report.finished == 1
    (tuned,) = report.tuned
    assert tuned.seconds > 0
    own = graft.compile(model, [Measured(), "llvm"], cache=False, threads=1)
    knobs = [dict(call.schedule) for call in own.description.procedures[0].calls if call.schedule]
    assert tuned.parameters is None or knobs[0]["threads"] == getattr(tuned.parameters, "threads", None)
    (expected,) = graft.compile(model, ["reference"]).run(feeds).values()
    np.testing.assert_allclose(own(feeds["x"]), expected, rtol=1e-5)


def test_without_a_device_tuning_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "device_fault", lambda number=0: "no driver")
    with pytest.raises(TuningError) as caught:
        graft.compile(MODELS["rows"], ["cuda", "llvm"], cache=False, tune=1.0)
    assert str(caught.value).endswith(
        "tuning measures kernels on a device: no driver; compile without it, and the model of cycles decides"
    )
