"""`graft sign`: an artifact, or an exported library, gets a signature."""

from __future__ import annotations

import os
from pathlib import Path

import click

from graft.cli.common import MODEL, ExitCode, State, common_options
from graft.cli.output import print_json

PASSPHRASE = "GRAFT_KEY_PASSPHRASE"
"""The environment's name for what unlocks a key that is kept encrypted."""


@click.command("sign")
@click.argument("file", type=MODEL)
@click.option("--key", type=MODEL, required=True, help="The private key; `graft keys new` makes one.")
@common_options
@click.pass_obj
def command(state: State, file: Path, key: Path) -> int:
    """Sign FILE, an artifact or a library that `graft export` wrote, beside what others have signed.

    The signature of a library is a file of its own, FILE.sig.
    """
    from graft.runtime.trust.signatures import read_key, sign

    passphrase = os.environ.get(PASSPHRASE)
    name = sign(file, read_key(key, passphrase.encode() if passphrase else None))
    if state.json:
        print_json({"file": str(file), "key": name})
    else:
        click.echo(f"{file}: signed by key {name}")
    return ExitCode.OK
