"""The command `graft`: finds the verb, runs it, turns errors into messages and exit codes.

A verb's module is imported when the verb is looked up and imports what it needs when it runs: ``graft --help`` and
``graft backends list`` import neither onnx nor llvmlite nor NumPy.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

from graft.cli.common import ExitCode, State
from graft.cli.output import print_json
from graft.errors import GraftError, OptionError, PluginError, VerifyError
from graft.runtime.foreign import one_line

VERBS = (
    "backends", "plan", "compile", "run", "verify", "bisect", "bench", "inspect", "profile", "report", "export",
    "device", "datatypes", "quantize", "grad", "cache", "plugin", "sign", "verify-signature", "keys", "completion",
)  # fmt: skip
HOMES = {
    "completion": "shell.completion",
    "sign": "trust.sign",
    "verify-signature": "trust.verify_signature",
    "keys": "trust.keys",
}
"""The modules of verbs that do not have their names."""


class Verbs(click.Group):
    """The verbs, each in the module of its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order in which one meets them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a verb, None if there is none of this name."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"graft.cli.{HOMES.get(cmd_name, cmd_name)}").command
        return command


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="graft-compiler", prog_name="graft")
@click.option(
    "--include-dir", is_flag=True, is_eager=True, expose_value=False, callback=lambda *given: _folder(*given),
    help="Print the folder of the C headers and exit.",
)  # fmt: skip
@click.option(
    "--library-dir", is_flag=True, is_eager=True, expose_value=False, callback=lambda *given: _folder(*given),
    help="Print a folder with the runtime as a static library, and its pkg-config and CMake files, and exit.",
)  # fmt: skip
def cli() -> None:
    """Bring your own codegen to machine-learning models.

    Exit codes: 0 ok, 1 failure, 2 usage, 3 coverage gate, 4 accuracy gate, 5 plugin fault.
    """


def _folder(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted:
        from graft import runtime

        try:
            click.echo(getattr(runtime, str(option.name))())
        except GraftError as error:
            raise click.ClickException(error.command_line) from error
        ctx.exit()


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave the process with its exit code."""
    state = State()
    logging.basicConfig(format="graft: %(levelname)s: %(message)s", level=logging.WARNING)
    code = _run(arguments, state)
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has gone, as in `graft inspect x | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = code or ExitCode.FAILURE
    sys.exit(code)


def _run(arguments: Sequence[str] | None, state: State) -> int:
    try:
        result: object = cli.main(arguments, prog_name="graft", obj=state, standalone_mode=False)
    except click.Abort:
        click.echo("graft: interrupted", err=True)
        return 130
    except click.ClickException as error:
        state.json = state.json or "--json" in (sys.argv[1:] if arguments is None else arguments)
        _show(error, _usage(error), state)
        return error.exit_code
    except GraftError as error:
        _show(error, error.command_line, state)
        return _code(error)
    except BrokenPipeError:
        return ExitCode.FAILURE
    except OSError as error:
        _show(error, f"{error.filename or 'system'}: {error.strerror or error}", state)
        return ExitCode.FAILURE
    return result if isinstance(result, int) else ExitCode.OK


def _usage(error: click.ClickException) -> str:
    """Return a usage error in one line, with the verb and where its options are explained."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    command = "graft" if context is None else context.command_path
    text = one_line(error.format_message()).rstrip(".")
    return f"{text}; see {command} --help" if isinstance(error, click.UsageError) else text


def _code(error: GraftError) -> ExitCode:
    if isinstance(error, OptionError):  # the user's, though the plugin says it
        return ExitCode.FAILURE
    if isinstance(error, PluginError) or "plugin" in error.facts:
        return ExitCode.PLUGIN
    return ExitCode.ACCURACY if isinstance(error, VerifyError) else ExitCode.FAILURE


def _show(error: Exception, message: str, state: State) -> None:
    if state.verbose:
        traceback.print_exception(error)
    if state.json:
        print_json({"error": {"type": type(error).__name__, "message": message}})
    else:
        hint = "" if state.verbose or error.__cause__ is None else " (-v shows the traceback)"
        click.echo(f"graft: {message}{hint}", err=True)
