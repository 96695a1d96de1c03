"""Level 3: random models, the plugin beside `llvm` and beside `reference`, some nodes kept from it, some symbolic.

And the networks that its recipes of quantisation are tried with (`graft.testkit.conformance.recipes`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from zlib import crc32

from graft.partition.policy import Policy
from graft.testkit.conformance import recipes
from graft.testkit.conformance.cases.drawn import RandomModel, draw_model, shrunk, trial_of
from graft.testkit.conformance.cases.outcome import Case, Failure, NotClaimed, Trial
from graft.testkit.conformance.cases.variants import with_symbols
from graft.testkit.conformance.kit import REFERENCE, Kit

GROUP = 10
BESIDE = (("llvm", REFERENCE), (REFERENCE,))
SHARES = (0.0, 0.0, 0.25, 0.5)
"""The share of nodes that are kept from the backend, by seed."""


def subjects(kit: Kit) -> list[str]:
    """Return the groups of seeds, and the recipes."""
    count = kit.seeds + len(kit.models)
    return [*(f"models-{first}" for first in range(0, count, GROUP)), *recipes.subjects(kit)]


def cases(kit: Kit, subject: str) -> Iterator[Case]:
    """Give the random models of a group of seeds, as they are and with symbols; the vendor's own come last."""
    if subject in recipes.subjects(kit):
        yield from recipes.cases(kit, subject)
        return
    first = int(subject.rpartition("-")[2])
    for seed in range(first, min(first + GROUP, kit.seeds + len(kit.models))):
        if seed >= kit.seeds:
            yield Case(f"3/{subject}/own-{seed - kit.seeds}", partial(kit.attempt, kit.models[seed - kit.seeds]))
            continue
        model = draw_model(seed)
        yield Case(f"3/{subject}/seed-{seed}", partial(_attempt, kit, model))
        symbolic = with_symbols(trial_of(model))
        if symbolic is not None and seed % 2:
            yield Case(f"3/{subject}/seed-{seed}-symbolic", partial(kit.attempt, symbolic, _beside(kit, seed)))


def _attempt(kit: Kit, model: RandomModel) -> None:
    """Try a model; raise the Failure of the smallest model that still fails."""
    try:
        _try(kit, model)
    except Failure as failure:
        small = shrunk(model, lambda one: _fails(kit, one))
        raise _failure(kit, small) or failure from None


def _try(kit: Kit, model: RandomModel) -> None:
    trial = trial_of(model)
    excluded = _excluded(kit, trial, model.seed)
    kit.attempt(trial, _beside(kit, model.seed), Policy(exclude_node=excluded))


def _fails(kit: Kit, model: RandomModel) -> bool:
    return _failure(kit, model) is not None


def _failure(kit: Kit, model: RandomModel) -> Failure | None:
    try:
        _try(kit, model)
    except Failure as failure:
        return failure
    except NotClaimed:
        return None
    return None


def _beside(kit: Kit, seed: int) -> tuple[str, ...]:
    return tuple(name for name in BESIDE[seed % 2] if name != kit.name) or (REFERENCE,)


def _excluded(kit: Kit, trial: Trial, seed: int) -> tuple[str, ...]:
    """Return the nodes that are kept from the backend, by the names alone, so that they stay while a model shrinks."""
    share = SHARES[seed % len(SHARES)]
    if not share or kit.name == REFERENCE:  # whoever takes what others leave takes everything
        return ()
    return tuple(
        f"{kit.name}:{node}" for node in sorted(kit.claims(trial)) if crc32(f"{seed} {node}".encode()) / 2**32 < share
    )
