"""The order of the C runtime's folders, read from the sources."""

import re
from pathlib import Path

import pytest

from tests.test_import_rule import circles

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "runtime" / "native" / "src"
ORDER = ("base", "pool", "manifest", "state", "devices", "instance", "execute", "program", "artifact")
MOST_FILES = 25
INCLUDE = re.compile(r'^#include "(.+)"', re.MULTILINE)
FUNCTION = re.compile(r"^(?!static|typedef|extern)\w[\w *]*?\b(graft_(?!test_)\w+)\([^;{]*([;{])", re.MULTILINE)
"""The head of a function, but of what a test program defines; and whether it is a declaration or a definition."""

DEFINED = re.compile(r"^(?!static|typedef|extern|return|else)\w[\w *]*?\b(\w+)\([^;{}]*\)\s*\{", re.MULTILINE)
"""The head of a function that other files may call."""
PLUGINS = sorted(path for path in (ROOT / "plugins").glob("*/native") if path.is_dir())


def included(path: Path) -> list[str]:
    return INCLUDE.findall(path.read_text(encoding="utf-8"))


def functions(path: Path, end: str) -> set[str]:
    text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return {name for name, last in FUNCTION.findall(text) if last == end}


def called(folder: Path) -> dict[str, list[str]]:
    """The sources of a folder, each with the others that define the functions it names."""
    comment = re.compile(r"/\*.*?\*/", re.DOTALL)
    texts = {path.name: comment.sub("", path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.c"))}
    owners = {name: source for source, text in texts.items() for name in DEFINED.findall(text)}
    return {
        source: sorted({owners[word] for word in re.findall(r"\w+", text) if word in owners} - {source})
        for source, text in texts.items()
    }


def test_the_sources_stand_in_the_folders_of_the_order():
    assert sorted(path.name for path in SOURCE.iterdir()) == sorted(ORDER)
    assert all(path.is_file() for folder in ORDER for path in (SOURCE / folder).iterdir())


@pytest.mark.parametrize("folder", ORDER)
def test_a_folder_includes_only_headers_of_those_before_it(folder):
    allowed = {"graft", *ORDER[: ORDER.index(folder) + 1]}
    for path in sorted((SOURCE / folder).iterdir()):
        for name in included(path):
            assert name.split("/")[0] in allowed, f"{path.relative_to(SOURCE)} includes {name}"


@pytest.mark.parametrize("folder", ORDER)
def test_a_header_declares_only_what_its_folder_defines(folder):
    """Else a call could go up past the includes."""
    defined = set().union(*(functions(path, "{") for path in (SOURCE / folder).glob("*.c")))
    for path in sorted((SOURCE / folder).glob("*.h")):
        assert functions(path, ";") <= defined, path.relative_to(SOURCE)


@pytest.mark.parametrize("folder", ORDER)
def test_a_folder_has_few_files(folder):
    assert len([*(SOURCE / folder).iterdir()]) <= MOST_FILES


def test_no_headers_include_each_other_in_a_circle():
    headers = {str(path.relative_to(SOURCE)): path for path in SOURCE.rglob("*.h")}
    assert circles({name: [one for one in included(path) if one in headers] for name, path in headers.items()}) == []


def test_no_two_sources_have_one_name():
    """An archive and the object of an export name what is compiled without its folder."""
    names = [path.stem for path in SOURCE.rglob("*.c")]
    assert len(set(names)) == len(names)


def test_a_plugin_takes_nothing_of_the_runtime_but_its_lowest_folder():
    for path in (ROOT / "plugins").rglob("native/**/*.[ch]"):
        for name in included(path):
            assert name.split("/")[0] not in ORDER[1:], f"{path.relative_to(ROOT)} includes {name}"


@pytest.mark.parametrize("folder", PLUGINS, ids=lambda folder: folder.parent.name)
def test_no_sources_of_a_plugin_call_each_other_in_a_circle(folder):
    assert circles(called(folder)) == []


def test_a_circle_of_calls_is_found(tmp_path):
    (tmp_path / "even.c").write_text("int even(int n) {\n  return n == 0 || odd(n - 1);\n}\n")
    (tmp_path / "odd.c").write_text("int odd(int n) {\n  return n != 0 && even(n - 1);\n}\n")
    assert circles(called(tmp_path)) == [("even.c", "odd.c")]
