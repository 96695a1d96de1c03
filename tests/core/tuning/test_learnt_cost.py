"""What is learnt from the times of races, and from how many."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

from graft.core.schedule.parameters import ContractionParameters, ScheduleParameters
from graft.core.schedule.templates.features import CYCLES, features
from graft.core.schedule.templates.tiled_sum import Tile, tiled_sum
from graft.core.tuning import learnt_cost
from graft.core.tuning.learnt_cost import SHIPPED, LearntCost, Timed, Times, _words, predicted, ship, shipped, trained
from graft.errors import DatabaseError
from tests.core.schedule.strategies.contractions.test_blocked_product import WIDE, matmul


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


def test_trees_that_are_shipped_serve_their_machine_alone(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm", reason="LightGBM is not installed: pip install 'graft-compiler[tune]'")
    trees, file = trained(races(30)), tmp_path / "trees.txt"
    ship(trees, "x86_64 zen fma threads=1", file)
    same = shipped("x86_64 zen fma threads=8", file)
    rows = [{CYCLES: 80.0, "bad": bad, "idle": 0.5} for bad in (0.2, 0.8)]
    assert predicted(same, rows) == pytest.approx(predicted(trees, rows))
    assert predicted(same, [{CYCLES: 80.0, "new": 1.0}]) == [80.0]
    assert shipped("x86_64 zen fma+avx threads=1", file) is None
    assert shipped("x86_64 zen fma threads=1 in bf16", file) is None


def test_what_is_shipped_knows_the_numbers_of_loops_as_they_are() -> None:
    found = tiled_sum(matmul((64, 32), (32, 96), constant=True)[0], WIDE)
    assert found is not None
    named = next(line for line in SHIPPED.read_text().splitlines() if line.startswith("feature_names="))
    assert named.removeprefix("feature_names=").split() == _words(features(found, Tile(2), WIDE.machine))


def test_a_search_begins_with_what_is_shipped_until_it_knows_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learnt_cost, "shipped", lambda machine: f"trees of {machine}")
    cost = LearntCost(Times(tmp_path / "trials.sqlite3", "here"))
    cost.learn()
    assert cost._trees == "trees of here"
    cost.times.keep(races(30))
    monkeypatch.setattr(learnt_cost, "trained", lambda times: len(times))
    cost.learn()
    assert cost._trees == 30 * 8


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


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("features", "x"), ("features", "[]"), ("features", "{}"), ("features", '{"cycles": 0}'),
        ("features", '{"cycles": "x"}'), ("seconds", 0.0), ("seconds", -1.0),
    ],
)  # fmt: skip
def test_times_that_are_damaged_are_named(tmp_path: Path, column: str, value: object) -> None:
    times = Times(tmp_path / "trials.sqlite3", "here")
    times.keep([Timed("race 0", {CYCLES: 5.0}, 1.0)])
    times._database.write(f"UPDATE trials SET {column} = ?", value)
    with pytest.raises(DatabaseError, match=r"cannot be used \(the times of race 'race 0' are damaged\)"):
        times.known()


def test_candidates_that_failed_and_are_damaged_are_named(tmp_path: Path) -> None:
    times = Times(tmp_path / "trials.sqlite3", "here")
    times.fail("kernel", ScheduleParameters("unroll i\n"))
    times._database.write("UPDATE trials SET features = 'x'")
    with pytest.raises(DatabaseError, match=r"cannot be used \(parameters 'x' are no JSON"):
        times.failed("kernel")


def test_times_of_other_numbers_than_most_teach_nothing() -> None:
    pytest.importorskip("lightgbm", reason="LightGBM is not installed: pip install 'graft-compiler[tune]'")
    other = [Timed("other 0", {CYCLES: 5.0 + number, "new": 1.0}, 1.0) for number in range(8)]
    assert trained([*other, *races(30)]).feature_name() == ["bad", "idle"]
