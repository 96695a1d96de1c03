"""docs/accelerator.md: its blocks run, and its tables are those of the encoder."""

from __future__ import annotations

import re

import pytest

from graft.plugins.accelerator.configuration import Configuration
from graft.plugins.accelerator.isa import KINDS, Memory, Operation, field_table, micro_op_fields
from tests.docs.blocks import ROOT, blocks, execute

PAGE = (ROOT / "docs" / "accelerator.md").read_text(encoding="utf-8")


def test_its_blocks_run():
    names: dict[str, object] = {"__name__": "accelerator"}
    for block in blocks(PAGE):
        execute(block, "docs/accelerator.md", names)


def fields_in_table(head: str) -> list[tuple[str, int, bool]]:
    """The rows of the table under a head, as name, width and sign."""
    body = PAGE.partition(f"| fields of {head}")[2].partition("\n\n")[0]
    found = []
    for row in body.splitlines()[2:]:
        names, bits = (cell.strip() for cell in row.split("|")[1:3])
        names, widths = re.findall(r"`(\w+)`", names), [int(one) for one in re.findall(r"\d+", bits)]
        widths = widths if len(widths) == len(names) else widths * len(names)
        found += [(name, width, "signed" in bits) for name, width in zip(names, widths, strict=True)]
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.mnemonic)
def test_its_tables_are_the_encoders(kind):
    written = fields_in_table(f"`{kind.mnemonic}` (opcode {kind.opcode})")
    assert written == [tuple(field) for field in field_table(Configuration())[kind]]


def test_its_table_of_micro_ops_is_the_encoders():
    assert fields_in_table("a micro-op") == [tuple(field) for field in micro_op_fields(Configuration())]


def test_it_numbers_memories_and_operations_as_the_encoder_does():
    for memory in Memory:
        assert f"{memory.name.lower()} {memory.value}" in PAGE
    for row in re.findall(r"^\| (`\w+`.*?) \| ([\d, ]+) \| [^|]*\|$", PAGE, re.MULTILINE):
        names, numbers = re.findall(r"`(\w+)`", row[0]), [int(one) for one in row[1].split(",")]
        if set(names) <= {one.name.lower() for one in Operation}:
            assert numbers == [Operation[name.upper()].value for name in names]
