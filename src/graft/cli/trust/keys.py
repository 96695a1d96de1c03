"""`graft keys`: private keys are made, trusted ones are shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from graft.cli.common import ExitCode, State, common_options
from graft.cli.output import print_json, print_table
from graft.errors import InputError

if TYPE_CHECKING:
    from graft.runtime.trust.keys import TrustedKeys

keys_option = click.option(
    "--keys",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The trusted keys; those of the user's configuration if left out.",
)


def trusted(given: Path | None) -> TrustedKeys:
    """Return the trusted keys of a file, or the configured ones; raise InputError if there are none."""
    from graft.runtime.trust.keys import VARIABLE, configured, read_keys

    path = given or configured()
    if path is None:
        raise InputError(f"no trusted keys are configured; give --keys FILE, or set {VARIABLE} (docs/security.md)")
    return read_keys(path)


@click.group("keys")
def command() -> None:
    """Make keys for `graft sign`, and show which are trusted."""


@command.command("new")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--name", default="", help="What the row of the trusted keys calls it; the file's name if left out.")
@common_options
@click.pass_obj
def new(state: State, file: Path, name: str) -> int:
    """Write a new private key to FILE, and print the row that makes others trust it."""
    from graft.runtime.trust.keys import key_name
    from graft.runtime.trust.signatures import new_key

    label = name or file.stem
    if '"' in label or "\\" in label or not label.isprintable():
        raise click.UsageError("--name has a quote, a backslash or an unprintable character; leave it out")
    public = new_key(file)
    if state.json:
        print_json({"file": str(file), "key": key_name(public), "name": label, "public": public.hex()})
    else:
        click.echo(f'# key {key_name(public)}\n[[key]]\nname = "{label}"\npublic = "{public.hex()}"')
    return ExitCode.OK


@command.command("list")
@keys_option
@common_options
@click.pass_obj
def listed(state: State, keys: Path | None) -> int:
    """Show the trusted keys, and which of them count today."""
    found = trusted(keys)
    rows = [
        {
            "key": name,
            "name": one.label,
            "from": str(one.since or ""),
            "until": str(one.until or ""),
            "state": found.fault(name) or "is trusted",
        }
        for name, one in found.keys.items()
    ]
    rows += [
        {"key": name, "name": "", "from": "", "until": "", "state": "was revoked"}
        for name in sorted(found.revoked - found.keys.keys())
    ]
    if state.json:
        print_json({"path": str(found.path), "keys": rows})
    else:
        print_table(("KEY", "NAME", "FROM", "UNTIL", "STATE"), [tuple(row.values()) for row in rows])
    return ExitCode.OK
