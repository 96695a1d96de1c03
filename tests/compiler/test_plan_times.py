"""Placement by times that are measured on this machine, and the promises of placement by cost on real models."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from time import perf_counter

import onnx_ir as ir
import pytest

import graft
import graft.compiler.plan_times as plan_times
from benchmarks.zoo import path_of
from graft.compiler.api import program_of
from graft.compiler.compile_options import compile_options
from graft.compiler.driver import prepare
from graft.compiler.plan_times import MeasuredPlans, default_database, times_here
from graft.compiler.request import choose, placed
from graft.core.operators.all import OPERATORS
from graft.errors import PlanError
from graft.partition.costs import value_bytes
from graft.partition.placement.cost_search import handed_over
from graft.partition.placement.estimators import Estimator, Roofline
from graft.partition.placement.partitioner import Partitioned, partition
from graft.partition.policy import Policy
from graft.partition.region import Region, regions
from graft.plugins.backend import Backend
from graft.runtime.procedure import Module


def priced(result: Partitioned, estimator: Estimator) -> float:
    moved = sum(estimator.copy_seconds(value_bytes(value, {})) for value in handed_over(result.model))
    return sum(map(estimator.region_seconds, regions(result.model))) + moved


def rivals(model: ir.Model, backends: Sequence[Backend]) -> list[Partitioned]:
    """Return the greedy plan and those of each single backend, with the last one to take what is left."""
    *vendors, rest = backends
    return [partition(model, backends), *(partition(model, [one, rest]) for one in vendors)]


def available(*names: str) -> list[Backend]:
    chosen = choose(names)
    for one in chosen:
        reason = one.available()
        if reason is not None:
            pytest.skip(reason)
    return chosen


def measuring(backends: Sequence[Backend], database: Path, seconds: float = 10.0) -> MeasuredPlans:
    load = partial(program_of, threads=1, backends=backends)
    return times_here(backends, compile_options(1, False), load, seconds, database)


def prices(backends: Sequence[Backend]) -> Roofline:
    return Roofline(backends, OPERATORS)


@pytest.mark.parametrize("name", ["light_squeezenet", "lstm", "light_shufflenet"])
@pytest.mark.parametrize("names", [("onednn", "llvm"), ("onednn", "llvm", "reference")])
def test_the_model_never_chooses_a_plan_that_it_holds_dearer(name: str, names: tuple[str, ...]) -> None:
    backends, model = available(*names), prepare(str(path_of(name)))
    estimator = prices(backends)
    found = partition(model, backends, policy=Policy(placement="model", search_budget=12))
    alone = partition(model, [one for one in backends if one.name != "onednn"])
    assert priced(found, estimator) <= priced(alone, estimator) * (1 + 1e-9)
    for rival in rivals(model, backends):
        assert priced(found, estimator) <= priced(rival, estimator) / (1 - estimator.margin) * (1 + 1e-9)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["bert_base", "light_resnet50", "mobilenet_v2", "llama", "light_shufflenet"])
def test_from_nothing_a_vendor_that_is_not_known_to_be_faster_gets_nothing(name: str, threads: int) -> None:
    backends, model = available("onednn", "llvm", "reference"), prepare(str(path_of(name)))
    estimator = Roofline(backends, OPERATORS, threads)
    plan = partition(model, backends, policy=Policy(placement="auto"), estimator=estimator).plan
    assert plan.coverage("onednn") == 0


MEASURED = Policy(placement="measured", search_budget=3)


def test_measuring_never_chooses_a_plan_that_it_measured_slower(tmp_path: Path) -> None:
    backends, model = available("onednn", "llvm", "reference"), prepare(str(path_of("digits")))
    clock = measuring(backends, tmp_path / "times.sqlite3")
    found = clock.recorded(partition(model, backends, policy=MEASURED, times=clock))
    alone = clock.recorded(partition(model, backends[1:]))
    assert found is not None
    assert alone is not None
    assert 0 < found <= alone < math.inf


@dataclass
class Counting(Backend):
    """A backend that counts what it is asked to compile, and can fail."""

    inner: Backend
    failing: bool = False
    compiled: list[str] = field(default_factory=list)
    name = "counting"

    def supports(self, node: object) -> bool:
        return getattr(node, "op_type", "") == "Relu"

    def compile(self, region: Region, options: object) -> Module:
        self.compiled.append(region.name)
        if self.failing:
            raise OSError("no license")
        made = self.inner.compile(region, compile_options(1, False))
        assert isinstance(made, Module)
        return made


def test_a_plan_is_measured_once_and_known_to_the_next_process(tmp_path: Path) -> None:
    model = prepare(str(path_of("digits")))
    (reference,) = choose(["reference"])
    for expected in (True, False):
        counting = Counting(reference)
        backends = choose([counting, "reference"])
        partition(model, backends, policy=MEASURED, times=measuring(backends, tmp_path / "times.sqlite3"))
        assert bool(counting.compiled) is expected


def test_no_region_is_compiled_after_the_time_for_measuring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "(float[4] x) => (float[4] y) { a = Relu(x) b = Exp(a) y = Relu(b) }"
    model = prepare(ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 21]> g {body}'))
    (reference,) = choose(["reference"])
    counting, start = Counting(reference), perf_counter()
    monkeypatch.setattr("graft.compiler.plan_times.perf_counter", lambda: start + 60 * len(counting.compiled))
    backends = choose([counting, "reference"])
    clock = measuring(backends, tmp_path / "times.sqlite3")
    clock.measure([partition(model, [reference]), partition(model, backends)])
    assert len(counting.compiled) == 1
    assert not clock.times


def test_what_was_measured_is_found_again_by_auto_which_measures_nothing(tmp_path: Path) -> None:
    model = prepare(str(path_of("digits")))
    (reference,) = choose(["reference"])
    backends = choose([Counting(reference), "reference"])
    measured = partition(model, backends, policy=MEASURED, times=measuring(backends, tmp_path / "times.sqlite3"))
    counting = Counting(reference, failing=True)
    backends = choose([counting, "reference"])
    clock = measuring(backends, tmp_path / "times.sqlite3")
    found = partition(model, backends, policy=Policy(placement="auto", search_budget=3), times=clock)
    assert counting.compiled == []
    assert [row.backend for row in found.plan.placements] == [row.backend for row in measured.plan.placements]


def test_what_cannot_be_compiled_is_not_chosen_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (reference,) = choose(["reference"])
    counting = Counting(reference, failing=True)
    backends = choose([counting, "reference"])
    clock = measuring(backends, tmp_path / "times.sqlite3")
    plan = partition(prepare(str(path_of("digits"))), backends, policy=MEASURED, times=clock).plan
    assert plan.coverage("counting") == 0
    assert (
        "a plan cannot be measured: plugin 'counting' raised OSError in compile of region 'counting_0': no license"
    ) in caplog.messages


def test_without_time_nothing_but_the_first_plan_is_compiled(tmp_path: Path) -> None:
    (reference,) = choose(["reference"])
    counting = Counting(reference)
    backends = choose([counting, "reference"])
    clock = measuring(backends, tmp_path / "times.sqlite3", seconds=0.0)
    plan = partition(prepare(str(path_of("digits"))), backends, policy=MEASURED, times=clock).plan
    assert counting.compiled == []
    assert plan.coverage("counting") == 0


def test_a_damaged_database_knows_nothing_and_stops_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "times.sqlite3").write_bytes(b"no database at all, however long it may be" * 100)
    backends = choose(["reference"])
    clock = measuring(backends, tmp_path / "times.sqlite3")
    assert clock.recorded(partition(prepare(str(path_of("digits"))), backends)) is None
    assert str(tmp_path / "times.sqlite3") in caplog.text


def test_the_database_is_in_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_database() == tmp_path / "graft" / "times.sqlite3"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_database() == tmp_path / ".cache" / "graft" / "times.sqlite3"


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(PlanError) as caught:
        graft.plan(str(path_of("digits")), ["reference"], place="best")  # type: ignore[arg-type]
    assert str(caught.value) == "unknown placement 'best'; choose one of auto, greedy, model, measured"
    assert placed(Policy(placement="model"), None).placement == "model"


@pytest.mark.parametrize(("named", "mode"), [(True, None), (False, "auto")])
def test_named_backends_are_taken_in_order_and_unnamed_ones_by_cost(named: bool, mode: str | None) -> None:
    assert placed(None, None, named=named).placement == mode
    assert placed(Policy(), None, named=named).placement == mode
    assert placed(Policy(placement="greedy"), None, named=named).placement == "greedy"
    assert placed(Policy(placement="greedy"), "auto", named=named).placement == "auto"


def test_a_time_is_of_the_devices_that_it_was_measured_with(tmp_path: Path) -> None:
    options = compile_options(1, False)
    card = replace(options.target.machine, name="card")
    beside = replace(options, target=replace(options.target, devices=(card,)))
    alone, other = (times_here([], one, program_of, 1.0, tmp_path / "times").machine for one in (options, beside))
    assert other == f"{alone} beside card"


def test_a_call_is_faster_that_is_so_in_three_turns_of_four(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(plan_times, "perf_counter", lambda: clock[0])

    def call(*milliseconds: int) -> Callable[[], None]:
        turns = cycle(milliseconds)
        return lambda: clock.__setitem__(0, clock[0] + next(turns) / 1000)

    cases = ((call(2), True), (call(1, 1, 16), False), (call(2, 2, 2, 2, 16), True), (call(8), False))
    for second, is_faster in cases:
        own, theirs = plan_times.in_turns(call(4), second, math.inf)
        assert (round(1000 * own), theirs < own) == (4, is_faster)
