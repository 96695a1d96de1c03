"""The state of a backend object that its declared options do not cover: a loaded program would go without it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from inspect import getattr_static
from typing import TYPE_CHECKING, Any

from graft.runtime.foreign import is_interrupt, kind_of, said

if TYPE_CHECKING:
    from graft.plugins.backend import Backend

DEPTH = 4
"""How far objects within objects are compared."""


def lost_state(backend: Backend) -> str:
    """Return why an object cannot be built again from its options, "" if it can.

    One built from the options alone is compared with it: attributes that the constructor sets, and those that stand
    before the class's own. What was added later, such as engines that were loaded, is no state of the kind.
    """
    own = _attributes(backend)
    if not own:
        return ""
    try:
        fresh = _attributes(backend.configured({}))
    except BaseException as error:
        if is_interrupt(error):
            raise
        return (
            f"backend '{backend.name}' cannot be built from its options alone ({kind_of(error)}: {said(error)}); "
            "declare what its constructor takes as options"
        )
    missing = object()
    wanted = {name: fresh.get(name, getattr_static(type(backend), name, missing)) for name in own}
    lost = [name for name, value in wanted.items() if value is not missing and not _same(own[name], value)]
    if not lost:
        return ""
    names = ", ".join(f"'{name}'" for name in lost)
    return (
        f"backend '{backend.name}' has {names} from its constructor or its user, which is no declared option and "
        "would be lost; declare it as one"
    )


def _attributes(backend: Backend) -> dict[str, Any]:
    """Return the attributes of an object but its options, its label and what properties keep."""
    kept = {name for name in vars(backend) if isinstance(getattr_static(type(backend), name, None), cached_property)}
    return {name: value for name, value in vars(backend).items() if name not in kept | {"label", "options"}}


def _same(one: Any, other: Any, depth: int = DEPTH) -> bool:
    """Whether two values are alike: equal, or where their type knows no equality, of the same type and contents."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if depth == 0:
        return True
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key], depth - 1) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(_same(*pair, depth - 1) for pair in zip(one, other, strict=True))
    if getattr_static(type(one), "__eq__") is getattr_static(object, "__eq__"):
        return _same(getattr(one, "__dict__", {}), getattr(other, "__dict__", {}), depth - 1)
    try:
        answer = one == other
        return bool(answer.all()) if hasattr(answer, "all") else bool(answer)
    except (TypeError, ValueError):  # arrays of shapes that do not fit each other
        return False
