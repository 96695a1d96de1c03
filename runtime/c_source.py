"""The C text of a module, from which the same kernels are compiled elsewhere: in a C project, for another machine.

A kernel is a plain C function: ``GraftContext *`` where it needs its host (and ``GraftKept *``, where it keeps
something), then inputs and outputs in the order of the call, an element pointer each (NULL for an optional input that
is absent), behind it ``const int64_t *`` with the shape and another with the strides where the function reads them
(strides may be NULL: the tensor is contiguous). One that needs its host returns 0 or an error number, another nothing:
it cannot fail. Everything else that the text names stands in the header `prelude`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INCLUDE = Path(__file__).parent / "native" / "include"
"""The folder that headers are included from."""
PRELUDE = "graft/kernel.h"
VARIES = -1
"""The scratch memory of a function that asks for more where shapes are larger."""


def prelude() -> str:
    """Return the header that every text needs, which is whole by itself where ``GRAFT_PROJECT`` is defined."""
    return (INCLUDE / PRELUDE).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class CFunction:
    """The plain C function behind one function of a module."""

    entry: str
    """Its name."""
    parameters: str
    """As C declares them, without the parentheses."""
    shapes: tuple[bool, ...]
    """For each tensor, whether its shape is passed ..."""
    strides: tuple[bool, ...]
    """... and whether its strides are."""
    scratch: int = 0
    """The most bytes that it asks its host for at one time, or `VARIES`."""
    growing: tuple[tuple[int, ...], ...] = ()
    """Blocks that it asks for beside: the bytes for extents of 1, then tensor and axis of each extent that varies."""
    keeps: bool = False
    """Whether it keeps objects from run to run: behind the context it has ``GraftKept *``, one for each call."""
    needs_host: bool = True
    """Whether it may ask its host for memory or threads, or fail: it has a context, and returns an error number."""
    extents: tuple[int, ...] = ()
    """What it is given behind its tensors, where other functions of the module have the same C function."""

    @property
    def declaration(self) -> str:
        """The C declaration, without storage class and semicolon."""
        return f"{'int32_t' if self.needs_host else 'void'} {self.entry}({self.parameters})"


@dataclass(frozen=True, slots=True)
class Driver:
    """What runs a module that is data: a driver of the firmware, whose hooks ``graft/region.h`` states."""

    name: str
    """Of the hooks: ``graft_<name>_init``, ``graft_<name>_run``."""
    blobs: Mapping[str, tuple[int, int]]
    """What the driver is handed by name: where it begins in the module's data, and its bytes."""
    alignment: int = 16
    """Of each blob."""

    def to_json(self) -> dict[str, Any]:
        """Return its JSON form."""
        return {"name": self.name, "blobs": {one: list(at) for one, at in self.blobs.items()}, "align": self.alignment}

    def fault(self) -> str:
        """Return why the C of a project cannot have such a driver, "" if it can."""
        macros: dict[str, str] = {}
        for one in (self.name, *self.blobs):
            if re.fullmatch(r"[A-Za-z_]\w*", one, re.ASCII) is None:
                return f"'{one}' cannot be part of a name in C; give it letters, digits and underscores"
        for blob, (begin, size) in self.blobs.items():
            if (other := macros.setdefault(blob.upper(), blob)) != blob:
                return f"the blobs '{other}' and '{blob}' have one macro in C; give one another name"
            if blob.lower() == "scratch":
                return f"a blob cannot be called '{blob}': that is the memory of calls"
            if begin < 0 or size < 0:
                return f"the blob '{blob}' begins at {begin} and has {size} bytes"
        is_power = self.alignment > 0 and self.alignment & (self.alignment - 1) == 0
        return "" if is_power else f"the alignment is {self.alignment}, which is no power of two"


