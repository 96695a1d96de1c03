"""What an architect wants to know of a compiled program: where its cycles go, what moves, and what padding costs.

Cycles are those of the cycle simulator, which do not depend on data. A layer's cycles are the time from the end of the
layer before it to its own end, so that they add up to the end of the last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate, pairwise
from typing import Any

from graft.plugins.accelerator.codegen import lower
from graft.plugins.accelerator.frontend.layer_json import layer_of
from graft.plugins.accelerator.isa import Instruction, Load, Store
from graft.plugins.accelerator.module import notes_of, program_of
from graft.plugins.accelerator.program import Program
from graft.plugins.accelerator.simulator import Run, cycles_of
from graft.plugins.backend import ModuleReport
from graft.runtime.procedure import Module


@dataclass(frozen=True, slots=True)
class LayerRow:
    """A layer: what it is, its instructions, its cycles, the steps of the GEMM unit, and the bytes that it moves.

    ``alone`` are its cycles with one buffer for each memory.
    """

    name: str
    kind: str
    instructions: int
    cycles: int
    alone: int
    products: int
    useful: float
    dram_bytes: int

    @property
    def utilization(self) -> float:
        """The share of cycles in which a block was multiplied."""
        return self.products / self.cycles if self.cycles else 0.0

    @property
    def waste(self) -> float:
        """The share of products that multiply channels which only fill up blocks."""
        return 1 - self.useful / self.products if self.products else 0.0


@dataclass(frozen=True, slots=True)
class Roofline:
    """Cycles that no order saves, of products and of the port; those there are, and those with one buffer."""

    products: int
    port: int
    hidden: int
    not_hidden: int


def report_of(module: Module) -> ModuleReport:
    """Return the report of a module of this kind; raise ArtifactError if it is damaged."""
    program, notes = program_of(module.data, module.constants), notes_of(module.data)
    run = cycles_of(program)
    layers = [layer_of(one) for one in notes["described"]]
    alone = lower(layers, notes["outputs"], program.configuration, buffers=1)
    run_alone = cycles_of(alone.program)
    cycles: dict[str, list[int]] = {}
    for one, count in zip(
        alone.layers, _cycles(run_alone, [(one.first, one.last) for one in alone.layers]), strict=True
    ):
        cycles.setdefault(one.name, []).append(count)
    rows, roofline = _rows(program, run, notes["layers"], cycles), _roofline(program, run, run_alone)
    facts = _facts(program, run, rows, roofline)
    title = f"Accelerator: {module.name}"
    return ModuleReport(title, facts, _text(facts, rows), _html(facts, rows))


def _rows(
    program: Program, run: Run, layers: Sequence[Mapping[str, Any]], alone: Mapping[str, Sequence[int]]
) -> list[LayerRow]:
    spans = [(layer["first"], layer["last"]) for layer in layers]
    left = {name: iter(counts) for name, counts in alone.items()}  # a layer of several stages has several rows
    return [
        LayerRow(
            layer["name"], layer["kind"], last - first, cycles, next(left.get(layer["name"], iter(())), 0),
            layer["products"], layer["useful"], sum(_moved(program, one) for one in program.instructions[first:last]),
        )
        for layer, (first, last), cycles in zip(layers, spans, _cycles(run, spans), strict=True)
    ]  # fmt: skip


def _cycles(run: Run, spans: Sequence[tuple[int, int]]) -> list[int]:
    """Return the cycles of layers, whose instructions are from one place to another, one after another."""
    ends = list(accumulate((max(run.ends[first:last], default=0) for first, last in spans), max, initial=0))
    return [after - before for before, after in pairwise(ends)]


def _moved(program: Program, instruction: Instruction) -> int:
    if not isinstance(instruction, Load | Store):
        return 0
    return instruction.rows * instruction.columns * instruction.memory.dram_bytes(program.configuration)


def _roofline(program: Program, run: Run, alone: Run) -> Roofline:
    moved = sum(run.counters.bytes.values()) + run.counters.fetch_bytes
    port = -(-moved // program.configuration.port_bytes)
    return Roofline(run.counters.gemm_steps, port, run.counters.cycles, alone.counters.cycles)


def _sram(program: Program) -> dict[str, int]:
    """Return the highest entry that transfers reach, by memory."""
    reached: dict[str, int] = {}
    for one in program.instructions:
        if isinstance(one, Load | Store):
            reached[one.memory.sram] = max(reached.get(one.memory.sram, 0), one.sram + one.entries)
    sizes = program.configuration.entry_bytes
    return {memory: entries * sizes[memory] for memory, entries in sorted(reached.items())}


def _facts(program: Program, run: Run, rows: Sequence[LayerRow], roofline: Roofline) -> dict[str, Any]:
    counters = run.counters
    products, useful = sum(row.products for row in rows), sum(row.useful for row in rows)
    return {
        "configuration": program.configuration.digest,
        "instructions": len(program.instructions),
        "cycles": counters.cycles,
        "utilization": counters.utilization,
        "gemm_steps": counters.gemm_steps,
        "alu_steps": counters.alu_steps,
        "units": {unit: dict(times) for unit, times in counters.times.items()},
        "dram_bytes": {**counters.bytes, "instructions": counters.fetch_bytes},
        "dram_reserved": program.dram_bytes,
        "port_cycles": counters.port_cycles,
        "sram_bytes": _sram(program),
        "padding_waste": 1 - useful / products if products else 0.0,
        "roofline": {
            "products": roofline.products, "port": roofline.port, "hidden": roofline.hidden,
            "not_hidden": roofline.not_hidden,
        },
        "layers": [
            {
                "name": row.name, "kind": row.kind, "instructions": row.instructions, "cycles": row.cycles,
                "cycles_one_buffer": row.alone,
                "products": row.products, "utilization": row.utilization, "padding_waste": row.waste,
                "dram_bytes": row.dram_bytes,
            }
            for row in rows
        ],
    }  # fmt: skip


# ---- For people ---------------------------------------------------------------------------------------------------

LAYER_COLUMNS = ("LAYER", "KIND", "INSTRUCTIONS", "CYCLES", "ONE BUFFER", "PRODUCTS", "USE", "PADDING", "DRAM")


def _lines(facts: Mapping[str, Any]) -> list[str]:
    roofline = facts["roofline"]
    best, cycles, alone = max(roofline["products"], roofline["port"]), max(1, facts["cycles"]), roofline["not_hidden"]
    return [
        f"{facts['cycles']:,} cycles, {facts['instructions']:,} instructions; a block is multiplied in "
        f"{facts['utilization']:.1%} of them; {facts['padding_waste']:.1%} of products only fill up channels",
        f"roofline: products {roofline['products']:,}, port {roofline['port']:,} cycles; {best / cycles:.1%} of it is "
        f"reached, and {best / max(1, alone):.1%} with one buffer for each memory, which hides no latency ({alone:,} "
        "cycles)",
        "DRAM: " + ", ".join(f"{name} {size:,}" for name, size in facts["dram_bytes"].items() if size) + " bytes",
        "SRAM: " + ", ".join(f"{name} {size:,}" for name, size in facts["sram_bytes"].items()) + " bytes",
    ]


def _unit_rows(facts: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [(unit, *(f"{count:,}" for count in times.values())) for unit, times in facts["units"].items()]


def _unit_columns(facts: Mapping[str, Any]) -> tuple[str, ...]:
    names: Mapping[str, int] = next(iter(facts["units"].values()), {})
    return ("UNIT", *(name.upper() for name in names))


def _layer_rows(rows: Sequence[LayerRow]) -> list[tuple[str, ...]]:
    return [
        (
            row.name, row.kind, f"{row.instructions:,}", f"{row.cycles:,}", f"{row.alone:,}", f"{row.products:,}",
            f"{row.utilization:.1%}", f"{row.waste:.1%}", f"{row.dram_bytes:,}",
        )
        for row in rows
    ]  # fmt: skip


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[index]) for row in (columns, *rows)) for index in range(len(columns))]
    return "\n".join(_line(row, widths) for row in (columns, *rows))


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
    return "  ".join((row[0].ljust(len(first)), *others))


def _text(facts: Mapping[str, Any], rows: Sequence[LayerRow]) -> str:
    units = _table(_unit_columns(facts), _unit_rows(facts))
    return "\n".join((*_lines(facts), "", units, "", _table(LAYER_COLUMNS, _layer_rows(rows))))


def _html(facts: Mapping[str, Any], rows: Sequence[LayerRow]) -> str:
    lines = "".join(f"<p>{escape(line)}</p>" for line in _lines(facts))
    tables = (_unit_columns(facts), _unit_rows(facts)), (LAYER_COLUMNS, _layer_rows(rows))
    return lines + "".join(_html_table(columns, cells) for columns, cells in tables)


def _html_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(column.lower())}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
