"""Figures of the tree that may fall and never rise: ``python -m tests.ratchets [--write]``.

`ratchets.toml` holds them. A figure that is better than its row is written there with the change that made it so; one
that is worse fails, unless the same commit raises the row and says why.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
TABLE = Path(__file__).with_name("ratchets.toml")
ASIDE = ("tests", "docs", "examples")
"""Folders that are no product: what they name or hold is not counted."""
MOST_FILES, LONG_FILE, LONG_FUNCTION = 25, 500, 60
SMALL_MODULE = 60
"""Lines from which on a module has a test of its name."""
MANY_KINDS = 6
"""Kinds of the tensor IR that a file may match: above, it is a walker of its own."""
OPERATORS = ("Concat", "Conv", "Softmax")
RISING = ("tested modules",)
"""Figures that may rise and never fall."""


@cache
def files(*endings: str) -> tuple[Path, ...]:
    """The files that git knows with these endings, but for links."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    found = (ROOT / one for one in listed if one.endswith(endings))
    return tuple(path for path in found if path.is_file() and not path.is_symlink())


def product(*endings: str) -> tuple[Path, ...]:
    """The files of the product."""
    return tuple(path for path in files(*endings) if path.relative_to(ROOT).parts[0] not in ASIDE)


@cache
def tree(path: Path) -> ast.Module:
    """The syntax of a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


def strings(path: Path) -> set[str]:
    """The strings of a module that are no docstrings."""
    nodes = [*ast.walk(tree(path))]
    texts = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    return {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts
    }


def code_lines(path: Path) -> int:
    """The lines of a file with code in them: no comment, docstring or empty line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return _code_lines_of_c(text)
    kinds = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    documented = {
        line
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in kinds
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(lines - documented)


def _code_lines_of_c(text: str) -> int:
    count, inside = 0, False
    for line in map(str.strip, text.splitlines()):
        begins = line.startswith("/*")
        if line and not inside and not begins and not line.startswith("//"):
            count += 1
        inside = (inside or begins) and "*/" not in line
    return count


def kinds_of_the_tensor_ir() -> set[str]:
    """The names of the classes of `core/tensor_ir/ir.py`."""
    return {node.name for node in tree(ROOT / "core/tensor_ir/ir.py").body if isinstance(node, ast.ClassDef)}


def matched(path: Path) -> set[str]:
    """The classes that a module matches."""
    patterns = (node.cls for node in ast.walk(tree(path)) if isinstance(node, ast.MatchClass))
    return {
        one.attr if isinstance(one, ast.Attribute) else one.id
        for one in patterns
        if isinstance(one, ast.Attribute | ast.Name)
    }


def calls(path: Path) -> set[str]:
    """The names that a module calls."""
    functions = (node.func for node in ast.walk(tree(path)) if isinstance(node, ast.Call))
    return {
        one.attr if isinstance(one, ast.Attribute) else one.id
        for one in functions
        if isinstance(one, ast.Attribute | ast.Name)
    }


def functions() -> Iterable[ast.FunctionDef]:
    """All functions of the product in Python."""
    for path in product(".py"):
        yield from (node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef))


def named(path: Path) -> str:
    """The name under which a module is imported."""
    relative = path.relative_to(ROOT).with_suffix("")
    parts = relative.parts[2:] if relative.parts[:2] == ("src", "graft") else relative.parts
    return ".".join(parts)


