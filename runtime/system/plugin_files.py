"""Plugins that are files: how ``--plugin FILE`` is imported, in this process and in those of isolated plugins."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def name_of(path: Path) -> str:
    """Return the name of the plugin in a file: the file's, or the package's that it stands for."""
    return path.parent.name if path.name == "__init__.py" else path.stem


def import_file(path: Path) -> ModuleType:
    """Import a Python file and return the module; whatever it raises passes through.

    What lies beside it can be imported, as by a script. A file of a package is imported as the module that it is, so
    that relative imports work; raises ImportError if another package of the name is imported first.
    """
    path = path.absolute()
    top = path.parent
    while (top / "__init__.py").is_file():
        top = top.parent
    if str(top) not in sys.path:
        sys.path.append(str(top))  # behind what is installed, which it is not to hide
    if top == path.parent:
        return _executed(path, f"graft_plugin_{path.stem}")
    name = ".".join(part for part in path.relative_to(top).with_suffix("").parts if part != "__init__")
    importlib.invalidate_caches()
    module = importlib.import_module(name)
    if not Path(str(module.__file__)).samefile(path):
        raise ImportError(
            f"package '{name.partition('.')[0]}' is imported from {Path(str(module.__file__)).parent}, not from "
            f"{path.parent}; name the installed plugin without --plugin, or uninstall it"
        )
    return module


def _executed(path: Path, name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise ImportError(f"'{path.name}' is not a Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module  # dataclasses and pickling look a class's module up there
    try:
        specification.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
