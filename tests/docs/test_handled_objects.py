"""docs/reference/handled_objects.md: it lists every public member of each class with its type, and its code runs."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from graft.core.graph.view import NodeView, ValueView
from graft.partition.region import Region
from graft.patterns.match import Match
from graft.plugins.json_graph import JsonGraph, JsonNode
from tests.docs.blocks import ROOT, blocks, execute, prepare

PAGE = (ROOT / "docs" / "reference" / "handled_objects.md").read_text(encoding="utf-8")
CLASSES = (Match, NodeView, ValueView, Region, JsonGraph, JsonNode)


def members(kind: type) -> dict[str, str]:
    """Return the public fields, properties and methods of a class with their types, as the page writes them."""
    found = {field.name: str(field.type) for field in dataclasses.fields(kind) if not field.name.startswith("_")}
    for name, member in vars(kind).items():
        if name.startswith("_") or name in found:
            continue
        if isinstance(member, property):
            found[name] = str(inspect.signature(member.fget).return_annotation)  # type: ignore[arg-type]
            continue
        function = member.__func__ if isinstance(member, staticmethod) else member
        signature = inspect.signature(function)
        given = [str(one) for one in signature.parameters.values() if one.name != "self"]
        found[f"{name}()"] = f"({', '.join(given)}) -> {signature.return_annotation}".replace("'", "")
    return found


def shown(kind: type) -> dict[str, str]:
    """Return what the section of a class lists."""
    section = PAGE.partition(f"\n## `{kind.__name__}`\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w()]+)` \| `(.+?)` \| (.+) \|$", section, re.MULTILINE)
    assert all(text[0].isupper() for _, _, text in rows)
    return {name: kind.replace("\\|", "|") for name, kind, _ in rows}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_public_member_is_listed_with_its_type(kind: type) -> None:
    assert shown(kind) == members(kind)


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path, monkeypatch)
    names: dict[str, object] = {}
    for block in blocks(PAGE):
        assert block.language == "python"
        execute(block, "docs/reference/handled_objects.md", names)
