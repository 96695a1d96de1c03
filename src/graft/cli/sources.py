"""The sources that the modules of an artifact keep: shown by `inspect --source`, given back to `compile --source`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graft.cli.common import ExitCode, State, is_artifact
from graft.cli.output import keep_clear, print_json
from graft.errors import InputError
from graft.report.quantities import size

if TYPE_CHECKING:
    from graft.runtime.procedure import Module


def print_sources(state: State, path: Path) -> None:
    """Print the source of each module that has one."""
    from graft.runtime.artifact import read

    _require_artifact(path, "inspect --source")
    texts = {module.name: module.source for module in read(path).modules if module.source is not None}
    if state.json:
        rows = {
            name: {"language": one.language, "compiler": one.compiler, "text": one.text} for name, one in texts.items()
        }
        print_json({"modules": rows})
        return
    for name, one in texts.items():
        click.echo(f"// module {name}{f', compiled by {one.compiler}' if one.compiler else ''}\n{one.text}")
    if not texts:
        click.echo(f"{path}: no module keeps its source; the backends c_source and cuda_source do")


def give_back(state: State, path: Path, given: tuple[str, ...], output: Path | None) -> int:
    """Write an artifact whose modules have the code of edited sources, ``MODULE=FILE`` or ``FILE`` for the only one."""
    from graft.plugins.registry.module_reports import recompiled
    from graft.runtime.artifact import read, save

    _require_artifact(path, "compile --source")
    description = read(path)
    modules = list(description.modules)
    for one in given:
        number, file = _chosen(one, modules, path)
        modules[number] = recompiled(modules[number], file.read_text(encoding="utf-8"), state.manager())
    target = output or path
    keep_clear(target)
    written = save(replace(description, modules=tuple(modules)), target)
    if state.json:
        print_json({"artifact": str(target), "bytes": written, "modules": [one.partition("=")[0] for one in given]})
    else:
        click.echo(f"{target}: {size(written)}, with the code of {', '.join(given)}")
    return ExitCode.OK


def _chosen(given: str, modules: list[Module], path: Path) -> tuple[int, Path]:
    """Return the number of the module that a source is for, and its file."""
    name, _, file = given.rpartition("=")
    with_source = [number for number, one in enumerate(modules) if one.source is not None]
    found = [number for number in with_source if not name or modules[number].name == name]
    if len(found) != 1:
        known = ", ".join(f"'{modules[number].name}'" for number in with_source) or "none"
        what = f"no module '{name}' with a source" if name else "not one module with a source"
        raise InputError(f"'{path}' has {what} (those with one: {known}); say MODULE=FILE")
    if not Path(file).is_file():
        raise InputError(f"there is no file '{file}' with the source of module '{modules[found[0]].name}'")
    return found[0], Path(file)


def _require_artifact(path: Path, verb: str) -> None:
    if not is_artifact(path):
        raise click.UsageError(f"{verb} takes an artifact, and '{path}' is a model; compile it first")
