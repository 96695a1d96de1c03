"""Models of seeds: the same bytes everywhere, valid, of what options allow, and smaller where they fail."""

from __future__ import annotations

from dataclasses import replace
from zlib import crc32

import hypothesis
import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, find, given, settings

from graft.testkit.models import __main__ as command
from graft.testkit.models import check as checks
from graft.testkit.models import run as running
from graft.testkit.models.check import Finding, difference, way_of, ways
from graft.testkit.models.model import RandomModel, draw_model, random_model
from graft.testkit.models.options import PLAIN, Options
from graft.testkit.models.reference import quietly
from graft.testkit.models.run import run_models, write
from graft.testkit.models.shrink import shrunk
from graft.testkit.models.source import Source
from graft.testkit.models.strategy import models

SEEDS = [2672509308, 782426628, 2539677376]
"""Checksums of the models of three seeds: a change says that no seed of an older report holds any more."""


def test_the_words_of_a_seed_are_those_of_splitmix64() -> None:
    source = Source(1234567)
    assert [source._word() for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_a_seed_gives_the_same_bytes_always() -> None:
    assert [crc32(random_model(seed).proto.SerializeToString()) for seed in (1, 2, 3)] == SEEDS


def test_every_model_is_valid_and_computes_what_it_says() -> None:
    for seed in range(30):
        model = random_model(seed)
        onnx.checker.check_model(model.proto, full_check=True)
        assert difference(model, model.expected) == ""


def test_options_limit_operators_and_types() -> None:
    wanted = Options(operators=frozenset({"Add", "Relu", "Transpose"}), types=(("float64", 1.0),), control=0)
    drawn = [random_model(seed, wanted) for seed in range(20)]
    assert {name for model in drawn for name in model.operators} == {"Add", "Relu", "Transpose"}
    kinds = {array.dtype for model in drawn for array in model.feeds.values() if array.dtype.kind == "f"}
    assert kinds == {np.dtype(np.float64)}


def test_options_give_special_values_symbols_and_bodies() -> None:
    wanted = Options(special=1, symbolic=1, control=1)
    drawn = [random_model(seed, wanted) for seed in range(60)]
    assert any(checks.is_real(array) and not np.isfinite(array.astype(float)).all()
               for model in drawn for array in model.feeds.values())  # fmt: skip
    assert any(isinstance(one, str) for model in drawn for dims in model.symbols.values() for one in dims)
    assert {"If", "Loop", "Scan"} <= {name for model in drawn for name in model.operators}


def test_a_loop_without_a_condition_runs_and_stacks_what_it_collects() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
        g (int64 n, float[2, 2] x) => (float[2, 2] y, float[n, 2, 2] all) {
            y, all = Loop (n, , x) <body = b (int64 i, bool c, float[2, 2] v)
                => (bool d, float[2, 2] u, float[2, 2] w) {
                d = Identity (c)
                u = Add (v, v)
                w = Identity (u) }> }""")
    y, every = quietly(proto, {"n": np.array(3), "x": np.ones((2, 2), np.float32)})
    np.testing.assert_array_equal(y, np.full((2, 2), 8))
    assert every.shape == (3, 2, 2)


def has(model: RandomModel, operator: str) -> bool:
    return any(node.op_type == operator for node in model.nodes)


def test_a_failing_model_shrinks_to_the_node_at_fault() -> None:
    model = next(one for one in map(draw_model, range(100)) if has(one, "Softmax"))
    assert [node.op_type for node in shrunk(model, lambda one: has(one, "Softmax")).nodes] == ["Softmax"]


def test_hypothesis_shrinks_the_choices() -> None:
    quick = settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck),
                     derandomize=True, phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink])  # fmt: skip
    small = replace(PLAIN, nodes=(1, 4), operators=frozenset({"Transpose", "Relu", "Neg", "Concat"}))
    model = find(models(small), lambda one: has(one, "Transpose"), settings=quick)
    assert set(model.operators) == {"Transpose"}


@settings(max_examples=5)
@given(models(PLAIN))
def test_models_of_hypothesis_are_valid(model: RandomModel) -> None:
    onnx.checker.check_model(model.proto, full_check=True)


def test_a_difference_says_where_and_how_far() -> None:
    model = draw_model(3)
    name = model.outputs[0]
    moved = {**model.expected, name: model.expected[name].astype(np.float64)}
    assert difference(model, moved).startswith(f"{name}: float64")


def test_every_kind_of_way_is_drawn() -> None:
    drawn = {way_of(seed) for seed in range(2000)}
    assert {"default", "mixed", "llvm", "reference", "-fusion", "-fold-constants"} <= drawn <= set(ways())


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(model: RandomModel, way: str) -> Finding | None:
        return Finding(model.seed, way, "wrong", "y: off") if has(model, "MatMul") else None

    monkeypatch.setattr(running, "check", fail)


@pytest.mark.usefixtures("failing")
def test_what_is_found_is_counted_and_written_with_two_lines_that_show_it_again(tmp_path) -> None:
    told: list[str] = []
    report = run_models(range(8), ("llvm",), PLAIN, out=tmp_path, tell=told.append)
    assert report.findings
    assert "found: wrong" in str(report)
    seed = report.findings[0].seed
    first, second = told[1].splitlines()
    assert first == f"python -m graft.testkit.models --seed {seed} --count 1 --backends=llvm"
    assert second.startswith(f"{tmp_path}/{seed}_llvm.onnx: 1 nodes, MatMul")
    assert [node.op_type for node in onnx.load(tmp_path / f"{seed}_llvm.onnx").graph.node] == ["MatMul"]


def test_a_model_and_its_arrays_can_be_written(tmp_path) -> None:
    model = draw_model(5)
    write(model, Finding(5, "-fusion", "wrong", ""), tmp_path)
    with np.load(tmp_path / "5_fusion.npz") as held:
        assert set(held) == {f"in:{name}" for name in model.inputs} | {f"out:{name}" for name in model.outputs}


def test_the_command_prints_counts(capsys) -> None:
    assert command.main(["--count", "2", "--seed", "7", "--backends", "reference", "--plain"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("2 models (2 to 12 rows, float32")
    assert "found: nothing" in out


def test_the_command_names_the_ways_there_are(capsys) -> None:
    assert command.main(["--backends", "none"]) == 2
    assert capsys.readouterr().err.startswith("there is no way 'none'; there are default, mixed, ")
