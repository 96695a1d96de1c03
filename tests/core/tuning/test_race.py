from collections.abc import Callable
from itertools import count

import pytest

from graft.core.tuning.race import HOPELESS, MARGIN, ROUNDS, Run, race, undisturbed


def never() -> bool:
    return False


def after(calls: int) -> Callable[[], bool]:
    """Say that time is up from so many questions on."""
    asked = count()
    return lambda: next(asked) >= calls


class Runner:
    """Takes the given seconds, the last of them from then on, and counts its runs."""

    def __init__(self, *seconds: float) -> None:
        self.seconds, self.runs = seconds, 0

    def __call__(self) -> float:
        self.runs += 1
        return self.seconds[min(self.runs, len(self.seconds)) - 1]


@pytest.mark.parametrize("fastest", range(5))
def test_the_fastest_wins(fastest: int) -> None:
    runners = [Runner(1.0 if number == fastest else 1.2 + number / 100) for number in range(5)]
    outcome = race(runners, never)
    assert outcome is not None
    assert (outcome.winner, outcome.seconds, outcome.first) == (fastest, 1.0, runners[0].seconds[0])


def test_the_first_keeps_its_title_unless_a_challenger_is_clearly_faster() -> None:
    close, clear = 1 - MARGIN / 2, 1 - 2 * MARGIN
    assert race([Runner(1.0), Runner(close)], never).winner == 0
    assert race([Runner(1.0), Runner(clear)], never).winner == 1


def test_a_disturbed_run_does_not_count() -> None:
    assert race([Runner(1.0), Runner(9.0, 0.8, 0.8, 9.0, 0.8)], never).winner == 1


def test_the_slower_half_drops_out_after_each_round() -> None:
    runners = [Runner(1.0 + number / 10) for number in range(4)]
    race(runners, never)
    assert [runner.runs for runner in runners] == [sum(ROUNDS), sum(ROUNDS), ROUNDS[0], ROUNDS[0]]


def test_of_an_odd_number_the_larger_half_stays_and_two_always() -> None:
    runners = [Runner(1.0 + number / 10) for number in range(5)]
    race(runners, never)
    first, second = ROUNDS[0], ROUNDS[0] + ROUNDS[1]
    assert [runner.runs for runner in runners] == [sum(ROUNDS), sum(ROUNDS), second, first, first]


def test_one_that_is_just_not_hopeless_stays() -> None:
    runners = [Runner(HOPELESS), Runner(1.0)]
    race(runners[::-1], never)
    assert [runner.runs for runner in runners] == [sum(ROUNDS)] * 2


def test_a_hopeless_one_drops_out_and_the_first_stays() -> None:
    runners = [Runner(2 * HOPELESS), Runner(1.0), Runner(1.1 * HOPELESS)]
    assert race(runners, never).winner == 1
    assert [runner.runs for runner in runners] == [sum(ROUNDS), sum(ROUNDS), ROUNDS[0]]


def test_a_race_that_is_decided_ends() -> None:
    runners = [Runner(1.0), Runner(2 * HOPELESS)]
    assert race(runners, never).winner == 0
    assert runners[0].runs == ROUNDS[0]


def test_nothing_is_decided_before_the_first_round_is_over() -> None:
    assert race([Runner(1.0), Runner(0.5)], after(ROUNDS[0] - 1)) is None


def test_what_was_measured_decides_when_time_is_up() -> None:
    assert race([Runner(1.0), Runner(0.5)], after(ROUNDS[0])).winner == 1


def test_candidates_run_in_turns() -> None:
    order: list[int] = []

    def recorded(number: int) -> Run:
        def run() -> float:
            order.append(number)
            return 1.0

        return run

    race([recorded(0), recorded(1)], never)
    assert order[:4] == [0, 1, 0, 1]


def test_the_two_fastest_runs_count() -> None:
    assert undisturbed([5.0, 1.0, 2.0]) == 1.5
    assert undisturbed([3.0]) == 3.0
