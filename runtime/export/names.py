"""Names of models in C, and what an export says of the program that it was made from."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from graft.errors import ArtifactError
from graft.runtime.export.c_names import HEADERS, TAKEN
from graft.runtime.loaders import NATIVE
from graft.runtime.procedure import Module

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PREDEFINED = frozenset({"linux", "unix", "i386", "arm", "mips", "sparc", "vax", "sun", "EOF", "INFINITY", "NAN", "I"})


@dataclass(frozen=True, slots=True)
class Need:
    """A loader that the host has to bring for modules of some kind."""

    kind: str
    plugin: str
    install: str

    def __str__(self) -> str:
        by = f" of plugin '{self.plugin}'" if self.plugin else ""
        return f"the loader{by} for '{self.kind}'" + (f" ({self.install})" if self.install else "")


def needs_of(modules: Sequence[Module]) -> tuple[Need, ...]:
    """Return the loaders that modules need beside the runtime's own, each once."""
    found = [Need(module.kind, module.plugin, module.install) for module in modules if module.kind != NATIVE]
    return tuple(dict.fromkeys(found))


def model_name(name: str | None, path: str | os.PathLike[str]) -> str:
    """Return the name that the symbols of an export carry: ``name``, else one made of the last part of ``path``.

    Raises ArtifactError if ``name`` is none in C, or if it means something else there.
    """
    if name is None:
        stem = re.sub(r"[^A-Za-z0-9_]", "_", Path(path).name.split(".")[0].removeprefix("lib"))
        return stem if _NAME.fullmatch(stem) and not _meaning(stem) else f"model_{stem}".rstrip("_")
    if _NAME.fullmatch(name) is None:
        raise ArtifactError(
            f"'{name}' cannot be the name of a model in C; give letters, digits and underscores that begin with no "
            "digit, as in 'digits_v2'",
            name=name,
        )
    if meaning := _meaning(name):
        raise ArtifactError(
            f"'{name}' cannot be the name of a model in C: it is {meaning}; give another one, as in "
            f"'model_{name.strip('_')}'",
            name=name,
        )
    return name


def _meaning(name: str) -> str:
    """Return what a name is to C, to C++ or to the code around the model; "" for one that is free."""
    if name.startswith("_"):
        return "reserved for compilers and their libraries"
    if name.startswith("graft_"):
        return "like the names of the runtime, which begin with 'graft_'"
    if name.lower() in HEADERS:
        return f"the name of a header, '{name.lower()}.h'" if name.lower() != "graft" else "the runtime's own name"
    if name in _PREDEFINED:
        return "a macro that compilers define"
    return "a word of C or C++" if name in TAKEN else ""
