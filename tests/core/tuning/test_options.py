import math
import re
from typing import Any

import pytest

from graft.core.tuning.options import DEFAULT_SECONDS, Tuned, TuneOptions, TuneReport, remaining, tune_options
from graft.errors import GraftError, TuningError


def test_what_a_user_asks_for_becomes_options() -> None:
    own = TuneOptions(seconds=3)
    assert tune_options(False) is None
    assert tune_options(own) is own
    assert [found.seconds for one in (True, 5, 2.5) if (found := tune_options(one))] == [DEFAULT_SECONDS, 5.0, 2.5]


@pytest.mark.parametrize("seconds", [0, -1, math.inf, math.nan])
def test_a_budget_is_a_positive_number_of_seconds(seconds: float) -> None:
    message = f"the time for tuning must be a positive number of seconds, got {seconds}"
    with pytest.raises(TuningError, match=f"^{re.escape(message)}$"):
        TuneOptions(seconds=seconds)


@pytest.mark.parametrize("values", [(), (0,), (4, -1)])
def test_dimensions_are_tuned_at_positive_numbers(values: tuple[int, ...]) -> None:
    message = f"the values of 'seq' to tune at must be positive numbers, got {list(values)}"
    with pytest.raises(TuningError, match=f"^{re.escape(message)}$"):
        TuneOptions(dims={"seq": values})


def test_a_budget_of_another_type_is_an_error() -> None:
    with pytest.raises(GraftError, match="a number of seconds"):
        TuneOptions(seconds="soon")  # type: ignore[arg-type]


def test_every_combination_of_dimensions_is_measured() -> None:
    found = TuneOptions(dims={"batch": (1, 2), "seq": (16, 128)}).bindings()
    pairs = [(1, 16), (1, 128), (2, 16), (2, 128)]
    assert found == [{"batch": batch, "seq": seq} for batch, seq in pairs]
    assert TuneOptions().bindings() == [{}]


def test_what_is_left_of_a_budget_is_its_rest_until_there_is_none() -> None:
    options = TuneOptions(seconds=10)
    left = remaining(options, 4)
    assert left is not None and left.seconds == 6
    assert remaining(options, 10) is None
    few = TuneOptions(seconds=10, trials=8)
    left = remaining(few, 4, 5)
    assert left is not None and (left.seconds, left.trials) == (6, 3)
    assert remaining(few, 4, 8) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "the trials of tuning must be a positive number, got 0"),
        ({"goal": 1.0}, "the goal of tuning must be a gain above 1, as in 1.2, got 1.0"),
    ],
)
def test_budgets_of_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TuningError, match=f"^{re.escape(message)}$"):
        TuneOptions(**options)


def test_a_report_sums_up_in_a_line() -> None:
    assert TuneReport(2, 2, (), 1.0).summary() == "tuned 0 of 2 workloads in 1.0 s: 0 faster"
    changed = Tuned("2", "b", 1, object(), 1.0, 2.0)  # type: ignore[arg-type]
    tuned = (Tuned("1", "a", 2, None, 1.0, 1.0), Tuned("3", "c", 1, None, 1.0, 1.0), changed)
    whole = TuneReport(3, 2, tuned, 2.25, varying=1) + TuneReport(1, 1, (), 1.0)
    assert whole.summary() == (
        "tuned 3 of 4 workloads in 3.2 s: 1 faster, together 1.25x; 1 to go on with;"
        " 1 more have extents that are known only when they run"
    )
