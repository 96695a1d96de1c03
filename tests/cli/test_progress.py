"""What a bar shows while a vendor's toolkit compiles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from graft.cli import progress
from graft.plugins.toolkits.backend import listener


class Bar:
    """Stands for rich's: what tasks were called, one after another."""

    def __init__(self) -> None:
        self.task_ids: list[int] = []
        self.shown: list[str] = []

    def add_task(self, description: str, **fields: object) -> None:
        self.task_ids.append(len(self.task_ids))

    def update(self, task: int, description: str) -> None:
        self.shown.append(description)


def test_the_last_line_that_a_toolkit_printed_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Bar()

    @contextmanager
    def bar(title: str) -> Iterator[Bar]:
        yield made

    monkeypatch.setattr(progress, "_bar", bar)
    with progress.toolkit_messages() as tunes:
        hear = listener.get()
        assert tunes is False
        assert hear is not None
        hear("\n")
        assert made.task_ids == []
        hear("first\nallocating\n")
        hear("10 %\r20 %\r" + "x" * 80)
    assert made.shown == ["allocating", "x" * 60]
    assert made.task_ids == [0]
    assert listener.get() is None


def test_without_a_terminal_nobody_listens() -> None:
    with progress.toolkit_messages():
        assert listener.get() is None
