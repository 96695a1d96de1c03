"""Programs and their inputs, as the verbs that run something take them: an artifact or a model, files or samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graft.cli.common import State, is_artifact
from graft.runtime.system.plugin_files import name_of

if TYPE_CHECKING:
    import numpy as np

    from graft.core.graph.dimensions import DimensionSpec
    from graft.runtime.loaders import PluginFile
    from graft.runtime.program import Program


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


def open_program(state: State, path: Path, ranges: Mapping[str, DimensionSpec] | None = None) -> Program:
    """Return the program of an artifact, or of a model compiled now; raise what the API raises."""
    if not is_artifact(path):
        import graft

        if state.native or state.keys:
            raise click.UsageError(f"'{path}' is a model: --native and --keys are for artifacts")
        return graft.compile(
            str(path), state.backends, shapes=dict(state.shapes), threads=state.threads, strict=state.strict,
            without=state.switched_off, precision=state.precision, manager=state.manager(), dims=ranges,
            isolation=dict(state.isolation) or None, policy=state.policy(),
        )  # fmt: skip
    refuse_options(path, state.named(ranges))
    return load_artifact(state, path, strict=state.strict)


def refuse_options(path: Path, named: Sequence[str]) -> None:
    """Raise UsageError where options that are for models alone are given for an artifact."""
    if named:
        verb = "is" if len(named) == 1 else "are"
        raise click.UsageError(f"'{path}' is compiled already: {', '.join(named)} {verb} for models")


def feeds_of(
    state: State,
    path: Path,
    given: Sequence[tuple[str, str]],
    ranges: Mapping[str, DimensionSpec],
    values: Mapping[str, int],
) -> dict[str, np.ndarray] | None:
    """Return an array for every input of a model, those not given being random; None if none is given."""
    if not given:
        return None
    from graft.core.importer.load import load
    from graft.core.shapes.sample_inputs import sample_inputs
    from graft.runtime.dtypes import dtype_name
    from graft.runtime.inputs import read_array

    model = load(str(path), shapes=dict(state.shapes), dims=ranges)
    types = {one.name or "": one.dtype for one in model.graph.inputs}
    dtypes = {name: None if one is None else dtype_name(one.numpy()) for name, one in types.items()}
    arrays = {name: read_array(name, text, dtypes.get(name)) for name, text in given}
    return arrays if arrays.keys() >= dtypes.keys() else {**sample_inputs(model, dims=values), **arrays}


def load_artifact(state: State, path: Path, *, strict: bool = False) -> Program:
    """Return the program of an artifact; the loaders of ``--plugin`` files take part."""
    runtime = import_module("graft.runtime")
    loaders: list[PluginFile] = []
    if state.plugin_files:
        names = {name_of(Path(file)) for file in state.plugin_files}
        loaders += state.manager().files(names)
    program: Program = runtime.load(
        path, threads=state.threads, strict=strict, loaders=loaders, isolation=dict(state.isolation) or None,
        native=state.native, keys=state.keys,
    )  # fmt: skip
    return program
