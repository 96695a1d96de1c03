"""`graft run`: an artifact or a model runs once."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import click

from graft.cli.common import (
    MODEL,
    ExitCode,
    State,
    backend_options,
    common_options,
    compile_options,
    precision_option,
    switch_option,
)
from graft.cli.output import print_json, print_table, shape
from graft.cli.programs import facts, input_option, inputs_of, open_program


@click.command("run")
@click.argument("file", type=MODEL)
@input_option
@click.option(
    "--output", type=click.Path(file_okay=False, path_type=Path), help="Write each output to this folder as .npy."
)
@click.option("--seed", type=int, default=0, show_default=True, help="The seed of random inputs.")
@backend_options
@compile_options
@switch_option
@precision_option
@common_options
@click.pass_obj
def command(
    state: State,
    file: Path,
    given: tuple[tuple[str, str], ...],
    output: Path | None,
    seed: int,
    backends: tuple[str, ...] | None,
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
    threads: int | None,
    strict: bool,
    precision: str,
) -> int:
    """Run FILE, an artifact or a model, once, and show its outputs."""
    program = open_program(state, file, backends, shapes, threads, strict, precision)
    results = program.run(inputs_of(program, given, seed))
    rows = facts(results)
    if output is not None:
        import numpy as np

        from graft.runtime.files import make_folder, writing

        make_folder(output, "outputs")
        for number, (row, array) in enumerate(zip(rows, results.values(), strict=True)):
            row["file"] = str(output / f"{_file_name(row['name'], number)}.npy")
            with writing(row["file"], "output") as opened:
                np.save(_Stream(opened), array, allow_pickle=False)
    if state.json:
        print_json({"outputs": rows})
    else:
        columns = ("OUTPUT", "DTYPE", "SHAPE", "MIN", "MEAN", "MAX", "FILE")
        cells = [
            (one["name"], one["dtype"], shape(one["shape"]), *(one.get(key) for key in ("min", "mean", "max", "file")))
            for one in rows
        ]
        print_table(columns, cells)
    return ExitCode.OK


class _Stream:
    """A file as NumPy is to see it: in what it knows for one it asks for the position, and a pipe has none."""

    def __init__(self, file: BinaryIO) -> None:
        self.write = file.write


def _file_name(name: str, number: int) -> str:
    """Return a file's name for an output's: those that would leave the folder or name nothing become their number."""
    kept = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)
    return kept if kept.strip("._") else f"output_{number}"
