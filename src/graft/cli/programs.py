"""Programs and their inputs, as the verbs that run something take them: an artifact or a model, files or samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graft.cli.common import State, is_artifact, names_or_none

if TYPE_CHECKING:
    from graft.core.model.dimensions import Wish
    from graft.runtime.loaders import Loader
    from graft.runtime.program import Program

Shapes = Sequence[tuple[str, tuple[int, ...]]]


def input_argument(text: str) -> tuple[str, str]:
    """Return name and contents of ``x=@x.npy`` or ``x=[1, 2]``."""
    name, separator, contents = text.partition("=")
    if not (separator and name and contents):
        raise click.BadParameter(f"'{text}' is not an input; write NAME=@FILE.npy or NAME=[1, 2]")
    return name, contents


input_option = click.option(
    "--input",
    "given",
    metavar="NAME=@FILE.npy",
    type=input_argument,
    multiple=True,
    help="An input; those not given are random.",
)


def open_program(
    state: State,
    path: Path,
    backends: Sequence[str] | None,
    shapes: Shapes,
    threads: int | None,
    strict: bool,
    precision: str = "float32",
    ranges: Mapping[str, Wish] | None = None,
) -> Program:
    """Return the program of an artifact, or of a model compiled now; raise what the API raises."""
    if not is_artifact(path):
        import graft

        return graft.compile(
            str(path), names_or_none(backends), shapes=dict(shapes), threads=threads, strict=strict,
            without=state.switched_off, precision=precision, manager=state.manager(), dims=ranges,
        )  # fmt: skip
    given = {
        "-b": backends,
        "--shape": shapes,
        "a range of --dim": ranges,
        "--precision": precision != "float32",
        "--switch-off": state.switched_off,
    }
    if named := [option for option, value in given.items() if value]:
        verb = "is" if len(named) == 1 else "are"
        raise click.UsageError(f"'{path}' is compiled already: {', '.join(named)} {verb} for models")
    return load_artifact(state, path, threads, strict)


def load_artifact(state: State, path: Path, threads: int | None, strict: bool = False) -> Program:
    """Return the program of an artifact; the loaders of ``--plugin`` files take part."""
    runtime = import_module("graft.runtime")
    loaders: list[Loader] = []
    if state.plugin_files:
        loaders += state.manager().module_loaders({Path(file).stem for file in state.plugin_files}).values()
    program: Program = runtime.load(path, threads=threads, strict=strict, loaders=loaders)
    return program
