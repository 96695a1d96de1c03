"""The pipeline of passes: order, verification after each change, and the record of what happened.

A pipeline prints as ``eliminate-identity,fold-constants{limit=1024}`` and `Pipeline.parse` reads that back.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import onnx
import onnx_ir as ir

from graft.core.graph.exception_translation import tidy
from graft.core.graph.skeleton import skeleton_of_model
from graft.core.graph.traversal import all_nodes, count_nodes
from graft.core.shapes.inference import infer_shapes
from graft.errors import GraftError

RECORD = "graft.passes"
"""The key of `ir.Model.meta` under which the results of all steps since the file are kept."""
MOST_ROUNDS = 8


class Pass(Protocol):
    """A change of a model: a frozen dataclass whose fields are its options.

    One with ``only_removes = True`` takes away what nothing reads: there is nothing to infer behind it. Behind one with
    ``infers = True`` shapes are inferred at once, for the passes that follow.
    """

    name: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def run(self, model: ir.Model) -> bool:
        """Change ``model`` in place and return whether anything changed."""
        ...


@dataclass(frozen=True, slots=True)
class PassResult:
    """What a step did: its name, whether it changed the model, nodes before and after, and a remark."""

    name: str
    changed: bool
    nodes_before: int
    nodes_after: int
    note: str = ""

    def __str__(self) -> str:
        if not self.changed:
            return f"{self.name}: no change"
        return f"{self.name}: {self.note or f'{self.nodes_before} -> {self.nodes_after} nodes'}"


@dataclass(frozen=True)
class Pipeline:
    """Passes in order, run in rounds until none changes the model."""

    passes: tuple[Pass, ...]

    def run(self, model: ir.Model, *, disable: Collection[str] = (), verify: bool = True) -> list[PassResult]:
        """Run the passes except those named in ``disable``; return one result per pass, over all rounds.

        Raises GraftError for an unknown name in ``disable``. With ``verify`` the model is checked after every change;
        a failure is a defect of the pass and an AssertionError that names it.
        """
        for name in disable:
            _require_known(name, {row.name for row in self.passes})
        active = [row for row in self.passes if row.name not in disable]
        before = {row.name: 0 for row in active}
        after = dict(before)
        changed: dict[str, bool] = dict.fromkeys(before, False)
        nodes = count_nodes(model)
        version, had_nothing = 0, [-1] * len(active)  # the version of the model that a pass had nothing to do in
        for _ in range(MOST_ROUNDS):
            moved = is_new = False
            for place, row in enumerate(active):
                if had_nothing[place] == version:
                    continue
                if not row.run(model):
                    had_nothing[place] = version
                    continue
                version += 1
                if getattr(row, "infers", False):
                    infer_shapes(model)
                changed[row.name] = moved = True
                is_new |= not getattr(row, "only_removes", False)
                before[row.name] += nodes
                nodes = count_nodes(model)
                after[row.name] += nodes
                if verify:
                    verify_model(model, row.name)
            if not moved:
                break
            if is_new and infer_shapes(model):
                version += 1
        results = [PassResult(row.name, changed[row.name], before[row.name], after[row.name]) for row in active]
        record_of(model).extend(results)
        return results

    def __str__(self) -> str:
        return ",".join(_text(row) for row in self.passes)

    @staticmethod
    def parse(text: str, known: Mapping[str, type[Pass]]) -> Pipeline:
        """Return the pipeline that printed as ``text``; raise GraftError for unknown names and options."""
        passes = []
        for name, options in re.findall(r"([\w-]+)(?:\{([^}]*)\})?", text):
            _require_known(name, known)
            fields = {field.name for field in dataclasses.fields(known[name])}
            values = {}
            for option in filter(None, (part.strip() for part in options.split(";"))):
                key, separator, value = option.partition("=")
                if key not in fields or not separator:
                    raise GraftError(f"pass '{name}' has no option '{option}'; its options are {sorted(fields)}")
                values[key] = ast.literal_eval(value)
            passes.append(known[name](**values))
        return Pipeline(tuple(passes))


def record_of(model: ir.Model) -> list[PassResult]:
    """Return the results of all steps that the model went through, to read or to append to."""
    record: list[PassResult] = model.meta.setdefault(RECORD, [])
    return record


def verify_model(model: ir.Model, after: str) -> None:
    """Assert that the model is valid ONNX with unique node names; ``after`` says what changed it last."""
    names = [node.name for node in all_nodes(model.graph)]
    duplicates = (
        sorted({name for name in names if name and names.count(name) > 1}) if len(set(names)) < len(names) else []
    )
    assert not duplicates, f"pass '{after}' left two nodes called {duplicates}"
    try:
        onnx.checker.check_model(skeleton_of_model(model))
    except onnx.checker.ValidationError as error:
        raise AssertionError(f"pass '{after}' left a model that is not valid ONNX: {tidy(error)}") from error


def _require_known(name: str, known: Collection[str]) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean '{near[0]}'" if near else f"passes are {', '.join(sorted(known))}"
        raise GraftError(f"there is no pass '{name}'; {hint}", name=name)


def _text(row: Pass) -> str:
    options = [
        f"{field.name}={getattr(row, field.name)!r}"
        for field in dataclasses.fields(row)
        if getattr(row, field.name) != field.default
    ]
    return f"{row.name}{{{';'.join(options)}}}" if options else row.name
