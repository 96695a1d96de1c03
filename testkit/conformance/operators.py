"""Level 1: every claimed operator against the reference, over shapes, attributes, types and special values."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import onnx

from graft.testkit.conformance.cases.drawn import operator_trials
from graft.testkit.conformance.cases.hard_shapes import hard_shapes
from graft.testkit.conformance.cases.onnx_cases import tests_of
from graft.testkit.conformance.cases.outcome import Case, Trial
from graft.testkit.conformance.cases.variants import variants, with_operands, with_symbols, with_view
from graft.testkit.conformance.kit import Kit

DRAWN = 6
"""The models that are drawn of each row of the random models' table."""


def subjects(kit: Kit) -> list[str]:
    """Return ONNX's operators, those of other domains with the domain in front."""
    schemas = {(one.domain, one.name) for one in onnx.defs.get_all_schemas() if not one.deprecated}
    return sorted(f"{domain}::{name}" if domain else name for domain, name in schemas)


def cases(kit: Kit, subject: str) -> Iterator[Case]:
    """Give the operator's cases: ONNX's node tests, each in all its variants, hard shapes, and drawn models of it.

    Of a test that the backend takes nothing of there are variants only if it is the operator's first. What a plan does
    not give to the backend is no case: most operators are not most backends'.
    """
    if not kit.may_take(subject):
        return
    seen = False
    for number, (name, trial) in enumerate(tests_of(subject).items()):
        title = f"1/{subject}/{name.removeprefix('test_')}"
        claimed = bool(kit.claims(trial))
        if claimed:
            yield Case(title, partial(kit.attempt, trial))
        if claimed and not seen and kit.may_take("Transpose"):
            for variant, other in with_view(trial):
                yield Case(f"{title}-{variant}", partial(kit.attempt, other))
        all_of_them, seen = not number or (claimed and not seen), seen or claimed
        for variant, other in variants(trial, all_of_them=all_of_them) if claimed or number == 0 else ():
            if kit.claims(other):
                yield Case(f"{title}-{variant}", partial(kit.attempt, other))
    for name, trial in _hard(subject):
        if kit.claims(trial):
            yield Case(f"1/{subject}/hard-{name}", partial(kit.attempt, trial))
    for number, trial in enumerate(operator_trials(subject, DRAWN)):
        if kit.claims(trial):
            yield Case(f"1/{subject}/drawn-{number}", partial(kit.attempt, trial))


def _hard(subject: str) -> Iterator[tuple[str, Trial]]:
    """Give hard shapes, each with its operands otherwise, and the first and the last of each rank with symbols."""
    rows = list(hard_shapes(subject))
    ranks = [next(iter(trial.feeds.values())).ndim for _, trial in rows]
    last = {rank: number for number, rank in enumerate(ranks)}
    for number, (name, trial) in enumerate(rows):
        yield name, trial
        for variant, other in with_operands(trial):
            yield f"{name}-{variant}", other
        is_end = number in (ranks.index(ranks[number]), last[ranks[number]])
        symbolic = with_symbols(trial) if is_end else None
        if symbolic is not None:
            yield f"{name}-symbolic", symbolic
