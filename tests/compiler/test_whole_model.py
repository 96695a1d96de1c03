"""What becomes of what tuning has found where the whole model is slower with it."""

from __future__ import annotations

import pytest

from graft.compiler import whole_model
from graft.compiler.api import compile_model, times_for
from graft.compiler.request import Request
from graft.core.machine.target import host_target, tuned_database
from graft.core.schedule.parameters import ContractionParameters
from graft.core.schedule.products.tile_candidates import best_tiles
from graft.core.tuning.candidates import STAGES
from graft.core.tuning.options import TuneOptions
from graft.core.tuning.tunings import Tunings
from tests.plugins.codegen.test_kernel_tuning import code, faking, model, own_folder

__all__ = ["model", "own_folder"]
TILE = best_tiles(24, 40, "float32", host_target())[-1]
CHOSEN = ContractionParameters(rows=TILE.rows, vectors=TILE.vectors)
TUNED = Request(["llvm"], threads=1, tune=TuneOptions(60.0))


@pytest.mark.parametrize(("after", "stays"), [(0.9, True), (1.01, True), (1.1, False)])
def test_what_made_the_model_slower_is_taken_back(after, stays, model, monkeypatch):
    faking(monkeypatch, CHOSEN)
    monkeypatch.setattr(whole_model, "seconds", lambda *_: (1.0, after))
    plain = code(model)
    compiled = compile_model(model, TUNED)
    assert (compiled.description.modules[0].data != plain) == stays
    assert (code(model) != plain) == stays
    rows = Tunings(tuned_database()).everything()
    assert rows
    assert all(row.tuning.stage == STAGES for row in rows)
    assert any(row.tuning.parameters == CHOSEN for row in rows) == stays
    assert f", the whole model takes {after:.2f} of its time" in compiled.tuning.summary()


def test_what_was_found_before_stays(model, monkeypatch):
    faking(monkeypatch, CHOSEN)
    monkeypatch.setattr(whole_model, "seconds", lambda *_: (1.0, 0.9))
    compile_model(model, TUNED)
    tuned = code(model)
    monkeypatch.setattr(whole_model, "seconds", lambda *_: pytest.fail("nothing new was found"))
    assert compile_model(model, TUNED).tuning.whole is None
    assert code(model) == tuned


@pytest.mark.parametrize(("after", "expected"), [(0.5, 1.0), (1.01, 2.0), (1.1, 2.0)])
def test_plans_by_measured_time_know_what_tuning_gave(after, expected, model, monkeypatch):
    faking(monkeypatch, CHOSEN)
    monkeypatch.setattr(whole_model, "seconds", lambda *_: (1.0, after))
    plain = compile_model(model, Request(["llvm"], threads=1))
    times = times_for(TUNED.placement(), TUNED.chosen(), TUNED.options(), None)
    times.times[times._key(plain.partitioned)] = 2.0
    compile_model(model, TUNED)
    assert list(times.times.values()) == [expected]


def test_two_programs_are_timed_in_a_process_of_their_own(model, tmp_path, caplog):
    compiled = compile_model(model, Request(["llvm"], threads=1, tuned=False))
    own, theirs = whole_model.seconds(compiled, compiled, 1, tmp_path)
    assert 0 < own < 1
    assert 0 < theirs < 1
    with caplog.at_level("INFO"):
        assert whole_model.seconds(compiled, compiled, 1, tmp_path / "missing") is None
    assert "the whole model cannot be measured: " in caplog.text


@pytest.mark.parametrize(("disturbed", "expected"), [(0, 0.9), (20, 0.9), (30, 1.8)])
def test_what_else_the_machine_does_in_some_turns_does_not_count(disturbed, expected, monkeypatch):
    """Of 51 turns the second call takes twice its time in some: only in most of them it counts as slower."""
    now, calls = 0.0, {"first": 0, "second": 0}

    def call(name):
        nonlocal now
        calls[name] += 1
        now += 0.02 if name == "first" else 0.018 * (1 + (0 < calls[name] - 1 <= disturbed))

    monkeypatch.setattr(whole_model, "perf_counter", lambda: now)
    before, after = whole_model.in_turns(lambda: call("first"), lambda: call("second"))
    assert (round(before, 6), round(after / before, 6)) == (0.02, expected)
    assert calls["second"] == 52
