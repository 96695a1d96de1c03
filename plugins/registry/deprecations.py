"""What plugins may still do and are to do otherwise: the rows, and the warnings of those that do it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graft.plugins.backend import Backend


@dataclass(frozen=True, slots=True)
class Deprecation:
    """A method or an attribute that backends override, as in ``Backend.cost``, or a hook, as in ``graft_passes``.

    It is deprecated from interface level ``since`` on and works for that whole level; ``instead`` takes its place.
    """

    name: str
    since: int
    instead: str

    def warning(self, who: str) -> str:
        """Return the warning for a plugin that uses it."""
        return (
            f"{who} defines {self.name}, which is deprecated since level {self.since} of the plugin interface and gone "
            f"in level {self.since + 1}; define {self.instead}"
        )


DEPRECATIONS: tuple[Deprecation, ...] = ()
"""What is deprecated at this level; each row stands in the table of docs/plugins.md, too."""


def deprecated_uses(who: str, hooks: object, backends: Sequence[Backend]) -> Iterator[str]:
    """Give the warnings for a plugin, for hooks that it implements and members that its backends override."""
    for row in DEPRECATIONS:
        owner, _, member = row.name.rpartition(".")
        if not owner:
            if hasattr(hooks, member):
                yield row.warning(who)
            continue
        for backend in backends:
            if _overrides(type(backend), owner, member):
                yield row.warning(f"{who}: backend '{backend.name}'")


def warn(texts: Sequence[str]) -> None:
    """Warn of each text with a DeprecationWarning, for the tests of plugins to show."""
    for text in texts:
        warnings.warn(text, DeprecationWarning, stacklevel=2)


def _overrides(kind: type, owner: str, member: str) -> bool:
    """Whether a class below the one of Graft's called ``owner`` has a member of its own."""
    line = type.mro(kind)
    names = [one.__name__ for one in line if one.__module__.startswith("graft.plugins.")]
    own = (one for one in line if not one.__module__.startswith("graft.plugins."))
    return owner in names and any(member in vars(one) for one in own)
