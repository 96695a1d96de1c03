"""Arguments of public functions: what each takes, as a table at the function, checked before anything looks at them.

    @takes(path=PATH, threads=optional(WHOLE))
    def load(path, *, threads=None): ...

An argument of another kind is an `ArgumentError` that names function, argument, what was given and what to give.
Whether a value of the right kind makes sense is the function's own business.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np

from graft.errors import ArgumentError
from graft.runtime import _native
from graft.runtime.foreign import kind_of, shown

Function = TypeVar("Function", bound=Callable[..., Any])
LARGEST = 2**31 - 1
DAY = 86400


@dataclass(frozen=True, slots=True)
class Kind:
    """What an argument may be: the words for it, as in "give a path", and the test."""

    wanted: str
    fits: Callable[[Any], bool]


def takes(**kinds: Kind) -> Callable[[Function], Function]:
    """Check the arguments named here whenever the function is called; those left out have their defaults."""

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        unknown = kinds.keys() - signature.parameters.keys()
        assert not unknown, f"{function.__qualname__} has no {unknown}"

        @functools.wraps(function)
        def checked(*arguments: Any, **named: Any) -> Any:
            for name, value in signature.bind(*arguments, **named).arguments.items():
                if name in kinds:
                    require(function.__qualname__, name, value, kinds[name])
            return function(*arguments, **named)

        return cast(Function, checked)

    return decorate


def require(function: str, argument: str, value: object, kind: Kind) -> None:
    """Raise ArgumentError if a value is not of a kind."""
    try:
        fits = kind.fits(value)
    except Exception:  # whatever a foreign object does when it is looked at, it is not what is wanted
        fits = False
    if not fits:
        given = "None" if value is None else f"{kind_of(value)} {shown(value)}"
        raise ArgumentError(
            f"{function}: {argument} is {given}; give {kind.wanted}", function=function, argument=argument
        )


def optional(kind: Kind) -> Kind:
    """Return the kind that may be None as well."""
    return Kind(f"{kind.wanted}, or None", lambda value: value is None or kind.fits(value))


def instance(*classes: type | Callable[[], type], wanted: str) -> Kind:
    """Return the kind of the objects of some classes; a function that gives a class spares its import until then."""

    def fits(value: object) -> bool:
        return any(isinstance(value, one if isinstance(one, type) else one()) for one in classes)

    return Kind(wanted, fits)


def either(*texts: str) -> Kind:
    """Return the kind of one of a few texts."""
    return Kind(f"one of {', '.join(texts)}", lambda value: isinstance(value, str) and value in texts)


def at_least(least: int) -> Kind:
    """Return the kind of whole numbers from ``least`` on."""
    return Kind(f"a whole number of at least {least}", lambda value: _is_whole(value) and least <= value <= LARGEST)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return (_is_whole(value) or isinstance(value, float | np.floating)) and math.isfinite(value)


def _is_path(value: object) -> bool:
    return isinstance(value, os.PathLike) or (isinstance(value, str) and value != "" and "\0" not in value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are_texts(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping) and all(map(_is_text, value))


def _is_shape(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping) and all(map(_is_whole, value))


def _are_shapes(value: object) -> bool:
    return isinstance(value, Mapping) and all(_is_text(name) and _is_shape(shape) for name, shape in value.items())


def _is_dimension(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return len(value) == 2 and _is_whole(value[0]) and (value[1] is None or _is_whole(value[1]))
    return _is_whole(value)


def _are_dims(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        _is_text(name) and (_is_text(one) or _is_dimension(one)) for name, one in value.items()
    )


def _are_choices(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        _is_text(name) and isinstance(choices, list | tuple) and all(map(_is_dimension, choices))
        for name, choices in value.items()
    )


FLAG = Kind("True or False", lambda value: isinstance(value, bool | np.bool_))
WHOLE = Kind(f"a whole number up to {LARGEST}", lambda value: _is_whole(value) and abs(value) <= LARGEST)
COUNTER = Kind("a whole number from 0 to 2**63 - 1", lambda value: _is_whole(value) and 0 <= value < 1 << 63)
NUMBER = Kind("a number", _is_number)
NOT_NEGATIVE = Kind("a number of at least 0", lambda value: _is_number(value) and value >= 0)
POSITIVE = Kind("a number above 0", lambda value: _is_number(value) and value > 0)
BELOW_ONE = Kind("a number of at least 0 and below 1", lambda value: _is_number(value) and 0 <= value < 1)
DURATION = Kind("a number of seconds, at most a day", lambda value: _is_number(value) and 0 <= value <= DAY)
TEXT = Kind("a text", _is_text)
TEXTS = Kind('a list of texts, as in ["one", "two"]', _are_texts)
PATH = Kind('a path, as in "model.graft"', _is_path)
ARRAYS = Kind("a mapping of names to arrays", lambda value: isinstance(value, Mapping) and all(map(_is_text, value)))
TEXT_BY_TEXT = Kind(
    "a mapping of texts to texts",
    lambda value: isinstance(value, Mapping) and all(_is_text(one) for pair in value.items() for one in pair),
)
FEEDS = Kind(
    "a mapping of input names to NumPy arrays",
    lambda value: (
        isinstance(value, Mapping)
        and all(_is_text(name) and isinstance(array, np.ndarray) for name, array in value.items())
    ),
)
SHAPES = Kind('a mapping of input names to shapes, as in {"x": (1, 3, 224, 224)}', _are_shapes)
ARRAY = Kind("an array of numbers", lambda value: np.asarray(value).dtype.kind in "biufV" and value is not None)
DIMS = Kind('a mapping of dimensions to numbers or ranges, as in {"seq": 128, "batch": (1, 64)}', _are_dims)
SPECIALIZE = Kind('a mapping of dimensions to lists of numbers or ranges, as in {"seq": [128, (1, 64)]}', _are_choices)
WIDTHS = Kind("a tuple of widths in bits, as in (8, 16)", _is_shape)
FUNCTION = Kind("a function", callable)
CANCEL = Kind("a graft.CancelToken", lambda value: isinstance(value, _native.CancelToken))


def end_of(function: str, deadline: float | None, cancel: object) -> int:
    """Return when a run that begins now is to end, in nanoseconds of the monotonic clock; 0 stands for never.

    Raises ArgumentError if the deadline is no number of seconds, or what may cancel the run no CancelToken.
    """
    if cancel is not None:
        require(function, "cancel", cancel, CANCEL)
    if deadline is None:
        return 0
    require(function, "deadline", deadline, DURATION)
    return time.monotonic_ns() + int(deadline * 1e9)
