"""A few models that the backend takes most of, for the checks that are not about results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

from graft.testkit.conformance.cases.drawn import draw_model, trial_of
from graft.testkit.conformance.cases.onnx_cases import tests_of
from graft.testkit.conformance.cases.outcome import Case, Failure, NotClaimed, NotRun, Trial
from graft.testkit.conformance.cases.synthesis import Unwritable, instances
from graft.testkit.conformance.kit import Kit
from graft.testkit.conformance.operators import subjects

WANTED = 3
SEEDS = 40
OWN_MODELS = "give one of yours with models=[...] or --model"

_found: dict[tuple[str, tuple[str, ...]], list[Trial]] = {}


def of_samples(kit: Kit, level: int, subject: str, check: Callable[[Kit, Trial], None]) -> Iterator[Case]:
    """Give a check of a level for each of the sample models; one that is not run where there is none."""
    try:
        found = samples(kit)
    except NotClaimed:
        yield Case(f"{level}/{subject}/samples", _none_found)
        return
    for number, trial in enumerate(found):
        yield Case(f"{level}/{subject}/sample-{number}", partial(check, kit, trial))


def _none_found() -> None:
    raise NotRun(f"no model was found that the backend takes a part of and computes rightly; {OWN_MODELS}")


def samples(kit: Kit) -> list[Trial]:
    """Return up to `WANTED` models that the backend computes rightly: the vendor's, of composites, drawn ones.

    Raises NotClaimed if it takes nothing at all.
    """
    key = (kit.text, kit.plugin_files)
    if key not in _found:
        chosen: list[Trial] = []
        for trial in _candidates(kit):
            try:
                kit.attempt(trial)
            except (Failure, NotClaimed):
                continue
            chosen.append(trial)
            if len(chosen) == WANTED:
                break
        _found[key] = chosen
    if not _found[key]:
        raise NotClaimed
    return _found[key]


def _candidates(kit: Kit) -> Iterator[Trial]:
    found = list(kit.models)
    for row in list(kit.backend.patterns)[:2]:
        try:
            found += [trial for _, trial in instances(row.pattern, 2)]
        except Unwritable:
            continue
    drawn = sorted(((len(kit.claims(trial_of(draw_model(seed)))), seed) for seed in range(SEEDS)), reverse=True)
    found += [trial_of(draw_model(seed)) for claimed, seed in drawn[:5] if claimed]
    yield from found
    if len(found) < WANTED:
        rules = [str(rule.what) for rule in kit.backend.rules if rule.is_operator]
        for name in rules or filter(kit.may_take, subjects(kit)):
            yield from islice(tests_of(name).values(), 2)
