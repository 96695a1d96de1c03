"""What is learnt from the times of races, and from how many."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

from graft.core.schedule.parameters import ContractionParameters, ScheduleParameters
from graft.core.schedule.templates.features import CYCLES
from graft.core.tuning import learnt_cost
from graft.core.tuning.learnt_cost import LearntCost, Timed, Times, predicted, trained


def races(count: int, each: int = 8) -> list[Timed]:
    """Return races of candidates that take twice as long as cycles say if ``bad`` is above a half."""
    draw = random.Random(0)
    found = []
    for race in range(count):
        for _ in range(each):
            row = {CYCLES: draw.uniform(50, 100), "bad": draw.random(), "idle": draw.random()}
            found.append(Timed(f"{race} 0", row, 10.0**-race * row[CYCLES] * (2 if row["bad"] > 0.5 else 1)))
    return found


def test_times_stay_with_their_machine(tmp_path: Path) -> None:
    times = Times(tmp_path / "trials.sqlite3", "here")
    times.keep(races(2))
    assert sorted(Times(times._database.path, "here").known(), key=str) == sorted(races(2), key=str)
    assert Times(times._database.path, "there").known() == []


def test_only_candidates_that_were_described_are_kept(tmp_path: Path) -> None:
    cost = LearntCost(Times(tmp_path / "trials.sqlite3", "here"))
    own = ScheduleParameters("unroll i\n")
    cost.described[own] = {CYCLES: 5.0, "bad": 0.0}
    cost.keep("race", {own: 2.0, ContractionParameters(rows=3): 1.0})
    assert cost.times.known() == [Timed("race", {CYCLES: 5.0, "bad": 0.0}, 2.0)]
    cost.learn()
    assert cost.seconds([{CYCLES: 7.0, "bad": 1.0}]) == [7.0]


def test_trees_learn_by_what_cycles_are_wrong() -> None:
    pytest.importorskip("lightgbm", reason="LightGBM is not installed: pip install 'graft-compiler[tune]'")
    trees = trained(races(30))
    good, bad = predicted(trees, [{CYCLES: 80.0, "bad": bad, "idle": 0.5} for bad in (0.2, 0.8)])
    assert 1.8 < bad / good < 2.2


def test_few_races_teach_nothing() -> None:
    assert trained([]) is None
    assert trained(races(learnt_cost.FEWEST_RACES - 1)) is None
    assert trained(races(30, each=learnt_cost.FEWEST_TIMES - 1)) is None


def test_without_the_library_cycles_stay_and_that_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "lightgbm", None)
    learnt_cost._lightgbm.cache_clear()
    with caplog.at_level(logging.INFO):
        assert trained(races(30)) is None
        assert trained(races(30)) is None
    learnt_cost._lightgbm.cache_clear()
    assert [record.message for record in caplog.records] == [
        "candidates are ranked by the model of cycles alone: `pip install graft-compiler[tune]` learns"
    ]
