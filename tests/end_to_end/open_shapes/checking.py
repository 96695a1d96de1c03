"""What must hold of a model with open extents: one program gives at every size what ONNX says.

`onnx.reference` and ONNX Runtime are both asked. Where they disagree, the first node whose results differ is found,
and it must be one of the table `QUIRKS`, which says who is wrong there and why.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx

import graft.compiler.api as api
from graft.errors import GraftError, InputError, ModelError, RunError
from graft.partition.plan import Plan
from graft.testkit.models.check import ALONE, LAST, difference
from graft.testkit.models.draw import reads
from graft.testkit.models.model import RandomModel

from .conditioning import is_rounding
from .opening import Arrays, OpenModel, open_model, valid
from .peer import Peer
from .quirks import NOBODY, REFERENCE, RUNTIME, UNDEMANDED, quirks_of

WAYS = {"default": None, ALONE: [ALONE, LAST]}


@dataclass
class Outcome:
    """What became of models, and what is wrong."""

    models: int = 0
    runs: int = 0
    names: int = 0
    invalid: int = 0
    """Sizes that the reference computes and ONNX's inference or Graft refuses, as ONNX Runtime does."""
    narrowed: int = 0
    """Sizes that Graft refuses by name, since another node could not have them: a window wider than its image."""
    unshared: int = 0
    """Models that ONNX Runtime cannot run."""
    operators: Counter[str] = field(default_factory=Counter)
    quirks: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    peer: Peer = field(default_factory=Peer)

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in self.operators.most_common())
        return (
            f"{self.models} models with {self.names} names, {self.runs} runs, {self.invalid} sizes refused by all, "
            f"{self.narrowed} by Graft's ranges, "
            f"{self.unshared} not run by ONNX Runtime, whose process {len(self.peer.crashed)} ended; "
            f"quirks {dict(self.quirks)}; {len(self.wrong)} wrong\n{counts}"
        )


def check_models(seeds: Iterable[int], tell: Any = lambda text: None) -> Outcome:
    """Check the models of seeds, those of which something is open."""
    outcome = Outcome()
    for seed in seeds:
        if (opened := open_model(seed)) is None:
            continue
        outcome.models += 1
        outcome.names += len(opened.names)
        outcome.operators.update(set(opened.model.operators))
        before = len(outcome.wrong)
        check_model(opened, outcome)
        for text in outcome.wrong[before:]:
            tell(text)
    outcome.peer.close()
    return outcome


def check_model(opened: OpenModel, outcome: Outcome) -> None:
    """Compile a model in both ways and compare every run."""
    model = opened.model
    theirs = [answered(outcome.peer, model, feeds) for feeds, _ in opened.runs]
    outcome.unshared += not any(theirs)
    program: Any = None
    for way, backends in WAYS.items():
        if way == ALONE and program is not None and placed(program) <= {ALONE, LAST}:
            continue  # the same program
        try:
            program = api.compile(model.proto, backends, threads=1 + model.seed % 2, cache=False, tuned=False)
        except Exception as error:  # what a compiler may not do is what is looked for
            note(f"seed {model.seed}, {way}: compile", error, model, outcome)
            continue
        outcome.wrong += (f"seed {model.seed}, {way}: {text}" for text in failed(program))
        for number, (feeds, found) in enumerate(opened.runs):
            outcome.runs += 1
            wanted = {name: found[name] for name in model.outputs}
            where = f"seed {model.seed}, {way}, size {number}"
            try:
                got: Any = program.run(dict(feeds))
            except Exception as error:
                known = isinstance(error, GraftError) and (theirs[number] is None or not valid(model, feeds, found))
                if known and refused(outcome.peer, error, model, feeds, found):
                    outcome.invalid += 1
                else:
                    note(where, error, model, outcome)
                continue
            judge(where, model, feeds, found, (got, wanted, theirs[number]), outcome)


def named_in(error: Exception, model: RandomModel) -> onnx.NodeProto | None:
    """Return the node that an error names."""
    named = re.search(r"'(n\d+)'", str(error))
    return next((one for one in model.nodes if named and one.name == named[1]), None)


