"""Tuning as any backend takes part in it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import graft
from graft.compiler.api import compile_model
from graft.compiler.request import Request
from graft.core.machine.target import CompileOptions, tuned_database
from graft.core.schedule.parameters import ContractionParameters
from graft.core.tuning.options import Tuned, TuneOptions, TuneReport
from graft.errors import PluginError
from graft.partition.region import Region
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
        row = Tuned("neg 2x3", 2, ContractionParameters(), 1.0, 2.0)
        return TuneReport(1, 1, (row,), 1.0)


def model() -> object:
    import onnx

    return onnx.parser.parse_model(MODEL)


def test_a_backend_is_asked_to_tune_all_its_regions_before_it_compiles() -> None:
    vendor = Tuner()
    compiled = compile_model(model(), Request([vendor, "llvm"], tune=graft.TuneOptions(seconds=7.0)))  # type: ignore[arg-type]
    ((names, seconds),) = vendor.tuned
    assert (len(names), seconds) == (2, 7.0)
    assert compiled.tuning is not None
    assert compiled.tuning.summary() == "tuned 1 of 1 workloads in 1.0 s: 1 faster, together 2.00x"
    assert compiled.seconds["tune"] > 0


def test_kernels_of_varying_shapes_are_counted_and_not_measured() -> None:
    import onnx

    text = MODEL.replace("float[2,3]", "float[n,3]").replace("b = Relu(a)", "b = MatMul(a, w)")
    varying = onnx.parser.parse_model(text.replace("float[n,3] x)", "float[n,3] x, float[3,3] w)"))
    compiled = compile_model(varying, Request(["llvm"], tune=1.0))
    assert compiled.tuning is not None
    assert (compiled.tuning.total, compiled.tuning.varying > 0) == (0, True)
    assert compiled.tuning.summary().endswith(
        f"{compiled.tuning.varying} more of shapes that vary are not measured (tune versions of them: --specialize)"
    )


def test_nobody_is_asked_unless_the_user_asks() -> None:
    vendor = Tuner()
    assert compile_model(model(), Request([vendor, "llvm"])).tuning is None  # type: ignore[arg-type]
    assert vendor.tuned == []


def test_a_fault_while_tuning_names_the_plugin() -> None:
    with pytest.raises(PluginError) as caught:
        compile_model(model(), Request([Tuner(OSError("no counters")), "llvm"], tune=1.0))  # type: ignore[arg-type]
    assert str(caught.value) == "plugin 'vendor' raised OSError in tune: no counters"
