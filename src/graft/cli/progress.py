"""Progress bars, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.progress import Progress

    from graft.core.tuning.options import Progress as State
    from graft.core.tuning.options import TuneOptions


@contextmanager
def tuning_bar(seconds: float | None) -> Iterator[TuneOptions]:
    """Give options of tuning for so many seconds, with a bar where there can be one."""
    from graft.core.tuning.options import DEFAULT_SECONDS, TuneOptions

    budget = DEFAULT_SECONDS if seconds is None else seconds
    with _bar("tuning {task.description}") as bar:
        if bar is None:
            yield TuneOptions(budget)
            return
        task = bar.add_task("", total=budget, done="")

        def show(state: State) -> None:
            done = f"{state.tuned}/{state.total} done"
            bar.update(task, completed=min(state.spent, budget), description=state.workload[:60], done=done)

        yield TuneOptions(budget, show)


@contextmanager
def toolkit_messages() -> Iterator[Literal[False]]:
    """Show the last line that a vendor's toolkit printed while it compiles, where there can be a bar; give False."""
    with _bar("{task.description}") as bar:
        if bar is None:
            yield False
            return
        from graft.plugins.toolkits.backend import listener

        def show(text: str) -> None:
            if not (lines := text.replace("\r", "\n").strip().splitlines()):
                return
            if not bar.task_ids:  # nothing is shown of what is quick, and prints nothing
                bar.add_task("", total=None, done="")
            bar.update(bar.task_ids[0], description=lines[-1][:60])

        token = listener.set(show)
        try:
            yield False
        finally:
            listener.reset(token)


@contextmanager
def counting(title: str) -> Iterator[Callable[[int, int | None], None] | None]:
    """Give what shows how many of how many, None if that is not known, are done, where there can be a bar."""
    with _bar(title) as bar:
        if bar is None:
            yield None
            return
        task = bar.add_task("", total=None, done="")

        def show(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total, done=str(done) if total is None else f"{done}/{total}")

        yield show


@contextmanager
def _bar(title: str) -> Iterator[Progress | None]:
    """Give a bar on standard error if that is a terminal and rich is there; it goes when the body ends."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        yield None
        return
    if not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn(title), BarColumn(), TextColumn("{task.fields[done]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield bar
