"""The project of a new plugin: templates of a kind, filled in, written all or none.

A template is a file whose name and text may hold ``@name@`` (npu), ``@package@`` (graft_npu), ``@class@`` (Npu) and a
few facts of this Graft; the ending ``.tmpl`` keeps tools from taking it for what it will be.
"""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import graft
from graft.errors import GraftError
from graft.plugins.backend import API_LEVEL
from graft.plugins.discovery import BUILT_IN
from graft.runtime import include_dir
from graft.runtime.system.files import make_folder, write

PARTS = {
    "json": """`@package@/backend.py` says what is supported, and computes it. Replace the kernels by your own.""",
    "c-source": """`@package@/backend.py` says what is supported, and has the call of each kernel as a line of C. The
  kernels are in `@package@/native/@name@.h`: declare your library's there.""",
    "native": """`@package@/backend.py` says what is supported, `@package@/program.py` writes a region as bytes.
- `@package@/native/loader.c` checks these and runs them, without Python. After a change of it, install again.
- `@package@/native/graft` are the headers of Graft's runtime; a loader of another ABI version is refused, by name.""",
    "rewrite": """`@package@/rewriting.py` has the rules that bring a model into the form of the kernels, which are in
  `@package@/backend.py`. Replace both by your library's.""",
    "tensor-ir": """`@package@/machine.py` describes the machine, `@package@/target.py` says what is supported.
- `@package@/emitter.py` writes the machine's language, `@package@/runtime.py` runs it: put your machine there.""",
}
"""What the files of each kind of project are for."""
KINDS = tuple(PARTS)
TEMPLATE = 1
"""The version of the templates, recorded in the project."""
HEADERS = ("device.h", "dlpack.h", "runtime.h")
"""What a loader in C is built with: a copy of each, for a build that is isolated finds no Graft."""
NAME = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")


def write_project(name: str, kind: str, folder: Path) -> list[str]:
    """Write the project of a plugin with the backend ``name`` and return its files; raise GraftError if that fails.

    The folder must not be there, or be empty.
    """
    project = contents(name, kind)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise GraftError(f"'{folder}' is there already; give a new folder with --output", path=str(folder))
    for path, text in project.items():
        make_folder((folder / path).parent, "project")
        write(folder / path, text, "project")
    return list(project)


def contents(name: str, kind: str) -> dict[str, str]:
    """Return the texts of a project's files by path; raise GraftError for a name or a kind that cannot be."""
    if kind not in KINDS:
        raise GraftError(f"there is no kind of backend '{kind}'; give one of {', '.join(KINDS)}", kind=kind)
    plain = name.replace("-", "_")
    if NAME.fullmatch(name) is None or keyword.iskeyword(plain):
        raise GraftError(f"'{name}' is no name of a backend; give lower-case letters, digits and '_', as in npu")
    if plain in BUILT_IN:
        raise GraftError(f"'{name}' is a backend of Graft's own; give another name", backend=name)
    facts = {
        "name": plain,
        "dashed": plain.replace("_", "-"),
        "package": f"graft_{plain}",
        "class": "".join(part.title() for part in plain.split("_")),
        "kind": kind,
        "template": str(TEMPLATE),
        "graft": graft.__version__.partition("+")[0],
        "api": str(API_LEVEL),
    }
    facts["parts"] = _filled(PARTS[kind], facts)
    found: dict[str, str] = {}
    for part in ("common", kind):
        _gather(files("graft.testkit.scaffold") / "templates" / part, "", facts, found)
    if kind == "native":
        for header in HEADERS:
            text = (Path(include_dir()) / "graft" / header).read_text(encoding="utf-8")
            found[f"{facts['package']}/native/graft/{header}"] = text
    return dict(sorted(found.items()))


def _gather(folder: Traversable, place: str, facts: dict[str, str], found: dict[str, str]) -> None:
    """Fill in what is in a folder of templates; a kind's own file takes the place of the common one."""
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        path = f"{place}{entry.name}"
        if entry.is_dir():
            _gather(entry, f"{path}/", facts, found)
        elif path.endswith(".tmpl"):
            found[_filled(path.removesuffix(".tmpl"), facts)] = _filled(entry.read_text(encoding="utf-8"), facts)


def _filled(text: str, facts: dict[str, str]) -> str:
    return re.sub(r"@(\w+)@", lambda match: facts.get(match[1], match[0]), text)
