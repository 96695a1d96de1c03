"""`graft plugin`: a new plugin as a project, and the test of one that is installed."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graft.cli.common import ExitCode, State, common_options
from graft.cli.output import keep_clear, print_json
from graft.errors import PlanError

if TYPE_CHECKING:
    from graft.testkit.conformance.cases.outcome import Result
    from graft.testkit.conformance.suite import Suite

KINDS = ("json", "c-source", "native", "rewrite", "tensor-ir")


@click.group()
@common_options
def command() -> None:
    """Write a new plugin, hold one to the levels of conformance, or leave one out."""


@command.command("new")
@click.argument("name")
@click.option(
    "--kind", type=click.Choice(KINDS), default="json", show_default=True,
    help="What the backend is: an engine for JSON graphs, calls of C functions, a native loader, rules that rewrite "
    "the model, or a target of the tensor IR.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, file_okay=False),
    help="The project's folder; graft-NAME by default.",
)  # fmt: skip
@common_options
@click.pass_obj
def new(state: State, name: str, kind: str, output: Path | None) -> None:
    """Write the project of a plugin with the backend NAME, which passes its own tests as it is."""
    from graft.testkit.scaffold.project import write_project

    folder = output or Path(f"graft-{name}")
    files = write_project(name, kind, folder)
    if state.json:
        print_json({"folder": str(folder), "kind": kind, "files": files})
        return
    for file in files:
        click.echo(folder / file)
    click.echo(f"\nnext: pip install -e '{folder}[test]' && pytest {folder}")


@command.command("test")
@click.argument("name")
@click.option("--level", type=int, default=3, show_default=True, help="The highest level, 0 to 6.")
@click.option("--ledger", type=click.Path(path_type=Path), help="The file of expected failures.")
@click.option("--model", "models", type=click.Path(path_type=Path), multiple=True, help="A model of your own, as ONNX.")
@click.option("--only", multiple=True, metavar="LEVEL[/SUBJECT]", help="What to run, as in 1/Relu; else everything.")
@click.option("--seeds", type=int, default=60, show_default=True, help="The number of random models of level 3.")
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), help="Write the models of failures here.")
@click.option("--case-seconds", type=float, help="The time that a case gets; 120 s, 900 s from level 4 on by default.")
@click.option("--in-process", is_flag=True, help="Run here, as a debugger wants it: a crash ends the command.")
@click.option("--html", type=click.Path(path_type=Path), help="Write the scorecard as a page.")
@click.option("--badge", type=click.Path(path_type=Path), help="Write the badge as SVG.")
@common_options
@click.pass_obj
def test(
    state: State,
    name: str,
    level: int,
    ledger: Path | None,
    models: tuple[Path, ...],
    only: tuple[str, ...],
    seeds: int,
    keep: Path | None,
    case_seconds: float | None,
    in_process: bool,
    html: Path | None,
    badge: Path | None,
) -> int:
    """Hold the backend NAME to the levels of conformance, and print its scorecard; exit 1 if it fails.

    NAME may have options, as in npu:bits=8,mode=fast.

    Levels: 0 registers, 1 operators, 2 composites, 3 random models, 4 artifacts, 5 robustness, 6 real models.
    """
    from graft.compiler.request import choose
    from graft.testkit.conformance.apart import ApartSuite
    from graft.testkit.conformance.scorecard import Scorecard
    from graft.testkit.conformance.suite import suite_of

    for output in (html, badge):
        if output is not None:
            keep_clear(output)
    arguments: dict[str, Any] = {
        "name": name, "level": level, "xfail": ledger, "models": models, "plugin_files": tuple(state.plugin_files),
        "seeds": seeds, "keep": keep,
    }  # fmt: skip
    if in_process:
        choose(name, state.manager())  # raises, with the nearest name, where there is none
    suite: Suite | ApartSuite = suite_of(**arguments) if in_process else ApartSuite(arguments, case_seconds)
    for _, _, results in suite.run_all(only):
        if not state.json:
            _tell(results, state.verbose)
    scorecard = Scorecard(name, level, tuple(suite.results), tuple(only))
    for path, text in ((html, scorecard.html), (badge, scorecard.badge)):
        if path is not None:
            from graft.runtime.system.files import write

            write(path, text(), "scorecard")
    if state.json:
        print_json(scorecard.to_json())
    else:
        click.echo(scorecard.text(), nl=False)
    return ExitCode.OK if scorecard.ok else ExitCode.FAILURE


@command.command("disable")
@click.argument("name")
@common_options
@click.pass_obj
def disable(state: State, name: str) -> None:
    """Leave out the plugin or distribution NAME, in this and all later calls, without importing it."""
    from graft.compiler.configuration import configuration
    from graft.plugins.discovery import discover

    known = sorted({one for source in discover() for one in (source.name, source.distribution) if one})
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise PlanError(f"no plugin '{name}' is installed; {hint}`graft backends list` names them", backend=name)
    _set_disabled(state, {*configuration().disabled, name}, f"'{name}' is disabled")


@command.command("enable")
@click.argument("name")
@common_options
@click.pass_obj
def enable(state: State, name: str) -> None:
    """Take the plugin or distribution NAME again that was disabled."""
    from graft.compiler.configuration import configuration

    disabled = configuration().disabled
    if name not in disabled:
        known = f"disabled are {', '.join(disabled)}" if disabled else "nothing is disabled"
        raise PlanError(f"plugin '{name}' is not disabled; {known}", backend=name)
    _set_disabled(state, set(disabled) - {name}, f"'{name}' is enabled")


def _set_disabled(state: State, names: set[str], text: str) -> None:
    from graft.compiler.configuration import set_disabled

    path = set_disabled(names)
    if state.json:
        print_json({"disabled": sorted(names), "configuration": str(path)})
    else:
        click.echo(f"{text} in {path}")


def _tell(results: list[Result], verbose: bool) -> None:
    """Say what fails while the suite goes on."""
    from graft.testkit.conformance.suite import bad

    for one in results if verbose else bad(results):
        click.echo(f"{one.verdict}: {one.name}{': ' if one.text else ''}{one.text}", err=True)