def note(where: str, error: Exception, model: RandomModel, outcome: Outcome) -> None:
    """Note an error: as a demand of `UNDEMANDED`, as a range that Graft has narrowed, or as something wrong."""
    node = named_in(error, model)
    name = "" if node is None else node.op_type
    if isinstance(error, InputError | ModelError | RunError) and name in UNDEMANDED:
        outcome.quirks[UNDEMANDED[name]] += 1
    elif isinstance(error, InputError) and str(error).endswith("compile the model with a wider range for it"):
        outcome.narrowed += 1
    else:
        outcome.wrong.append(f"{where}: {type(error).__name__}: {error}")


def judge(
    where: str, model: RandomModel, feeds: Arrays, found: Arrays, answers: tuple[Any, Any, Any], outcome: Outcome
) -> None:
    """Note what differs: between the two who are asked, and from both or the one that is right."""
    got, wanted, theirs = answers
    text = difference(model, got, wanted)
    if theirs is None and (not text or not valid(model, feeds, found)):
        return
    if theirs is not None and not difference(model, theirs, wanted):
        if text and is_rounding(model, feeds, got, wanted, single):
            outcome.quirks["rounding of operands, which the model makes large"] += 1
        elif text:
            outcome.wrong.append(f"{where}: {text}")
        return
    node = first_difference(outcome.peer, model, feeds, found)
    quirks = [quirk for one in (model.nodes if node is None else [node]) for quirk in quirks_of(one)]
    with_theirs = difference(model, got, wanted if theirs is None else theirs)
    holds = {REFERENCE: not text, RUNTIME: not with_theirs, NOBODY: theirs is None}
    explained = [one for one in quirks if holds[one.right]]
    if explained:
        outcome.quirks[f"{explained[0].op_type}: {explained[0].why}"] += 1
        return
    said = "together" if node is None else onnx.printer.to_text(node)
    outcome.wrong.append(f"{where}: {said}: as reference: {not text}, as ONNX Runtime: {not with_theirs}: "
                         f"{text or with_theirs}")  # fmt: skip


def placed(program: Any) -> set[str]:
    """Return the backends that a program's operators are placed on."""
    return {str(one.backend) for one in Plan.of(program).placements}


def failed(program: Any) -> list[str]:
    """Return of the regions that backends claimed and could not compile why not."""
    reasons = (reason for one in Plan.of(program).placements for reason in one.reasons.values())
    return sorted({str(reason) for reason in reasons if reason.code == "compile-failed"})


def answered(peer: Peer, model: RandomModel, feeds: Arrays) -> dict[str, Any] | None:
    """Return what ONNX Runtime computes; None where it refuses."""
    return peer.answer(model.proto.SerializeToString(), model.outputs, feeds)


def first_difference(peer: Peer, model: RandomModel, feeds: Arrays, found: Arrays) -> onnx.NodeProto | None:
    """Return the first node whose results are not the same there; each is given the same operands."""
    for node in model.nodes:
        alone, given = single(node, model, feeds, found)
        theirs = answered(peer, alone, given)
        if theirs is not None and difference(alone, theirs, {name: found[name] for name in alone.outputs}):
            return node
    return None


def single(
    node: onnx.NodeProto, model: RandomModel, feeds: Arrays, found: Arrays
) -> tuple[RandomModel, dict[str, np.ndarray]]:
    """Return a node as a model of its own, and what it is given."""
    held = {name: array for name, array in {**model.arrays, **feeds, **found}.items() if name}
    names = held_by(node, held)
    alone = replace(
        model,
        nodes=(node,),
        inputs=tuple(dict.fromkeys(name for name in names if name not in model.constants)),
        constants=tuple(name for name in model.constants if name in names),
        outputs=tuple(name for name in node.output if name),
        symbols={},
        arrays=held,
    )
    return alone, {name: held[name] for name in alone.inputs}


def refused(peer: Peer, error: Exception, model: RandomModel, feeds: Arrays, found: Arrays) -> bool:
    """Whether ONNX Runtime refuses the node that an error names, too; True where it names none."""
    node = named_in(error, model)
    if node is None:
        return True
    alone, given = single(node, model, feeds, found)
    return answered(peer, alone, given) is None


def held_by(node: Any, held: Arrays) -> list[str]:
    """Return the names that a node reads."""
    return [name for name in reads(node) if name in held]
