"""The progress bar of tuning, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graft.core.tuning.options import Progress as State
    from graft.core.tuning.options import TuneOptions


@contextmanager
def tuning_bar(seconds: float | None) -> Iterator[TuneOptions]:
    """Give options of tuning for so many seconds, with a bar on standard error if that is a terminal and rich is there.

    The bar goes when the body ends.
    """
    from graft.core.tuning.options import DEFAULT_SECONDS, TuneOptions

    budget = DEFAULT_SECONDS if seconds is None else seconds
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        yield TuneOptions(budget)
        return
    if not sys.stderr.isatty():
        yield TuneOptions(budget)
        return
    columns = (TextColumn("tuning {task.description}"), BarColumn(), TextColumn("{task.fields[done]}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=budget, done="")

        def show(state: State) -> None:
            done = f"{state.tuned}/{state.total} done"
            bar.update(task, completed=min(state.spent, budget), description=state.workload[:60], done=done)

        yield TuneOptions(budget, show)
