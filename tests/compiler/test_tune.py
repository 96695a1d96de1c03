"""Tuning as any backend takes part in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

import graft
from graft.compiler.api import compile_model
from graft.compiler.request import Request
from graft.core.machine.target import CompileOptions, tuned_database
from graft.core.schedule.parameters import ContractionParameters, ScheduleParameters
from graft.core.tuning.options import Tuned, TuneOptions, TuneReport
from graft.core.tuning.search import Workload
from graft.core.tuning.tunings import Tuning, Tunings
from graft.errors import GraftError, PluginError, TuningError
from graft.partition.region import Region
from graft.plugins.codegen.kernel_tuning import KernelBench, KernelBuilder
from tests.compiler.models import Vendor

MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[2,3] x) => (float[2,3] y) { a = Neg(x)  b = Relu(a)  y = Neg(b) }
"""


class Tuner(Vendor):
    """Takes Neg, and tunes for a second."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__("Neg")
        self.tuned: list[tuple[list[str], float]] = []
        self.error = error

    def tune(self, regions: Sequence[Region], options: CompileOptions, wish: TuneOptions) -> TuneReport | None:
        assert options.tuned == tuned_database()
        assert not self.compiled
        self.tuned.append(([region.name for region in regions], wish.seconds))
        if self.error is not None:
            raise self.error
        row = Tuned("key", "neg 2x3", 2, ContractionParameters(), 1.0, 2.0)
        return TuneReport(1, 1, (row,), 1.0)


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def model() -> object:
    return parsed(MODEL)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_a_backend_is_asked_to_tune_all_its_regions_before_it_compiles() -> None:
    vendor = Tuner()
    compiled = compile_model(model(), Request([vendor, "llvm"], tune=graft.TuneOptions(seconds=7.0)))  # type: ignore[arg-type]
    ((names, seconds),) = vendor.tuned
    assert (len(names), seconds) == (2, 7.0)
    assert compiled.tuning is not None
    assert "neg 2x3" in [one.label for one in compiled.tuning.tuned]
    assert compiled.tuning.summary().startswith("tuned 2 of 2 workloads in ")  # one is of the built-in compiler
    assert compiled.seconds["tune"] > 0


VARYING = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[n,8] x, float[8,24] w) => (float[n,24] y) { a = MatMul(x, w)  y = Neg(a) }
"""


def test_kernels_of_varying_shapes_are_measured_at_given_dimensions(monkeypatch: pytest.MonkeyPatch) -> None:
    bindings: list[list[int]] = []
    real = KernelBuilder.bench

    def bench(self: KernelBuilder, workload: Workload) -> KernelBench:
        bindings.append([number for binding in workload.bindings for number in binding.values()])
        return real(self, workload)

    monkeypatch.setattr(KernelBuilder, "bench", bench)
    tuning = graft.TuneOptions(20.0, dims={"n": [3, 50]})
    compiled = compile_model(parsed(VARYING), Request(["llvm"], threads=1, tune=tuning))
    assert bindings[0] == [3, 50]
    assert compiled.tuning is not None
    assert (compiled.tuning.total, compiled.tuning.varying) == (1, 0)
    ((label, best),) = [(one.label, one.parameters) for one in compiled.tuning.tuned]
    assert label == "matmul_neg [n, 8], 8x24"
    other = compile_model(parsed(VARYING), Request(["llvm"], threads=1, dims={"n": (1, 64)}))
    (schedule,) = [call.schedule for call in other.description.procedures[0].calls]
    if isinstance(best, ScheduleParameters):
        assert schedule["steps"] == best.steps
    elif best is not None:
        assert isinstance(best, ContractionParameters)
        assert (schedule["rows"], schedule["vectors"]) == (best.rows, best.vectors)


def test_what_was_found_for_varying_shapes_is_used_by_any_compilation() -> None:
    tuning = graft.TuneOptions(20.0, dims={"n": [3]})
    compile_model(parsed(VARYING), Request(["llvm"], threads=1, tune=tuning))
    (row,) = Tunings(tuned_database()).everything()
    own = Tunings(tuned_database(), row.machine, row.compiler)
    own.keep(row.workload, Tuning("x", ContractionParameters(rows=3, vectors=1), 1.0, 1.0, 3))
    compiled = compile_model(parsed(VARYING), Request(["llvm"], threads=1, dims={"n": (1, 64)}))
    (schedule,) = [call.schedule for call in compiled.description.procedures[0].calls]
    assert (schedule["rows"], schedule["vectors"]) == (3, 1)
    x, w = np.ones((5, 8), np.float32), np.ones((8, 24), np.float32)
    assert (graft.compile(parsed(VARYING), ["llvm"], threads=1)(x, w) == -8).all()


def test_dimensions_to_tune_at_must_be_the_models_and_in_range() -> None:
    def tune(**dims: list[int]) -> None:
        graft.compile(parsed(VARYING), ["llvm"], dims={"n": (1, 8)}, tune=graft.TuneOptions(1.0, dims=dims))

    with pytest.raises(TuningError) as caught:
        tune(n=[4, 9])
    assert str(caught.value) == (
        "tuning is to measure at 'n' = 9, and the program runs 1..8; leave it out, or widen the range in dims"
    )
    with pytest.raises(GraftError, match="no input has a dimension 'm'; there is 'n'"):
        tune(m=[4])
    with pytest.raises(TuningError) as caught:
        tune(n=[0])
    assert str(caught.value) == "the values of 'n' to tune at must be positive numbers, got [0]"


def test_a_version_of_numbers_is_tuned_at_its_own() -> None:
    tuning = graft.TuneOptions(20.0, dims={"n": [3, 50]})
    request = Request(["llvm"], threads=1, tune=tuning, specialize={"n": [3, (1, 10)]})
    assert request.variant({"n": 3}, 0.0).tune == graft.TuneOptions(20.0, clock=tuning.clock)
    narrow = request.variant({"n": (1, 10)}, 0.0).tune
    assert isinstance(narrow, graft.TuneOptions)
    assert narrow.dims == {"n": (3,)}


def test_nobody_is_asked_unless_the_user_asks() -> None:
    vendor = Tuner()
    assert compile_model(model(), Request([vendor, "llvm"])).tuning is None  # type: ignore[arg-type]
    assert vendor.tuned == []


def test_a_fault_while_tuning_names_the_plugin() -> None:
    with pytest.raises(PluginError) as caught:
        compile_model(model(), Request([Tuner(OSError("no counters")), "llvm"], tune=1.0))  # type: ignore[arg-type]
    assert str(caught.value) == "plugin 'vendor' raised OSError in tune: no counters"
