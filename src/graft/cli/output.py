"""What the verbs print: tables (by rich on a terminal, plain text elsewhere), JSON, quantities."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click


def keep_clear(output: Path) -> None:
    """Print on the error output from now on if ``output``, which a verb is about to write, is the standard output."""
    from graft.runtime.system.files import is_standard_output

    if is_standard_output(output):
        sys.stdout.flush()
        click.get_current_context().with_resource(redirect_stdout(sys.stderr))


def print_json(data: object) -> None:
    """Print data as JSON; numbers that JSON lacks become strings."""
    click.echo(json.dumps(_plain(data), indent=2, ensure_ascii=False))


def _plain(data: Any) -> Any:
    match data:
        case dict():
            return {str(key): _plain(value) for key, value in data.items()}
        case list() | tuple():
            return [_plain(value) for value in data]
        case float() if data != data or data in (float("inf"), float("-inf")):
            return str(data)
        case _:
            return data


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under column names; numbers are aligned to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    right = [all(isinstance(row[index], int | float) for row in rows) and bool(rows) for index in range(len(columns))]
    if sys.stdout.isatty() and _print_rich(columns, cells, right):
        return
    widths = [max(len(text) for text in column) for column in zip(columns, *cells, strict=True)]
    for line in (columns, *cells):
        padded = (
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(line, widths, right, strict=True)
        )
        click.echo("  ".join(padded).rstrip())


def _print_rich(columns: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]) -> bool:
    """Print by rich; say False where it is not installed."""
    try:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        return False
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name, number in zip(columns, right, strict=True):
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in cells:
        table.add_row(*(text.replace("[", "\\[") for text in row))
    Console().print(table)
    return True


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if 100 <= abs(value) < 1e9 else f"{value:.3g}"
    return "" if value is None else str(value)
