"""A backend at other values of its options: an artifact that loses one computes as if it were at its default."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from graft.core.backend_spec import OptionValue, backend_text
from graft.errors import GraftError
from graft.plugins.options.declared import Option
from graft.plugins.options.values import changed
from graft.plugins.registry.fence import FencedBackend
from graft.testkit.conformance.kit import Kit


def with_other_options(kit: Kit) -> Iterator[Kit]:
    """Give the kit with another value of every option that has an obvious one: at once, or each alone if that fails."""
    fenced = kit.backend
    backend = fenced.backend if isinstance(fenced, FencedBackend) else fenced
    rows, now = backend.option_rows(), backend.option_values()
    values = {row.name: value for row in rows for value in _other(row, now[row.name])}
    given = changed(rows, now)
    together = _kit(kit, {**given, **values})
    if together is not None and values:
        yield together
        return
    for name, value in values.items():
        alone = _kit(kit, {**given, name: value})
        if alone is not None:
            yield alone


def _kit(kit: Kit, values: dict[str, OptionValue]) -> Kit | None:
    """Return the kit of the backend with these values, None where it refuses them."""
    other = replace(kit, text=backend_text(kit.name, values))
    try:
        return other if other.backend else None
    except GraftError:
        return None


def _other(row: Option, now: OptionValue) -> Iterator[OptionValue]:
    """Give one other value of an option; none of texts, tuples and secrets, which are paths and the like."""
    if row.secret or row.is_tuple:
        return
    if row.choices:
        yield from [one for one in row.choices if one != now][:1]
    elif row.kind == "bool":
        yield not now
    elif row.kind in ("int", "float") and isinstance(now, int | float):
        yield now + 1
