"""Products of bytes as products of packed operands: which are, and that a search's tiles of them compute the same."""

from __future__ import annotations

import numpy as np
import pytest

from graft.core.machine.target import Target
from graft.core.schedule.kernel import Kernel
from graft.core.schedule.parameters import ScheduleParameters
from graft.core.schedule.selection.select import schedule
from graft.core.schedule.strategies.contractions.word_products import words
from graft.core.tuning.candidates import candidates, is_tunable
from tests.core.schedule.products.test_dot_grouping import PLAIN, VNNI, check, matmul_integer

TAKEN = {
    "as they are": matmul_integer((7, 12), (12, 20)),
    "a zero point of the image": matmul_integer((7, 12), (12, 20), points=("scalar", "")),
    "both signed": matmul_integer((5, 8), (8, 33), ("int8", "int8")),
    "batches": matmul_integer((2, 3, 8), (8, 17)),
}


def texts(kernel: Kernel, target: Target) -> list[ScheduleParameters]:
    found = candidates(kernel, target, 0, None)
    return [one for one in found if isinstance(one, ScheduleParameters)]


@pytest.mark.parametrize("target", [VNNI, PLAIN], ids=["bytes", "pairs"])
@pytest.mark.parametrize(("kernel", "arrays"), TAKEN.values(), ids=TAKEN)
def test_tiles_of_words_compute_what_the_stages_say(kernel: Kernel, arrays: list[np.ndarray], target: Target) -> None:
    assert is_tunable(kernel) and words(kernel, target) is not None
    found = texts(kernel, target)
    assert found and all(one.steps.startswith("rewrite words\n") for one in found)
    for one in found[:3]:
        check(kernel, arrays, target, lambda kernel, target, one=one: schedule(kernel, target, one))


@pytest.mark.parametrize(("kernel", "_"), [
    matmul_integer((7, 10), (10, 20)),  # a word is left open
    matmul_integer((7, 12), (12, 20), constant=""),
    matmul_integer((7, 12), (12, 20), constant="x"),  # columns, whose terms lie apart
    matmul_integer((7, 12), (12, 20), points=("", "scalar")),  # of which sums of rows are taken
], ids=["a word is left open", "no constant", "columns", "a zero point of the weights"])  # fmt: skip
def test_others_are_none(kernel: Kernel, _: list[np.ndarray]) -> None:
    assert words(kernel, VNNI) is None and texts(kernel, VNNI) == []
