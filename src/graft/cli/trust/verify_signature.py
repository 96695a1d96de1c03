"""`graft verify-signature`: whether a trusted key has signed a file."""

from __future__ import annotations

from pathlib import Path

import click

from graft.cli.common import MODEL, ExitCode, State, common_options
from graft.cli.output import print_json
from graft.cli.trust.keys import keys_option, trusted


@click.command("verify-signature")
@click.argument("file", type=MODEL)
@keys_option
@common_options
@click.pass_obj
def command(state: State, file: Path, keys: Path | None) -> int:
    """Check that a trusted key has signed FILE, an artifact or a library, and that nothing in it has changed since."""
    from graft.runtime.trust.signatures import verify_file

    key = verify_file(file, trusted(keys))
    if state.json:
        print_json({"file": str(file), "key": key.name, "label": key.label})
    else:
        click.echo(f"{file}: signed by '{key.label}' ({key.name})")
    return ExitCode.OK
