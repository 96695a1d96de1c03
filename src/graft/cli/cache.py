"""`graft cache`: the kernels that were compiled before."""

from __future__ import annotations

import click

from graft.cli.common import ExitCode, State, common_options
from graft.cli.output import print_json, size


@click.command("cache")
@click.argument("action", type=click.Choice(["info", "clear"]), default="info")
@common_options
@click.pass_obj
def command(state: State, action: str) -> int:
    """Show where compiled kernels are kept and how many, or clear them away."""
    from graft.core.target import cache_directory
    from graft.plugins.llvm.cache import KernelCache

    cache = KernelCache(cache_directory() / "kernels")
    if action == "clear":
        count = cache.clear()
        print_json({"removed": count}) if state.json else click.echo(f"{count} kernels removed")
        return ExitCode.OK
    count, total = cache.size()
    if state.json:
        print_json({"directory": str(cache.directory), "kernels": count, "bytes": total, "limit": cache.limit})
    else:
        click.echo(f"{cache.directory}: {count} kernels, {size(total)} of at most {size(cache.limit)}")
    return ExitCode.OK
