"""A few models that the backend takes most of, and one of its other operators, for checks of anything but results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
import onnx

from graft.testkit.conformance.cases.drawn import draw_model, trial_of
from graft.testkit.conformance.cases.hard_shapes import OPSET
from graft.testkit.conformance.cases.onnx_cases import tests_of
from graft.testkit.conformance.cases.outcome import Case, Failure, NotClaimed, NotRun, Trial
from graft.testkit.conformance.cases.synthesis import Unwritable, instances
from graft.testkit.conformance.cases.variants import is_valid
from graft.testkit.conformance.kit import Kit
from graft.testkit.conformance.operators import subjects
from graft.testkit.models.net import model_proto

WANTED = 3
SEEDS = 40
BESIDE = 32
"""The most operators of the model of those that are in no other one."""
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

    Behind them comes one of operators that are in none of these, side by side. Raises NotClaimed if it takes nothing.
    """
    key = (kit.text, kit.plugin_files)
    if key not in _found:
        chosen: list[Trial] = []
        for trial in _candidates(kit):
            if not _fails(kit, trial):
                chosen.append(trial)
            if len(chosen) == WANTED:
                break
        _found[key] = [*chosen, *_side_by_side(kit, chosen)]
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


def _side_by_side(kit: Kit, others: Sequence[Trial]) -> Iterator[Trial]:
    """Give a model of one node for each operator that the backend computes rightly, and that is in none of others."""
    seen = {node.op_type for trial in others for node in trial.proto.graph.node}
    proto, feeds = model_proto([], [], [], [], OPSET), dict[str, np.ndarray]()
    for name in filter(kit.may_take, subjects(kit)):
        trial = None if "::" in name or name in seen else _right(kit, name)
        if trial is None:
            continue
        own = onnx.compose.add_prefix(trial.proto, f"{name}/").graph
        proto.graph.node.extend(own.node)
        proto.graph.initializer.extend(own.initializer)
        proto.graph.input.extend(own.input)
        proto.graph.output.extend(own.output)
        feeds |= {f"{name}/{one}": array for one, array in trial.feeds.items()}
        if len(proto.graph.node) == BESIDE:
            break
    found = Trial(proto, feeds)
    if feeds and not _fails(kit, found):
        yield found


def _right(kit: Kit, operator: str) -> Trial | None:
    """Return the first of ONNX's tests of an operator that the backend takes whole and computes rightly."""
    for trial in tests_of(operator).values():
        other = onnx.ModelProto()
        other.CopyFrom(trial.proto)
        del other.opset_import[:]
        other.opset_import.add(version=OPSET)
        other.graph.node[0].name = "n"
        same = replace(trial, proto=other)
        if is_valid(other) and kit.claims(same) and not _fails(kit, same):
            return same
    return None


def _fails(kit: Kit, trial: Trial) -> bool:
    try:
        kit.attempt(trial)
    except (Failure, NotClaimed):
        return True
    return False
