"""Tuning of whole models by the built-in compiler: measured here, kept, and used later."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import graft
from graft.compiler import whole_model
from graft.compiler.api import compile_model
from graft.compiler.compile_options import compile_options
from graft.compiler.request import Request
from graft.core.machine.target import Target, host_target, target_named, tuned_database
from graft.core.operators.all import OPERATORS
from graft.core.operators.definition.build import index
from graft.core.schedule.kernel import Kernel, Scheduled
from graft.core.schedule.parameters import ContractionParameters, Parameters
from graft.core.schedule.products.tile_candidates import best_tiles
from graft.core.schedule.templates.space import schedules
from graft.core.tensor_ir.ir import Binary, Constant, For, Statement, Store, Variable
from graft.core.tensor_ir.visit import map_statement
from graft.core.tuning import learnt_cost, trial
from graft.core.tuning.options import TuneOptions
from graft.core.tuning.race import Run
from graft.core.tuning.tunings import Tuning, Tunings
from graft.errors import DatabaseError, TuningError
from graft.plugins.codegen.kernel_tuning import KernelBench, KernelBuilder, Measured, workloads_of
from graft.plugins.codegen.region_groups import RegionGroups
from graft.plugins.llvm.backend import LlvmBackend
from tests.core.schedule.strategies.contractions.test_blocked_product import matmul

MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[24,40] x) => (float[24,30] y)
{
    a = MatMul(x, w)
    b = Relu(a)
    c = MatMul(b, w)
    d = Relu(c)
    y = MatMul(d, v)
}
"""
CHOSEN = ContractionParameters(rows=3, vectors=1)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def model() -> onnx.ModelProto:
    proto = onnx.parser.parse_model(MODEL)
    random = np.random.default_rng(0)
    for name, shape in (("w", (40, 40)), ("v", (40, 30))):
        array = random.standard_normal(shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return proto


def expected(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    w, v = (onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer)
    return np.maximum(np.maximum(x @ w, 0) @ w, 0) @ v


def faking(monkeypatch: pytest.MonkeyPatch, best: Parameters) -> list[Parameters | None]:
    """Let ``best`` be fastest by a fake timer; return what is measured, which is compiled and run all the same."""
    measured: list[Parameters | None] = []
    real = KernelBench.add

    def add(self: KernelBench, parameters: Parameters | None) -> Run | None:
        run = real(self, parameters)
        measured.append(parameters)
        run is None or run()
        seconds = 1e-3 if parameters == best else 2e-3
        return None if run is None else lambda: seconds

    monkeypatch.setattr(KernelBench, "add", add)
    monkeypatch.setattr(whole_model, "seconds", lambda *_: (1.0, 0.9))
    return measured


def code(model: onnx.ModelProto, **options: Any) -> bytes:
    return compile_model(model, Request(["llvm"], threads=1, **options)).description.modules[0].data


def test_equal_kernels_are_one_workload(model: onnx.ModelProto) -> None:
    tuning = compile_model(model, Request(["llvm"], threads=1, tune=20.0)).tuning
    assert tuning is not None
    assert (tuning.total, tuning.finished) == (2, 2)
    assert sorted((one.label, one.count) for one in tuning.tuned) == [
        ("matmul 24x40, 40x30", 1), ("matmul_relu 24x40, 40x40", 2),
    ]  # fmt: skip
    assert all(one.seconds > 0 for one in tuning.tuned)
    assert tuning.summary().startswith("tuned 2 of 2 workloads in ")


def test_the_winner_is_used_now_and_later_and_changes_no_result(
    model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(1).standard_normal((24, 40)).astype(np.float32)
    plain = code(model)
    tile = best_tiles(24, 40, "float32", host_target())[-1]
    best = ContractionParameters(rows=tile.rows, vectors=tile.vectors)
    measured = faking(monkeypatch, best)
    compiled = compile_model(model, Request(["llvm"], threads=1, tune=60.0))
    assert best in measured
    assert best in [one.parameters for one in compiled.tuning.tuned]  # type: ignore[union-attr]
    tuned = compiled.description.modules[0].data
    assert tuned != plain
    assert code(model) == tuned
    assert code(model, cache=False) == tuned
    assert code(model, tuned=False) == plain
    program = graft.compile(model, ["llvm"], threads=1)
    np.testing.assert_allclose(program(x), expected(model, x), rtol=1e-4, atol=1e-3)
    count = len(measured)
    compile_model(model, Request(["llvm"], threads=1, tune=60.0))
    assert len(measured) == count


def test_a_schedule_that_was_found_serves_equal_kernels_of_other_names(
    model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = compile_model(model, Request(["llvm"], threads=1, tuned=False))
    (region,) = compiled.regions.values()
    groups = RegionGroups(region, OPERATORS, host_target(), LlvmBackend())
    best = schedules(next(groups.every_kernel()).kernel, host_target(), 0, None)[0]
    assert "pack @1 1 " in best.steps
    monkeypatch.setattr(learnt_cost, "shipped", lambda machine: None)  # cycles alone choose what is measured
    faking(monkeypatch, best)
    compile_model(model, Request(["llvm"], threads=1, tune=60.0))
    tuned = code(model)
    assert tuned != code(model, tuned=False)
    for tensor in model.graph.initializer:
        tensor.name = f"other_{tensor.name}"
    for node in model.graph.node:
        node.input[:] = [f"other_{name}" if name in ("w", "v") else name for name in node.input]
    assert code(model, cache=False) == tuned


def test_another_number_of_threads_is_tuned_apart(model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    faking(monkeypatch, CHOSEN)
    compile_model(model, Request(["llvm"], threads=1, tune=60.0))
    two = compile_model(model, Request(["llvm"], threads=2)).description.modules[0].data
    assert two == compile_model(model, Request(["llvm"], threads=2, tuned=False)).description.modules[0].data


def kept(model: onnx.ModelProto, machine: str, compiler: str) -> None:
    """Keep ``CHOSEN`` for all workloads of the model."""
    compiled = compile_model(model, Request(["llvm"], threads=1, tune=TuneOptions(20.0)))
    assert compiled.tuning is not None
    rows = Tunings(tuned_database()).everything()
    Tunings(tuned_database()).clear()
    for row in rows:
        own = Tunings(tuned_database(), machine or row.machine, compiler or row.compiler)
        own.keep(row.workload, Tuning("x", CHOSEN, 1.0, 1.0, 3))


@pytest.mark.parametrize(
    ("machine", "compiler", "used"),
    [("", "", True), ("x86_64 znver9 avx threads=1", "", False), ("", "llvmlite 9", False)],
    ids=["own", "processor", "compiler"],
)
def test_only_what_was_measured_here_is_used(model: onnx.ModelProto, machine: str, compiler: str, used: bool) -> None:
    plain = code(model, tuned=False)
    kept(model, machine, compiler)
    assert (code(model) != plain) == used


def test_a_foreign_database_stops_the_compilation_by_name(model: onnx.ModelProto, tmp_path: Path) -> None:
    tuned_database().parent.mkdir()
    tuned_database().write_text("shopping list " * 100, encoding="utf-8")
    with pytest.raises(DatabaseError) as caught:
        graft.compile(model, ["llvm", "reference"])
    assert str(caught.value) == (
        f"the database of tuned parameters '{tmp_path}/graft/tuned.sqlite3' cannot be used (file is not a database); "
        "delete it, or name another"
    )
    graft.compile(model, ["llvm"], tuned=False, strict=True)


def test_other_processors_are_not_tuned_for(model: onnx.ModelProto) -> None:
    with pytest.raises(TuningError) as caught:
        graft.compile(model, ["llvm"], cpu="x86-64-v2", tune=True)
    assert str(caught.value) == (
        f"tuning measures on this machine, a {host_target().cpu}, not on a x86-64-v2; tune for target 'native', "
        "or on a device (TuneOptions.device)"
    )
    assert target_named("x86-64-v2").cpu == "x86-64-v2"


def test_tuning_without_a_place_to_keep_is_refused(model: onnx.ModelProto) -> None:
    with pytest.raises(TuningError, match="tune measures parameters that tuned=False forbids to use"):
        graft.compile(model, ["llvm"], tune=True, tuned=False)
    options = compile_options(1, False)
    with pytest.raises(TuningError, match="tuning needs a database"):
        LlvmBackend().tune([], options, TuneOptions())


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_a_budget_that_is_none_is_refused(model: onnx.ModelProto, seconds: float) -> None:
    with pytest.raises(TuningError, match="must be a positive number of seconds"):
        graft.compile(model, ["llvm"], tune=seconds)


def test_a_backend_with_nothing_to_tune_reports_nothing(model: onnx.ModelProto) -> None:
    assert compile_model(model, Request(["reference"], tune=1.0)).tuning is None
    assert not tuned_database().exists()


class Faulty(LlvmBackend):
    """What a kernel becomes with `CHOSEN` is changed in a way that a wrong schedule might."""

    def __init__(self, fault: Callable[[Statement], Statement]) -> None:
        super().__init__()
        self.fault = fault

    def schedule(self, kernel: Kernel, target: Target, parameters: Parameters | None = None) -> Scheduled:
        made = super().schedule(kernel, target, parameters)
        function = made.function
        changed = replace(function, body=self.fault(function.body)) if parameters == CHOSEN else function
        return replace(made, source=changed)


def hangs(body: Statement) -> Statement:
    """Run the loops very often: LLVM does not see that it need not."""
    return For(Variable("again"), index(1 << 40), "serial", body)


def crashes(body: Statement) -> Statement:
    """Store far behind all buffers."""
    return map_statement(body, lambda one: one, lambda one: far(one) if isinstance(one, Store) else one)


def far(store: Store) -> Store:
    first, *others = store.indices
    return replace(store, indices=(Binary("add", first, index(1 << 50)), *others)) if others else store


def is_wrong(body: Statement) -> Statement:
    """Compute half of what there is."""
    return map_statement(body, lambda one: one, lambda one: halved(one) if isinstance(one, For) else one)


def halved(loop: For) -> For:
    extent = loop.extent
    is_long = isinstance(extent, Constant) and int(extent.value) > 4
    return replace(loop, extent=index(int(extent.value) // 2)) if is_long else loop  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (hangs, "did not answer within 0.5 s and was stopped"),
        (crashes, "SIGSEGV"),
        (is_wrong, "output 0 differs from that of the untuned kernel by "),
    ],
)
def test_a_candidate_that_hangs_crashes_or_is_wrong_is_no_candidate(
    fault: Callable[[Statement], Statement], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "ALONE", replace(trial.ALONE, seconds=0.5))
    kernel, _ = matmul((64, 48), (48, 64), constant=True, epilogue="bias")
    (workload,) = workloads_of([Measured(kernel)])
    backend, target = Faulty(fault), replace(host_target(), threads=1)
    bench = KernelBuilder(target, 1, lambda functions: backend.emit(functions, target), backend).bench(workload)
    assert bench.add(None) is not None
    with pytest.raises(TuningError, match=re.escape(said)):
        bench.add(CHOSEN)
    assert bench.add(ContractionParameters(rows=2, vectors=1)) is not None


def test_a_bench_times_each_code_once() -> None:
    kernel, _ = matmul((20, 30), (30, 40), constant=True, epilogue="bias")
    (workload,) = workloads_of([Measured(kernel), Measured(replace(kernel, name="another_7_matmul"))])
    assert workload.count == 2
    backend, target = LlvmBackend(), replace(host_target(), threads=1)
    bench = KernelBuilder(target, 1, lambda functions: backend.emit(functions, target), backend, 1 << 12).bench(
        workload
    )
    run, other = bench.add(None), bench.add(CHOSEN)
    assert run is not None
    assert other is not None
    assert bench.add(replace(CHOSEN, block_bytes=1 << 30)) is None
    assert 0 < run() < 1
    assert 0 < other() < 1