def modules_without_importer() -> list[Path]:
    """Modules of the product that nothing but tests or commands imports."""
    seen = {
        f"{node.module}.{alias.name}".removeprefix("graft.")
        for path in product(".py")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    seen |= {one.rpartition(".")[0] for one in seen}
    texts = " ".join(path.read_text(encoding="utf-8") for path in files(".toml", ".py", "Makefile"))
    aside = ("__init__", "__main__", "plugin", "setup", "conftest")
    by_name = {"templates", "cli"}  # scaffolds, and commands, which are imported when they are called
    modules = [path for path in product(".py") if path.stem not in aside and not by_name & {*path.parts}]
    return [path for path in modules if named(path) not in seen and f".{path.stem}" not in texts]


def own_test(path: Path) -> str:
    """The path that a module's own tests have: `tests/`, its folders, ``test_`` and its name."""
    relative = path.relative_to(ROOT)
    folders = relative.parts[2 if relative.parts[:2] == ("src", "graft") else 0 : -1]
    return Path("tests", *folders, f"test_{path.name}").as_posix()


def tested_modules() -> list[Path]:
    """Modules of `SMALL_MODULE` lines or more with a test of their own."""
    return [
        path
        for path in product(".py")
        if ROOT / own_test(path) in files(".py") and len(path.read_text().splitlines()) >= SMALL_MODULE
    ]


def makers_of_loops() -> list[Path]:
    """Modules outside of the steps of schedules that build loops by hand."""
    steps = ("core/tensor_ir", "core/schedule/primitives")
    found = (
        path
        for path in product(".py")
        if "For" in calls(path) and re.search(r"tensor_ir(\.| import )ir\b", path.read_text(encoding="utf-8"))
    )
    return [path for path in found if not str(path.relative_to(ROOT)).startswith(steps)]


def figures() -> dict[str, int]:
    """All figures by name."""
    python, kinds = product(".py"), kinds_of_the_tensor_ir()
    sources = product(".py", ".c", ".h", ".cuh", ".js")
    rooms = Counter(path.parent for path in sources if path.name != "__init__.py")
    counted: dict[str, Callable[[], int]] = {
        **{
            f"files that name {name}": lambda name=name: sum(name in strings(path) for path in python)
            for name in OPERATORS
        },  # type: ignore[misc]
        "files that match many kinds of the tensor IR": lambda: sum(
            len(matched(path) & kinds) >= MANY_KINDS for path in python
        ),
        "rooms of many files": lambda: sum(count > MOST_FILES for count in rooms.values()),
        "files of the largest room": lambda: max(rooms.values()),
        "long files": lambda: sum(len(path.read_text(encoding="utf-8").splitlines()) > LONG_FILE for path in sources),
        "long functions": lambda: sum((one.end_lineno or 0) - one.lineno >= LONG_FUNCTION for one in functions()),
        "makers of loops outside the steps": lambda: len(makers_of_loops()),
        "modules without an importer": lambda: len(modules_without_importer()),
        "tested modules": lambda: len(tested_modules()),
        "lines of code, in steps of 500": lambda: -(-sum(map(code_lines, sources)) // 500),
    }
    return {name: count() for name, count in counted.items()}


def written(found: dict[str, int]) -> str:
    """The table as a file."""
    rows = "".join(f'"{name}" = {count}\n' for name, count in found.items())
    return f"# Figures that may not get worse; `make ratchets` writes them, `tests/ratchets.py` counts.\n{rows}"


def worse(found: dict[str, int], table: dict[str, int]) -> list[str]:
    """What got worse, and what got better and is not written, each as a sentence."""
    rows = []
    for name, count in found.items():
        before = table.get(name)
        if before is None or count == before:
            continue
        is_worse = (count > before) != (name in RISING)
        advice = "make it what it was, or say in the commit why it is not" if is_worse else "keep it: `make ratchets`"
        rows.append(f"{name}: {count}, was {before}; {advice}")
    return rows


def main() -> int:
    """Print the figures and what got worse, or write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="write the table")
    found = figures()
    if parser.parse_args().write:
        TABLE.write_text(written(found), encoding="utf-8")
        return 0
    rows = worse(found, tomllib.loads(TABLE.read_text(encoding="utf-8")))
    print("\n".join(rows) if rows else "\n".join(f"{count:7} {name}" for name, count in found.items()))
    return bool(rows)


if __name__ == "__main__":
    sys.exit(main())
