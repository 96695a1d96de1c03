"""How the work of a plan grows: steps of the matcher and questions to vendors, counted, with twice the operators."""

from __future__ import annotations

import pytest

import graft
from benchmarks.planning import Matrix, Vector, mixed
from graft.patterns.backtracking import Machine


class Asked(Matrix):
    """A vendor that counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.questions = 0

    def supports(self, node):  # type: ignore[no-untyped-def]
        self.questions += 1
        return super().supports(node)


def work(nodes: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int, int]:
    """Return the operators of a plan, the matcher's steps and the questions to one vendor."""
    steps = 0
    spend = Machine.spend

    def counted(self: Machine, count: int) -> None:
        nonlocal steps
        steps += count
        spend(self, count)

    monkeypatch.setattr(Machine, "spend", counted)
    vendor = Asked()
    plan = graft.plan(mixed(nodes), [vendor, Vector(), "llvm"])
    monkeypatch.undo()
    return len(plan.placements), steps, vendor.questions


def test_steps_and_questions_grow_with_the_number_of_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = work(150, monkeypatch), work(300, monkeypatch)
    assert many[0] > 1.9 * few[0]
    assert many[1] < 2.3 * few[1]
    assert many[1] < 40 * many[0]
    assert many[2] <= many[0]  # a backend is asked once for a node, however many plans are tried
