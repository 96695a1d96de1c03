"""docs/accelerator.md: its blocks run, and its tables are those of the encoder."""

from __future__ import annotations

import re

import numpy as np
import pytest

from graft.plugins.accelerator.configuration import Configuration, index_bits
from graft.plugins.accelerator.isa import KINDS, Memory, Operation, field_table, micro_op_fields
from tests.docs.blocks import ROOT, blocks, execute
from tests.plugins.accelerator.page.random_programs import random_configuration

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


def formulas_in_table(head: str, letters: dict[str, int]) -> list[int]:
    """The widths of a table's fields, from the column that holds for any configuration."""
    body = PAGE.partition(f"| fields of {head}")[2].partition("\n\n")[0]
    found = []
    for row in body.splitlines()[2:]:
        names, _, formulas = (cell.strip() for cell in row.split("|")[1:4])
        one = [sum(letters.get(term, 0) or int(term) for term in part.split(" + ")) for part in formulas.split(", ")]
        count = len(re.findall(r"`(\w+)`", names))
        found += one if len(one) == count else one * count
    return found


@pytest.mark.parametrize("seed", range(5))
def test_its_widths_of_any_configuration_are_the_encoders(seed):
    machine = random_configuration(np.random.default_rng(seed))
    destination, source, weight = machine.micro_op_widths
    letters = {"D": destination, "S": source, "W": weight, "A": machine.sram_bits}
    letters["M"] = index_bits(machine.micro_op_entries)
    for kind, table in field_table(machine).items():
        written = formulas_in_table(f"`{kind.mnemonic}` (opcode {kind.opcode})", letters)
        assert written == [field.width for field in table]
    assert formulas_in_table("a micro-op", letters) == [field.width for field in micro_op_fields(machine)]


def test_its_table_of_micro_ops_is_the_encoders():
    assert fields_in_table("a micro-op") == [tuple(field) for field in micro_op_fields(Configuration())]


def test_it_numbers_memories_and_operations_as_the_encoder_does():
    for memory in Memory:
        assert f"{memory.name.lower()} {memory.value}" in PAGE
    for row in re.findall(r"^\| (`\w+`.*?) \| ([\d, ]+) \| [^|]*\|$", PAGE, re.MULTILINE):
        names, numbers = re.findall(r"`(\w+)`", row[0]), [int(one) for one in row[1].split(",")]
        if set(names) <= {one.name.lower() for one in Operation}:
            assert numbers == [Operation[name.upper()].value for name in names]
