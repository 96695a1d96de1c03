"""How near kernels are to each other, and what one takes over from another."""

from __future__ import annotations

import pytest

from graft.core.schedule.parameters import ContractionParameters
from graft.core.tuning.transfer import distance, form_of, neighbours
from graft.core.tuning.tunings import Tuning
from tests.core.schedule.strategies.contractions.test_blocked_product import matmul

INF = float("inf")


def form(m: int, k: int, n: int, epilogue: str = "") -> str:
    return form_of(matmul((m, k), (k, n), constant=True, epilogue=epilogue)[0])


def found(rows: int | None, form: str) -> Tuning:
    return Tuning("x", None if rows is None else ContractionParameters(rows=rows), 1.0, 1.0, 3, form)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (form(8, 16, 32), 0),
        (form(16, 16, 32), 2),
        (form(8, 4, 32), 4),
        (form(8, 16, 32, "bias"), INF),
        ("", INF),
    ],
    ids=["same", "rows", "terms", "epilogue", "no form"],
)
def test_kernels_of_one_form_are_as_far_apart_as_their_extents(other: str, expected: float) -> None:
    assert distance(form(8, 16, 32), other) == expected
    assert distance(other, form(8, 16, 32)) == expected


def test_the_nearest_of_what_was_found_come_first() -> None:
    own = form(8, 16, 32)
    known = [
        found(5, form(64, 16, 32)), found(4, form(16, 16, 32)), found(None, own), found(3, form(8, 16, 64)),
        found(4, form(8, 16, 256)), found(2, form(8, 17, 32, "bias")), found(1, ""), found(6, form(8, 16, 36)),
    ]  # fmt: skip
    assert [one.rows for one in neighbours(own, known) if isinstance(one, ContractionParameters)] == [6, 4]
