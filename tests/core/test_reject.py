"""Refusals as data, and how several checks become one."""

from __future__ import annotations

from graft.core.reject import Reject, first


def test_the_first_refusal_is_found_though_refusals_are_falsy() -> None:
    rank, size = Reject("rank", "too many axes"), Reject("size", "too large")
    assert first(None, rank, size) == rank
    assert first(None, None) is None
