"""`graft completion`: a script by which a shell completes verbs, options and their choices."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from graft.cli.common import ExitCode, State, common_options
from graft.cli.output import print_json

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@common_options
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    r"""Print a script that completes verbs, options and choices in SHELL.

    \b
    bash  eval "$(graft completion bash)"  in ~/.bashrc
    zsh   eval "$(graft completion zsh)"  in ~/.zshrc
    fish  graft completion fish > ~/.config/fish/completions/graft.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "graft", "_GRAFT_COMPLETE").source()
    if ctx.ensure_object(State).json:
        print_json({"shell": shell, "script": script})
    else:
        click.echo(script)
    return ExitCode.OK
