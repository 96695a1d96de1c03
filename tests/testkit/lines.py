"""Lines of code: those that are neither blank nor comment nor docstring."""

from __future__ import annotations

import ast
import re
from pathlib import Path


def lines_of_code(path: Path) -> int:
    """Count the lines of a file in Python or in C."""
    text = path.read_text(encoding="utf-8")
    return python_lines(text) if path.suffix == ".py" else _lines(re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))


def python_lines(text: str) -> int:
    """Count the lines of a text in Python."""
    rows = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        for one in ast.iter_child_nodes(node):
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                rows[one.lineno - 1 : one.end_lineno] = [""] * ((one.end_lineno or 0) - one.lineno + 1)
    return _lines("\n".join(row for row in rows if not row.lstrip().startswith("#")))


def _lines(text: str) -> int:
    return sum(bool(row.strip()) for row in text.splitlines())
