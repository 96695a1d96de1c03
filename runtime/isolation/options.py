"""How a plugin's code is kept apart from the process that uses it."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graft.errors import ArgumentError, ArtifactError, GraftError
from graft.runtime.arguments import Kind
from graft.runtime.foreign import shown

PROCESS, SANDBOX = "process", "sandbox"
OF_ONE_MACHINE = ("python", "install", "wheels")
LINE = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w,.-]+\])?==[\w.!+*-]+( --hash=sha256:[0-9a-f]{64})*")
"""A requirement that leaves nothing open, and that names no place to fetch it from."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """A plugin in a process of its own, and what becomes of its faults.

    ``compile`` and ``run`` say when: the plugin's own decisions and its compiler, and the modules that it made. A call
    that takes longer than ``seconds``, or a load or a compilation longer than ``load_seconds``, ends its process; 0
    stands for any time. ``memory`` is how many bytes the process may have beside those that it shares (None: as many
    as there are). A call whose process was lost is tried again ``retries`` times, then, with ``fallback``, the region
    is compiled anew by the built-in compiler and the call goes on; without, or where there is no compiler, it is a
    RunError. Inputs of the call are those of its caller each time.

    With ``sandbox`` the process reads no files but its own and those of installed packages, writes none, has no
    network, starts nothing and reaches no other process; tensors are copied to it and back (Linux, docs/security.md).

    ``python`` is the interpreter that the plugin's toolkit runs in (`graft.ToolkitBackend`), with versions of NumPy and
    others of its own. ``requirements`` are the lines of a lock file, ``name==version`` each, or its path: of an
    environment that is made of that Python (default: this one) where the user says ``install``, once for each such
    list; with ``wheels``, a folder, of nothing else. Artifacts keep the requirements, not the other three.
    """

    compile: bool = True
    run: bool = True
    seconds: float = 60.0
    load_seconds: float = 120.0
    memory: int | None = None
    retries: int = 1
    fallback: bool = True
    sandbox: bool = False
    python: str | None = None
    requirements: Sequence[str] = ()
    install: bool = False
    wheels: str | None = None

    def __post_init__(self) -> None:
        given = self.requirements
        lines = (given,) if isinstance(given, str | os.PathLike) else tuple(given)
        object.__setattr__(self, "requirements", tuple(map(os.fspath, lines)))
        if self.sandbox and (self.python or self.requirements):
            raise ArgumentError("Isolation: what is in a sandbox starts no other interpreter; leave one of the two out")
        numbers = {"seconds": self.seconds, "load_seconds": self.load_seconds, "retries": self.retries}
        for name, value in (*numbers.items(), ("memory", 1 if self.memory is None else self.memory)):
            least = 1 if name == "memory" else 0
            if not isinstance(value, int | float) or isinstance(value, bool) or not value >= least:
                raise ArgumentError(f"Isolation: {name} is {shown(value)}; give a number from {least} on")

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values, without those that are of this machine; files of requirements are read."""
        fields = {**dataclasses.asdict(self), "requirements": locked(self.requirements)}
        return {name: value for name, value in fields.items() if name not in OF_ONE_MACHINE}


def locked(requirements: Sequence[str]) -> list[str]:
    """Return requirements, files read, sorted; raise GraftError for one that leaves something open."""
    lines = []
    for one in requirements:
        text = one
        if "==" not in one:
            try:
                text = Path(one).read_text(encoding="utf-8")
            except OSError as error:
                raise GraftError(
                    f"requirement '{one}' is neither name==version nor a file that can be read: {error.strerror}"
                ) from error
        joined = text.replace("\\\n", " ")
        lines += [" ".join(line.partition("#")[0].split()) for line in joined.splitlines()]
    found = sorted(set(filter(None, lines)))
    for line in found:
        if not LINE.fullmatch(line):
            raise GraftError(
                f"requirement '{line}' leaves something open; write name==version, with --hash=sha256:... behind it, "
                "for every package of the environment"
            )
    return found


Isolations = Mapping[str, "str | Isolation"]
"""By the name of a plugin or backend: ``"process"``, ``"sandbox"``, or `Isolation` with settings."""

ISOLATION = Kind(
    'a dict such as {"npu": "process"}, or of graft.Isolation objects',
    lambda value: (
        isinstance(value, Mapping)
        and all(
            isinstance(name, str) and (isinstance(how, Isolation) or how in (PROCESS, SANDBOX))
            for name, how in value.items()
        )
    ),
)


def isolations(wanted: Isolations) -> dict[str, Isolation]:
    """Return what was wanted with ``"process"`` and ``"sandbox"`` spelled out."""
    return {
        name: how if isinstance(how, Isolation) else Isolation(sandbox=how == SANDBOX) for name, how in wanted.items()
    }


def isolations_of(metadata: Mapping[str, Any]) -> dict[str, Isolation]:
    """Return what an artifact says of its plugins, by name; raise ArtifactError if it cannot be read."""
    try:
        return {str(name): Isolation(**_portable(row)) for name, row in dict(metadata.get("isolation", {})).items()}
    except (AttributeError, TypeError, ValueError, ArgumentError) as error:
        raise ArtifactError(f"the artifact's isolation cannot be read: {error}; compile it again") from error


def _portable(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an artifact may say: it starts no program of its choice, reads no file, and installs nothing.

    Raises ValueError for requirements that are no lines.
    """
    for line in row.get("requirements", ()):
        if not LINE.fullmatch(line):
            raise ValueError(f"requirement {shown(line)} is no name==version")
    return {name: value for name, value in row.items() if name not in OF_ONE_MACHINE}
