"""A public function says in its docstring what it raises itself."""

from __future__ import annotations

import ast

import pytest

from tests.ratchets import ROOT, product, tree

UNSAID = frozenset({"AssertionError", "NotImplementedError", "Unfit"})
"""What no caller sees: broken invariants, and draws of a random model that are made again."""
COMMANDS = ROOT / "src" / "graft" / "cli"
"""What a command refuses, its help and its tests say."""


def raised(function: ast.FunctionDef) -> set[str]:
    """The names of the exceptions that a function makes."""
    exceptions = [node.exc for node in ast.walk(function) if isinstance(node, ast.Raise) and node.exc is not None]
    made = [one.func if isinstance(one, ast.Call) else one for one in exceptions]
    names = {
        one.id if isinstance(one, ast.Name) else one.attr for one in made if isinstance(one, ast.Name | ast.Attribute)
    }
    return {name for name in names if name[:1].isupper()} - UNSAID


def silent(body: list[ast.stmt]) -> list[str]:
    """The public functions and methods that raise and do not say so."""
    found = []
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            found += silent(node.body)
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and (names := raised(node)):
            text = (ast.get_docstring(node) or "").lower()
            if not any(word in text for word in ("raise", "error", "refus", *map(str.lower, names))):
                found.append(f"{node.name}, line {node.lineno}: {', '.join(sorted(names))}")
    return found


@pytest.mark.parametrize("folder", sorted({path.relative_to(ROOT).parts[0] for path in product(".py")}))
def test_public_functions_say_what_they_raise(folder: str) -> None:
    chosen = [
        path for path in product(".py") if path.is_relative_to(ROOT / folder) and not path.is_relative_to(COMMANDS)
    ]
    assert {str(path.relative_to(ROOT)): said for path in chosen if (said := silent(tree(path).body))} == {}


def test_a_silent_function_is_found() -> None:
    functions = 'def one():\n    """Return it."""\n    raise ModelError("no")\n'
    methods = "class A:\n    def two(self):\n        raise X()\n"
    assert silent(ast.parse(functions + methods).body) == ["one, line 1: ModelError", "two, line 5: X"]
