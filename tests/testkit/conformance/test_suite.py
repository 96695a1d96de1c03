"""Which groups of cases a suite runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from graft.errors import GraftError
from graft.testkit.conformance.suite import suite_of
from tests.testkit.backends import plugin


def test_a_filter_chooses_groups_by_their_beginning(tmp_path: Path) -> None:
    suite = suite_of("npu", level=1, plugin_files=(str(plugin(tmp_path)),))
    assert suite.wanted(["1/Relu", "1/Add/"]) == [(1, "Add"), (1, "Relu")]
    assert {level for level, _ in suite.wanted(["1"])} == {1}
    assert suite.wanted() == suite.groups()


@pytest.mark.parametrize(
    ("only", "message"),
    [
        (["1/Rleu"], "there are no cases of '1/Rleu'; the nearest are 1/Relu, 1/PRelu, 1/Elu"),
        (["1/Relu", "Nothing"], "there are no cases of 'Nothing'; the nearest are 0, 1"),
        (["5"], "there are no cases of '5'; the nearest are 0, 1"),
    ],
)
def test_a_filter_that_chooses_nothing_is_an_error(only: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(GraftError) as caught:
        suite_of("npu", level=1, plugin_files=(str(plugin(tmp_path)),)).wanted(only)
    assert caught.value.message == message