@dataclass(frozen=True, slots=True)
class CSource:
    """The C functions of a module: everything but the prelude. The same module gives the same text."""

    text: str
    functions: Mapping[str, CFunction]
    """By name of the module's function."""
    libraries: tuple[str, ...] = ()
    """To link with, in a compiler's terms: ``-lopenblas``."""
    headers: tuple[str, ...] = ()
    """To include: ``cblas.h``."""
    compiler: str = ""
    """What compiled the module's own code, with its flags; "" if nothing did."""
    language: str = "c"
    """Of the text. Only C is exported, and only it says its functions; others are for who reads and edits them."""
    driver: Driver | None = None
    """What the text calls, where the module is no code."""


def source_to_json(source: CSource, member: str) -> dict[str, Any]:
    """Return the JSON form of a source whose text is a member of the artifact."""
    rows = {name: function_to_json(function) for name, function in source.functions.items()}
    row = {
        "member": member,
        "functions": rows,
        "libraries": list(source.libraries),
        "headers": list(source.headers),
        "compiler": source.compiler,
    }
    row |= {} if source.driver is None else {"driver": source.driver.to_json()}
    return row | ({} if source.language == "c" else {"language": source.language})


def source_from_json(row: Mapping[str, Any], text: str) -> CSource:
    """Return what `source_to_json` wrote; raise KeyError, TypeError, AttributeError or ValueError where it is not."""
    functions = {str(name): function_from_json(one) for name, one in row["functions"].items()}
    compiler, language = _texts((row["compiler"], row.get("language", "c")))
    driver = driver_from_json(row["driver"]) if "driver" in row else None
    return CSource(text, functions, _texts(row["libraries"]), _texts(row["headers"]), compiler, language, driver)


def driver_from_json(row: Mapping[str, Any]) -> Driver:
    """Return what `Driver.to_json` wrote; raise KeyError, TypeError or ValueError for something else."""
    (name,) = _texts((row["name"],))
    blobs = {str(one): (int(begin), int(size)) for one, (begin, size) in row["blobs"].items()}
    driver = Driver(name, blobs, int(row["align"]))
    if fault := driver.fault():
        raise ValueError(fault)
    return driver


def function_to_json(function: CFunction) -> dict[str, Any]:
    """Return the JSON form of a function."""
    row = {
        "entry": function.entry,
        "parameters": function.parameters,
        "shapes": [int(flag) for flag in function.shapes],
        "strides": [int(flag) for flag in function.strides],
        "scratch": function.scratch,
    }
    row |= {"extents": list(function.extents)} if function.extents else {}
    row |= {"growing": list(map(list, function.growing))} if function.growing else {}
    return row | ({"keeps": 1} if function.keeps else {}) | ({} if function.needs_host else {"plain": 1})


def function_from_json(row: Mapping[str, Any]) -> CFunction:
    """Return what `function_to_json` wrote; raise KeyError, TypeError or ValueError for something else."""
    entry, parameters = _texts((row["entry"], row["parameters"]))
    shapes, strides = (tuple(map(bool, row[name])) for name in ("shapes", "strides"))
    scratch = int(row["scratch"])
    if len(shapes) != len(strides) or scratch < VARIES or not entry.isidentifier():
        raise ValueError(f"{entry!r} is not a C function with {len(shapes)} shapes and {len(strides)} strides")
    keeps, is_plain = (bool(row.get(name, 0)) for name in ("keeps", "plain"))
    extents = tuple(map(int, row.get("extents", ())))
    growing = tuple(tuple(map(int, block)) for block in row.get("growing", ()))
    if not all(
        len(block) % 2 and min(block) >= 0 and all(one < len(shapes) for one in block[1::2]) for block in growing
    ):
        raise ValueError(f"'{entry}' asks for blocks of memory by extents of other tensors than its {len(shapes)}")
    return CFunction(entry, parameters, shapes, strides, scratch, growing, keeps, not is_plain, extents)


def _texts(row: Sequence[Any]) -> tuple[str, ...]:
    for text in row:
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is not a text")
    return tuple(row)
