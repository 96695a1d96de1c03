"""What a candidate may give instead of the untuned kernel's results."""

from __future__ import annotations

import numpy as np
import pytest

from graft.core.tuning.trial import check_alike
from graft.errors import TuningError

ROW = np.array([[1000.0, -0.5, np.inf, np.nan]], np.float32)


@pytest.mark.parametrize(
    ("change", "precision", "reason"),
    [
        (0.0, "float32", None),
        (1.0, "float32", None),
        (3.0, "float32", "by 3 in 1 of 4 elements, where 2 is allowed"),
        (3.0, "bf16", None),
        (np.nan, "bf16", "differs from that of the untuned kernel by"),
    ],
)
def test_floats_may_differ_by_a_share_of_the_largest(change: float, precision: str, reason: str | None) -> None:
    found = ROW + np.array([[0, change, 0, 0]], np.float32)
    if reason is None:
        check_alike([found], [ROW], precision)
        return
    with pytest.raises(TuningError, match=reason):
        check_alike([found], [ROW], precision)


def test_integers_are_equal() -> None:
    check_alike([np.arange(3)], [np.arange(3)], "float32")
    with pytest.raises(TuningError, match="output 1 differs from that of the untuned kernel"):
        check_alike([np.arange(3), np.ones(2, np.int8)], [np.arange(3), np.zeros(2, np.int8)], "float32")
