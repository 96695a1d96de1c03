"""The words of the tree: names, docstrings, messages and pages use the field's terms, not those of `words.txt`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.blocks import ROOT

LIST = Path(__file__).with_name("words.txt")
FOLDERS = (
    "benchmarks", "compiler", "core", "datatypes", "docs", "examples", "measure", "partition", "patterns", "plugins",
    "quantization",
    "training",
    "report", "runtime", "src/graft", "testkit", "tests",
)  # fmt: skip
KINDS = frozenset({".py", ".pyi", ".c", ".h", ".hpp", ".md", ".toml", ".js", ".txt"})
OWN = frozenset({LIST, Path(__file__), ROOT / "docs" / "glossary.md"})
PROMISED = re.compile(r"wish: TuneOptions|\bwish\.(?:seconds|device)|(?<=, )wish(?=[,)])")
"""The parameter of `Backend.tune`, whose name is a part of the interface of level 1."""


def rows() -> list[tuple[str, str]]:
    """Return the patterns of the list, each with what to write in its place."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return [(one.strip(), two.strip()) for one, _, two in (line.partition("=>") for line in lines if line[:1] != "#")]


def sources() -> Iterator[Path]:
    """Give the files of the tree that somebody wrote; links of src/graft lead to folders that are there already."""
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml", "setup.py"))
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in KINDS and not {"build", "__pycache__", "node_modules"} & set(path.parts):
                yield path


def plain(text: str) -> str:
    """Return a text in lower case with names taken apart: ``DimWishes`` and ``dim_wishes`` are ``dim wishes``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", text).lower()


def found(text: str, words: re.Pattern[str]) -> list[tuple[int, str]]:
    """Return the words in a text, each with the number of its line."""
    text = plain(PROMISED.sub("", text))
    return [(text.count("\n", 0, match.start()) + 1, match[0]) for match in words.finditer(text)]


def test_no_word_of_the_list_is_used() -> None:
    words = re.compile(rf"\b(?:{'|'.join(pattern for pattern, _ in rows())})\b")
    lines = []
    for path in sources():
        if path not in OWN:
            name = str(path.relative_to(ROOT))
            text = path.read_text(encoding="utf-8")
            lines += [f"{name}: {one}" for _, one in found(name, words)]
            lines += [f"{name}:{number}: {one}" for number, one in found(text, words)]
    assert not lines, "see tests/docs/words.txt for what to write instead:\n" + "\n".join(lines)


def test_every_row_of_the_list_has_a_replacement() -> None:
    assert len(rows()) > 10
    assert all(pattern and replacement for pattern, replacement in rows())


def test_words_are_found_in_names_however_they_are_written() -> None:
    words = re.compile(r"\bwish(es|ed)?\b")
    text = "x\nDimWishes, wished_for = _wish(swish, wishful)\n"
    assert found(text, words) == [(2, "wishes"), (2, "wished"), (2, "wish")]
