"""The search by a fake clock: what it measures, in which order, and what it does when it is cut short."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from graft.core.schedule.parameters import ContractionParameters, Parameters, ScheduleParameters
from graft.core.schedule.templates.space import schedules
from graft.core.tuning.candidates import STAGES, candidates
from graft.core.tuning.learnt_cost import LearntCost, Times
from graft.core.tuning.options import Progress, TuneOptions, TuneReport
from graft.core.tuning.race import Run
from graft.core.tuning.search import Search, Workload
from graft.core.tuning.transfer import form_of
from graft.core.tuning.tunings import Tuning, Tunings
from graft.errors import CompileError, ScheduleError, TuningError
from tests.core.schedule.strategies.contractions.test_blocked_product import WIDE, matmul

BUILD_SECONDS = 0.25
Cost = Callable[[str, Parameters | None], float]


@dataclass
class Fake:
    """A clock that only builds and runs move forward, and benches whose runs take what ``cost`` says."""

    cost: Cost
    now: float = 100.0
    built: list[tuple[str, Parameters | None]] = field(default_factory=list)
    stop_after: int | None = None

    def clock(self) -> float:
        return self.now

    def bench(self, workload: Workload) -> FakeBench:
        return FakeBench(self, workload)


@dataclass
class FakeBench:
    fake: Fake
    workload: Workload

    def add(self, parameters: Parameters | None) -> Run | None:
        if self.fake.stop_after is not None and len(self.fake.built) >= self.fake.stop_after:
            raise KeyboardInterrupt
        self.fake.built.append((self.workload.key, parameters))
        self.fake.now += BUILD_SECONDS
        seconds = self.fake.cost(self.workload.key, parameters)

        def run() -> float:
            self.fake.now += seconds
            return seconds

        return run


def workload(key: str, estimate: float = 1e-3, count: int = 1) -> Workload:
    kernel, _ = matmul((128, 64), (64, 96), constant=True)
    return Workload(key, f"matmul {key}", kernel, count, estimate)


def wants(rows: int, unroll: int | None = None) -> Cost:
    """Say that so many rows are best, and then so many terms at a time; all else costs the same."""

    def cost(_: str, parameters: Parameters | None) -> float:
        own = parameters if isinstance(parameters, ContractionParameters) else ContractionParameters()
        return 1e-3 - 2e-4 * (own.rows == rows) - 1e-4 * (unroll is not None and own.unroll == unroll)

    return cost


def searched(
    fake: Fake,
    workloads: list[Workload],
    database: Path,
    seconds: float = 1e6,
    progress: Callable[[Progress], None] | None = None,
    **limits: Any,
) -> TuneReport:
    options = TuneOptions(seconds, progress, fake.clock, **limits)
    return Search(workloads, WIDE, fake, Tunings(database, "here", "now"), options).run()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "tuned.sqlite3"


FOUND = candidates(workload("a").kernel, WIDE, 0, None)
ROWS = [one.rows for one in FOUND if isinstance(one, ContractionParameters)]


@pytest.mark.parametrize("rows", ROWS)
def test_the_tuner_picks_what_is_fastest_by_the_clock(rows: int, database: Path) -> None:
    report = searched(Fake(wants(rows, unroll=4)), [workload("a")], database)
    (tuned,) = report.tuned
    assert isinstance(tuned.parameters, ContractionParameters)
    assert (tuned.parameters.rows, tuned.parameters.unroll) == (rows, 4)
    assert tuned.seconds == pytest.approx(7e-4)
    assert tuned.untuned == pytest.approx(1e-3)
    assert (report.finished, report.total) == (1, 1)
    assert Tunings(database, "here", "now").known()["a"].parameters == tuned.parameters


def test_the_schedules_own_choice_stays_where_nothing_is_faster(database: Path) -> None:
    report = searched(Fake(lambda key, parameters: 1e-3), [workload("a")], database)
    assert report.tuned[0].parameters is None
    assert Tunings(database, "here", "now").known()["a"].stage == STAGES
    assert report.summary() == f"tuned 1 of 1 workloads in {report.spent:.1f} s: 0 faster, together 1.00x"


def test_what_takes_most_of_the_model_is_measured_first(database: Path) -> None:
    fake = Fake(lambda key, parameters: 1e-3)
    many = [workload("small", 1e-4), workload("large", 5e-3), workload("often", 1e-3, count=8)]
    searched(fake, many, database, seconds=6.0)
    order = list(dict.fromkeys(key for key, _ in fake.built))
    assert order[:2] == ["often", "large"]


def test_the_budget_ends_the_search(database: Path) -> None:
    fake = Fake(wants(ROWS[-1]))
    report = searched(fake, [workload(str(number)) for number in range(9)], database, seconds=5.0)
    assert 5.0 <= report.spent < 5.0 + BUILD_SECONDS + 0.1
    assert 0 < len(report.tuned) < 9
    assert report.summary().endswith("x; 9 to go on with")


def test_a_later_search_goes_on_where_the_budget_ended(database: Path) -> None:
    workloads = [workload(str(number)) for number in range(4)]
    short, rest, again = (Fake(wants(ROWS[-1])) for _ in range(3))
    searched(short, workloads, database, seconds=8.0)
    report = searched(rest, workloads, database)
    assert report.finished == 4
    whole = Fake(wants(ROWS[-1]))
    searched(whole, workloads, database.with_name("other.sqlite3"))
    assert len(rest.built) < len(whole.built)
    assert searched(again, workloads, database).tuned == report.tuned
    assert again.built == []


def test_an_interrupted_search_keeps_what_it_measured(database: Path) -> None:
    workloads = [workload("a", 2e-3), workload("b")]
    fake = Fake(wants(ROWS[-1]))
    fake.stop_after = len(FOUND) + 3
    with pytest.raises(KeyboardInterrupt):
        searched(fake, workloads, database)
    kept = Tunings(database, "here", "now").known()
    assert {key: tuning.stage for key, tuning in kept.items()} == {"a": 1}
    assert kept["a"].parameters is not None
    rest = Fake(wants(ROWS[-1]))
    assert searched(rest, workloads, database).finished == 2
    assert ("a", None) not in rest.built


def test_candidates_that_cannot_be_compiled_are_left_out(database: Path, caplog: pytest.LogCaptureFixture) -> None:
    def cost(key: str, parameters: Parameters | None) -> float:
        if parameters is not None and key == "broken":
            raise CompileError("LLVM refused it")
        return 1e-3

    report = searched(Fake(cost), [workload("broken"), workload("whole")], database)
    assert report.finished == 2
    assert "matmul broken with ContractionParameters(" in caplog.text
    assert "cannot be measured: LLVM refused it" in caplog.text


def test_stages_are_joined_by_ratios(database: Path) -> None:
    """The machine became twice as slow between two searches: that is no loss of the first one's winner."""
    slow = {"factor": 1.0}
    base = wants(ROWS[-1])
    workloads = [workload("a")]
    fake = Fake(lambda key, parameters: slow["factor"] * base(key, parameters))
    searched(fake, workloads, database, seconds=BUILD_SECONDS * (len(FOUND) + 1) + 0.2)
    assert Tunings(database, "here", "now").known()["a"].stage == 1
    slow["factor"] = 2.0
    (tuned,) = searched(fake, workloads, database).tuned
    assert tuned.untuned / tuned.seconds == pytest.approx(1.25)


