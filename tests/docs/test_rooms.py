"""The tables of docs/architecture.md that are written from the sources: its rooms, and the ratchets."""

import ast
import re
from pathlib import Path

from tests.ratchets import TABLE
from tests.test_import_rule import ORDER, ROOMS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"


def rooms() -> list[str]:
    """The folders of Python, each after those that it imports from: core's as its order has them, others by name."""
    found = list(ROOMS)
    for top in (one for one in ORDER if (ROOT / one).is_dir() and one != "core"):
        inner = sorted({str(path.parent.relative_to(ROOT)) for path in (ROOT / top).rglob("__init__.py")})
        place = 0 if ORDER.index(top) < ORDER.index("core") else len(found)
        found[place:place] = inner
    return [one for one in found if any((ROOT / one).glob("[!_]*.py"))]


def said_of(room: str) -> str:
    """What the docstring of a room says first, without its full stop."""
    text = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text(encoding="utf-8")))
    assert text, f"{room}/__init__.py says nothing"
    return text.splitlines()[0].removesuffix(".")


def tables() -> dict[str, str]:
    """The tables by the name of their marker."""
    rows = [f"| `{one}/` | {said_of(one)} | {len([*(ROOT / one).glob('[!_]*.py')])} |" for one in rooms()]
    figures = re.findall(r'^"(.+)" = (\d+)$', TABLE.read_text(encoding="utf-8"), flags=re.M)
    return {
        "rooms": "\n".join(["| room | what it holds | files |", "| --- | --- | --- |", *rows]),
        "ratchets": "\n".join(
            ["| figure | today |", "| --- | --- |", *(f"| {one} | {count} |" for one, count in figures)]
        ),
    }


def filled(page: str) -> str:
    """The page with the table behind every marker replaced."""
    bare = re.sub(r"(<!-- table: \w+ -->\n)\n(?:\|.*\n)+", r"\1", page)
    return re.sub(r"<!-- table: (\w+) -->\n", lambda marker: f"{marker[0]}\n{tables()[marker[1]]}\n", bare)


def test_the_page_has_the_tables_of_the_sources(request):
    page = PAGE.read_text(encoding="utf-8")
    wanted = filled(page)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(wanted, encoding="utf-8")
    else:
        assert page == wanted, "docs/architecture.md is stale; run pytest tests/docs/test_rooms.py --update-golden"
    assert set(re.findall(r"<!-- table: (\w+) -->", page)) == set(tables())
