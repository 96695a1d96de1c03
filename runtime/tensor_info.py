"""What a program tells of its inputs and outputs, and arrays put in the order of inputs."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from graft.errors import InputError

QUANTIZATION = "quantization"
"""The key of a program's metadata for scales and zero points of inputs and outputs, by name."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """The name, element type and shape of an input or output.

    An extent that runs choose or find out is a text, as in ``("batch", "2 * seq")``; the shape is None where not even
    the rank is known before a run.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape as numbers; None where it has others or is unknown."""
        numbers = tuple(extent for extent in self.shape or () if isinstance(extent, int))
        return numbers if self.shape is not None and len(numbers) == len(self.shape) else None

    def __str__(self) -> str:
        shape = "" if self.shape is None else f"[{','.join(map(str, self.shape))}]"
        return f"{self.dtype}{shape}"


@dataclass(frozen=True, slots=True)
class Quantization:
    """The real number that an integer of an input or output stands for."""

    scale: float
    zero_point: int

    def __str__(self) -> str:
        return f"{self.scale:.9g} * (value - {self.zero_point})"

    @classmethod
    def of(cls, metadata: Mapping[str, Any], name: str) -> Quantization | None:
        """Return that of an input or output by its name, as the metadata of a program tells it; None if it has none."""
        row = metadata.get(QUANTIZATION, {}).get(name)
        return None if row is None else cls(float(row[0]), int(row[1]))


def in_order(inputs: Sequence[TensorInfo], arrays: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the arrays in the order of the inputs; the positional ones stand for the first inputs.

    Raises InputError for a name that is none of them, twice there, or missing.
    """
    names = [one.name for one in inputs]
    rest = names[len(arrays) :]
    for name in named:
        if name not in rest:
            _fail_name(name, names)
    missing = [name for name in rest if name not in named]
    if missing:
        raise InputError(
            f"missing input{'s' * (len(missing) > 1)} {quoted(missing)}; the program takes {quoted(names)}",
            missing=tuple(missing),
        )
    return (*arrays, *(named[name] for name in rest))


def _fail_name(name: str, names: Sequence[str]) -> NoReturn:
    if name in names:
        raise InputError(f"input '{name}' is given twice: by position and by name", input=name)
    hint = did_you_mean(name, names)
    raise InputError(f"no input '{name}'; the program takes {quoted(names) or 'none'}{hint}", input=name)


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """Return the end of a message about an unknown name: the nearest known one, if one is near."""
    close = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def quoted(names: Sequence[str]) -> str:
    """Return names for a message."""
    return ", ".join(f"'{name}'" for name in names)
