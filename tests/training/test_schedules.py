"""Schedules at their ends and in the middle."""

from __future__ import annotations

import pytest

from graft.training import cosine, linear, stepwise


def test_a_cosine_falls_from_the_rate_to_the_least() -> None:
    rate = cosine(1.0, 100, least=0.2)
    assert [rate(step) for step in (0, 50, 100, 500)] == pytest.approx([1.0, 0.6, 0.2, 0.2])


def test_a_line_falls_evenly_after_it_rose() -> None:
    rate = linear(1.0, 100, warmup=4)
    assert [rate(step) for step in (0, 1, 25, 100)] == pytest.approx([0.2, 0.396, 0.75, 0.0])


def test_steps_multiply() -> None:
    rate = stepwise(1.0, {10: 0.1, 20: 0.5})
    assert [rate(step) for step in (9, 10, 19, 20)] == pytest.approx([1.0, 0.1, 0.1, 0.05])
