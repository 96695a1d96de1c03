"""`graft backends`: what is installed, what it can do, what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graft.cli.common import ExitCode, State, common_options
from graft.cli.output import print_json, print_table
from graft.core.backend_spec import value_text, without_label
from graft.runtime.system.plugin_files import name_of

if TYPE_CHECKING:
    from graft.plugins.discovery import PluginSource
    from graft.plugins.registry.information import BackendInfo


@click.group(invoke_without_command=True)
@common_options
@click.pass_context
def command(ctx: click.Context) -> None:
    """List, show and examine the installed backends."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_backends)


@command.command("list")
@common_options
@click.pass_obj
def list_backends(state: State) -> None:
    """List the installed plugins from their metadata, without importing any."""
    from graft.compiler.configuration import configuration
    from graft.plugins.discovery import PluginSource, clashes, discover

    off = {*state.without, *configuration().disabled}
    files = (PluginSource(name_of(Path(path)), path, is_file=True) for path in state.plugin_files)
    sources = [*discover(), *files]
    refused = clashes(sources)
    rows = [
        {
            "name": source.name,
            "distribution": source.distribution,
            "version": source.version,
            "provides": source.value,
            "note": "disabled" if off & {source.name, source.distribution} else _note(source, refused),
        }
        for source in sources
    ]
    if state.json:
        print_json({"plugins": rows})
    else:
        print_table(("NAME", "DISTRIBUTION", "VERSION", "PROVIDES", "NOTE"), [list(row.values()) for row in rows])


def _note(source: PluginSource, refused: Mapping[str, Sequence[PluginSource]]) -> str:
    claims = refused.get(source.name, ())
    if not claims or (source.is_own and sum(claim.is_own for claim in claims) == 1):
        return source.damage or source.missing()
    return "Graft's own name: refused" if any(claim.is_own for claim in claims) else "claimed twice: refused"


@command.command("show")
@click.argument("name", required=False)
@common_options
@click.pass_obj
def show(state: State, name: str | None) -> None:
    """Show a backend (or all): priority, whether it can run here, operators and composites."""
    manager = state.manager()
    if name is not None:
        manager.backends([name])  # raises, with the nearest name, where there is none
    infos = [info for info in manager.backend_infos() if name is None or without_label(name) == info.name]
    if state.json:
        print_json({"backends": [asdict(info) for info in infos]})
        return
    for number, info in enumerate(infos):
        if number:
            click.echo()
        _print_info(info)


def _print_info(info: BackendInfo) -> None:
    from graft.runtime.loaders import secret_variable

    facts = {
        "plugin": f"{info.plugin} ({' '.join(part for part in (info.distribution, info.version) if part)})",
        "priority": info.priority,
        "default": "yes" if info.by_default else "no: takes part only when named, as in -b " + info.name,
        "library": info.library,
        "available": "yes" if info.unavailable is None else f"no: {info.unavailable}",
        "install": info.install,
        "operators": ", ".join(info.operators),
        "composites": ", ".join(info.composites),
        "faults": "; ".join(info.faults),
    }
    click.echo(info.name)
    for key, value in facts.items():
        if value not in ("", None):
            click.echo(f"  {key:<10}  {value}")
    for number, row in enumerate(info.options):
        default = f"a secret, in {secret_variable(info.name, row.name)}" if row.secret else value_text(row.default)
        text = f"{row.name}={row.type_text} ({default})"
        click.echo(f"  {'' if number else 'options':<10}  {text}{f': {row.help}' if row.help else ''}")


@command.command("doctor")
@common_options
@click.pass_obj
def doctor(state: State) -> int:
    """Load every plugin, ask its backends about a few operators, and say what is wrong; exit 5 on an error."""
    from graft.plugins.registry.doctor import examine

    findings = examine(state.manager())
    if state.json:
        print_json({"findings": [asdict(finding) for finding in findings]})
    elif not findings:
        click.echo("every plugin is well")
    else:
        for finding in findings:
            click.echo(f"{finding.severity}: {finding.text}")
            if state.verbose and finding.trace:
                click.echo(finding.trace)
    return ExitCode.PLUGIN if any(finding.severity == "error" for finding in findings) else ExitCode.OK
