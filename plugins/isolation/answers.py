"""Answers of a plugin's process, read. One in a sandbox is not trusted: its pickles may make data and nothing else."""

from __future__ import annotations

import dataclasses
import io
import pickle
from enum import Enum
from typing import Any

from graft.errors import GraftError

FOLDERS = ("graft.core.", "graft.partition.", "graft.patterns.", "graft.plugins.", "graft.runtime.", "graft.errors")
"""Where the classes stand whose objects answers are made of."""
ARRAYS = frozenset(
    {
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "scalar"),
        ("numpy._core.numeric", "_frombuffer"),
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy.core.multiarray", "scalar"),
        ("numpy.core.numeric", "_frombuffer"),
        ("builtins", "frozenset"),
        ("builtins", "set"),
    }
)


class _Data(pickle.Unpickler):
    """Makes numbers, texts, containers, arrays, and objects of Graft's dataclasses, enumerations and errors."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class that may be made objects of; raise UnpicklingError for any other name."""
        if (module, name) in ARRAYS:
            return super().find_class(module, name)
        if module.startswith(FOLDERS) and name.isidentifier():
            found = super().find_class(module, name)
            is_own = isinstance(found, type) and found.__module__ == module and found.__qualname__ == name
            if is_own and (dataclasses.is_dataclass(found) or issubclass(found, Enum | GraftError)):
                return found
        raise pickle.UnpicklingError(f"'{module}.{name}' is not what answers from a sandbox are made of")


def read_answer(data: bytes, is_sandboxed: bool) -> tuple[bool, Any]:
    """Return whether an answer is one, and it or the error; raise what reading raises for what is not one."""
    answer = _Data(io.BytesIO(data)).load() if is_sandboxed else pickle.loads(data)
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise pickle.UnpicklingError("it is no answer")
    fine, value = answer
    if fine is not True and not (isinstance(value, tuple) and len(value) == 4 and _is_error(value[0])):
        raise pickle.UnpicklingError("it is no error of Graft's")
    return fine is True, value


def _is_error(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, GraftError)