def test_progress_tells_time_and_workload(database: Path) -> None:
    told: list[Progress] = []
    searched(Fake(wants(ROWS[-1])), [workload("a")], database, 1e6, told.append)
    assert [state.workload for state in told] == ["matmul a"] * STAGES
    assert [state.spent for state in told] == sorted(state.spent for state in told)
    assert (told[0].tuned, told[0].total, told[0].seconds) == (0, 1, 1e6)


def test_what_was_found_for_a_neighbour_is_tried_first(database: Path) -> None:
    best = ContractionParameters(rows=1, vectors=1, unroll=7)
    near = Tuning("other", best, 1e-3, 2e-3, 3, form_of(workload("a").kernel))
    Tunings(database, "here", "now").keep("of another model", near)
    fake = Fake(lambda key, parameters: 5e-4 if parameters == best else 1e-3)
    report = searched(fake, [workload("a")], database)
    assert fake.built[:2] == [("a", None), ("a", best)]
    assert report.tuned[0].parameters == best
    kept = Tunings(database, "here", "now").known()["a"]
    assert kept.form == near.form
    assert re.fullmatch(r"\d{4}-\d\d-\d\d, Graft .+", kept.made)


def test_what_was_found_for_a_neighbour_may_not_fit(database: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = ContractionParameters(rows=1, vectors=1, unroll=7)
    near = Tuning("other", other, 1e-3, 2e-3, 3, form_of(workload("a").kernel))
    Tunings(database, "here", "now").keep("of another model", near)

    def cost(key: str, parameters: Parameters | None) -> float:
        if parameters == other:
            raise ScheduleError("'x' has fewer iterations than a tile")
        return 1e-3

    assert searched(Fake(cost), [workload("a")], database).finished == 1
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_trials_end_the_search(database: Path) -> None:
    fake = Fake(wants(ROWS[-1]))
    report = searched(fake, [workload(str(number)) for number in range(9)], database, trials=len(FOUND) + 3)
    assert report.trials == len(FOUND) + 3
    assert sum(parameters is not None for _, parameters in fake.built) <= len(FOUND) + 3
    assert len(report.tuned) == 2


def test_a_goal_ends_the_search(database: Path) -> None:
    few = searched(Fake(wants(ROWS[-1])), [workload(str(number)) for number in range(9)], database, goal=1.1)
    assert few.gain >= 1.1
    assert few.finished == 0
    assert len(few.tuned) == 1


def test_the_last_stage_goes_on_while_it_gains(database: Path) -> None:
    """Tiles of fewer rows are faster, and those of half as many are not near."""

    def cost(_: str, parameters: Parameters | None) -> float:
        rows = re.search(
            r"(?:overlap|split) i (\d+) ", parameters.steps if isinstance(parameters, ScheduleParameters) else ""
        )
        return 1e-3 if rows is None else 1e-3 * 0.9 ** (14 - int(rows[1]))

    fake = Fake(cost)
    report = searched(fake, [workload("a")], database)
    assert report.finished == 1
    best = report.tuned[0].parameters
    assert isinstance(best, ScheduleParameters)
    near = schedules(workload("a").kernel, WIDE, 1, best)
    assert all(cost("a", one) >= 0.97 * cost("a", best) for one in near)


def test_a_search_keeps_the_times_of_losers(database: Path) -> None:
    cost = LearntCost(Times(database.with_name("trials.sqlite3"), "here"))
    tunings = Tunings(database, "here", "now")
    fake = Fake(lambda key, parameters: 1e-3)
    Search([workload("a")], WIDE, fake, tunings, TuneOptions(1e6, clock=fake.clock), cost=cost).run()
    kept = cost.times.known()
    assert {one.race for one in kept} == {"a 0"}
    assert len(kept) == sum(isinstance(one, ScheduleParameters) for one in FOUND)
    assert all(one.seconds == 1e-3 for one in kept)


def test_what_failed_once_never_runs_again(database: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Candidates that crash, hang or are wrong (TuningError) are recorded for a compiler."""
    broken = FOUND[1]

    def search(compiler: str) -> list[Parameters | None]:
        def cost(key: str, parameters: Parameters | None) -> float:
            if parameters == broken:
                raise TuningError("the process ended by signal 11")
            return 1e-3

        tunings, fake = Tunings(database, "here", compiler), Fake(cost)
        own = LearntCost(Times(database.with_name("trials.sqlite3"), "here"))
        Search([workload("a")], WIDE, fake, tunings, TuneOptions(1e6, clock=fake.clock), cost=own).run()
        tunings.clear()
        assert all(math.isfinite(one.seconds) for one in own.times.known())
        return [one for _, one in fake.built]

    assert broken in search("now")
    assert "cannot be measured: the process ended by signal 11" in caplog.text
    assert broken not in search("now")
    assert broken in search("newer")
