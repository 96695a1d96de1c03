"""How the work of a plan grows: steps of the matcher and questions to vendors, counted, with twice the operators."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import onnx
import onnx_ir as ir
import pytest

import graft
import graft.core.importer.load as importer
import graft.core.shapes.inference as shapes
from benchmarks.planning import Matrix, Vector, mixed
from graft.compiler.driver import prepare
from graft.core.operators.definition.table import OperatorTable
from graft.core.passes import derive_shapes
from graft.core.passes.normalize import normalize
from graft.core.rewriting.node_pass import Names
from graft.core.shapes import equations as collect
from graft.core.shapes.symbolic_shapes import SymbolicInference
from graft.partition.partition_graph import PartitionGraph
from graft.partition.placement import cost_search, near_misses, problem
from graft.patterns.backtracking import Machine
from graft.patterns.composite import Composite
from graft.patterns.explain import Explanation


class Asked(Matrix):
    """A vendor that counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.questions = 0

    def supports(self, node):  # type: ignore[no-untyped-def]
        self.questions += 1
        return super().supports(node)


def work(nodes: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int, int]:
    """Return the operators of a plan, the matcher's steps and the questions to one vendor."""
    steps = 0
    spend = Machine.spend

    def counted(self: Machine, count: int) -> None:
        nonlocal steps
        steps += count
        spend(self, count)

    monkeypatch.setattr(Machine, "spend", counted)
    vendor = Asked()
    plan = graft.plan(mixed(nodes), [vendor, Vector(), "llvm"])
    plan.summary()
    monkeypatch.undo()
    return len(plan.placements), steps, vendor.questions


def test_steps_and_questions_grow_with_the_number_of_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = work(150, monkeypatch), work(300, monkeypatch)
    assert many[0] > 1.9 * few[0]
    assert many[1] < 2.3 * few[1]
    assert many[1] < 40 * many[0]
    assert many[2] <= many[0]  # a backend is asked once for a node, however many plans are tried


class Calls:
    """Counts the calls of functions and methods, by name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.counts: Counter[str] = Counter()

    def of(self, owner: object, name: str) -> None:
        inner = getattr(owner, name)

        def counted(*arguments: Any, **more: Any) -> Any:
            self.counts[name] += 1
            return inner(*arguments, **more)

        self.monkeypatch.setattr(owner, name, counted)


def test_plan_alone_builds_no_model_and_asks_no_backend_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    calls.of(PartitionGraph, "run")
    calls.of(near_misses, "explained")
    calls.of(cost_search._Search, "priced")
    calls.of(problem.Problem, "solve")
    plan = graft.plan(mixed(60), [Matrix(), Vector(), "llvm"])
    assert calls.counts == {"solve": 1}
    assert "no-pattern" in {why.code for why in plan.why("matrix")}
    assert calls.counts["explained"] > 0
    assert calls.counts["run"] == 0
    assert plan.faster.startswith("llvm alone: about ")
    assert calls.counts["run"] == 2
    assert calls.counts["priced"] == 1


def test_what_is_found_when_it_is_read_is_what_a_saved_plan_says() -> None:
    plan = graft.plan(mixed(60), [Matrix(), Vector(), "llvm"])
    again = graft.plan(mixed(60), [Matrix(), Vector(), "llvm"])
    saved = graft.Plan.from_json(plan.to_json())
    assert saved == plan == again
    assert pickle.loads(pickle.dumps(again)) == plan
    assert repr(saved) == repr(plan)


def test_composites_that_were_found_are_not_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[tuple[str, str]] = set()
    explained = near_misses.explained

    def noted(backend: str, row: Composite, node: ir.Node, operators: OperatorTable) -> Explanation:
        asked.add((row.name, node.name or ""))
        return explained(backend, row, node, operators)

    monkeypatch.setattr(near_misses, "explained", noted)
    plan = graft.plan(mixed(60), [Matrix(), Vector(), "llvm"])
    plan.why()
    roots = {(row.composite, row.node) for row in plan.placements if row.op_type == "Gelu" and row.composite}
    assert roots
    assert asked
    assert asked.isdisjoint(roots)


def test_model_without_arithmetic_of_shapes_is_inferred_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch)
    calls.of(importer, "infer_proto")
    calls.of(shapes, "infer_proto")
    calls.of(SymbolicInference, "run")
    calls.of(derive_shapes, "SymbolicInference")
    graft.load(mixed(60))
    assert calls.counts == {"infer_proto": 1, "run": 1}
    prepare(mixed(60))
    assert calls.counts["SymbolicInference"] == 0


def test_nodes_that_are_alike_are_asked_for_their_demands_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for nodes in (200, 400):
        calls = Calls(monkeypatch)
        calls.of(collect, "asked_of")
        prepare(mixed(nodes))
        monkeypatch.undo()
        counts.append(calls.counts["asked_of"])
    assert counts[1] <= counts[0] + 3


def test_passes_that_name_nothing_gather_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[object] = []
    monkeypatch.setattr(Names, "_taken", property(lambda names: walked.append(names) or set()))
    normalize(graft.load(ALONE))
    assert walked == []


ALONE = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 21]> g (float[n,3] x) => (float[n,3] y) { r = Relu(x) y = Neg(r) }'
)
