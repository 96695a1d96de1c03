"""The option that keeps plugins apart: ``--isolate NAME``, with settings behind a colon."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from graft.cli.common import Command, set_state

if TYPE_CHECKING:
    from graft.runtime.isolation.options import Isolation

EXAMPLES = "write NAME, or NAME:seconds=5,memory=2G,retries=0,fallback=no"


def isolation_argument(text: str) -> tuple[str, Isolation]:
    """Return name and settings of ``npu``, or ``npu:seconds=5,memory=2G,fallback=no,python=/opt/npu/bin/python``."""
    from graft.runtime.isolation.options import Isolation

    name, _, settings = text.partition(":")
    given: dict[str, Any] = {}
    for setting in filter(None, settings.split(",")):
        key, _, value = setting.partition("=")
        read = ISOLATION_SETTINGS.get(key)
        try:
            given[key] = read(value) if read else None
        except (KeyError, ValueError):
            read = None
        if read is None:
            raise click.BadParameter(
                f"'{setting}' is no setting; write NAME, or NAME:seconds=5,memory=2G,retries=0,fallback=no"
            )
    if not name:
        raise click.BadParameter(f"'{text}' names no backend; {EXAMPLES}")
    return name, Isolation(**given)


def _bytes(text: str) -> int:
    unit = text[-1:].upper()
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(unit, 1)
    return int(float(text[:-1]) * scale) if scale > 1 else int(text)


def _yes(text: str) -> bool:
    return {"yes": True, "no": False}[text]


ISOLATION_SETTINGS: dict[str, Callable[[str], Any]] = {
    "seconds": float,
    "load_seconds": float,
    "memory": _bytes,
    "retries": int,
    "fallback": _yes,
    "compile": _yes,
    "run": _yes,
    "sandbox": _yes,
    "python": str,
    "requirements": str,
    "install": _yes,
    "wheels": str,
}


def isolation_option(command: Command) -> Command:
    """Add ``--isolate``."""
    return click.option(
        "--isolate", metavar="NAME[:seconds=5,...]", type=isolation_argument, multiple=True,
        callback=set_state("isolation"), expose_value=False,
        help="Run a backend's code in a process of its own, which may crash or hang.",
    )(command)  # fmt: skip
