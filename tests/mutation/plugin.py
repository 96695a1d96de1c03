"""A pytest plugin that imports a mutant in the place of a module (`GRAFT_MUTANT`: its path and a file)."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, path: Path, source: Path) -> None:
        self.path, self.source = path.resolve(), source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if found is None or found.origin is None or Path(found.origin).resolve() != self.path:
            return None
        found.loader = _Loader(fullname, found.origin, self.source)
        return found


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, source: Path) -> None:
        super().__init__(name, path)
        self.source = source

    def get_code(self, fullname: str):  # type: ignore[no-untyped-def]
        return compile(self.source.read_text(encoding="utf-8"), self.path, "exec")


if "GRAFT_MUTANT" in os.environ:
    _path, _, _source = os.environ["GRAFT_MUTANT"].partition(os.pathsep)
    sys.meta_path.insert(0, _Finder(Path(_path), Path(_source)))
