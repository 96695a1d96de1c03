"""Level 2: every composite of the backend's table, and what it nearly matches."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

from graft.patterns.language import Pattern
from graft.testkit.conformance.cases.near_misses import near_misses
from graft.testkit.conformance.cases.outcome import Case, Failure, NotClaimed, Trial
from graft.testkit.conformance.cases.synthesis import Unwritable, instances
from graft.testkit.conformance.kit import Kit

MODELS = 2
"""The instances of a composite whose near misses are tried."""


def subjects(kit: Kit) -> list[str]:
    """Return the names of the composites."""
    return [row.name for row in kit.backend.patterns]


def cases(kit: Kit, subject: str) -> Iterator[Case]:
    """Give the composite's cases: whether any model shows it, those that the kit writes, and their near misses."""
    pattern = next(row.pattern for row in kit.backend.patterns if row.name == subject)
    shown: list[Trial] = []
    for name, trial in _written(pattern):
        yield Case(f"2/{subject}/{name}", partial(kit.attempt, trial))
        if len(shown) < MODELS and takes(kit, trial, subject):
            shown.append(trial)
            for change, other in near_misses(trial):
                yield Case(f"2/{subject}/{name}-{change}", partial(kit.attempt, other))
    yield Case(f"2/{subject}/is-taken", partial(_require_shown, kit, pattern, subject, bool(shown)))


def takes(kit: Kit, trial: Trial, composite: str) -> bool:
    """Whether a model's plan has the composite."""
    return composite in _composites(kit, trial)


def _composites(kit: Kit, trial: Trial) -> set[str]:
    """Return the names of the composites of a model's plan; none where it cannot be compiled."""
    try:
        plan, _ = kit.compiled(trial)
    except (Failure, NotClaimed):
        return set()
    return {row.composite for row in plan.placements if row.composite}


def _written(pattern: Pattern) -> Iterator[tuple[str, Trial]]:
    try:
        yield from instances(pattern)
    except Unwritable:
        return


def _require_shown(kit: Kit, pattern: Pattern, composite: str, found: bool) -> None:
    """Raise Failure for a composite that no model of the kit or of the vendor shows, though the kit can write some."""
    if found or any(takes(kit, trial, composite) for trial in kit.models):
        return
    try:
        others = set[str]().union(*(_composites(kit, trial) for _, trial in islice(instances(pattern), MODELS)))
    except Unwritable as error:
        raise Failure(f"the kit cannot write a model of it ({error}); give one with models=[...]") from error
    names = [row.name for row in kit.backend.patterns]
    earlier = [name for name in names[: names.index(composite)] if name in others]
    why = f"the earlier row '{earlier[0]}' takes them" if earlier else "its check refuses them"
    raise Failure(f"no model that the kit writes is taken by it: {why}; give a model with models=[...]")
