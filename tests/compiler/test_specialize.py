"""Versions of a model for some values of its symbols: which runs, what it computes, and what cannot be asked for."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import graft
from graft.compiler.api import compile_model
from graft.compiler.recompile import recompile
from graft.compiler.request import Request
from graft.errors import ArtifactError, ModelError
from graft.runtime.artifact import read
from graft.runtime.extents import Operation, Symbol
from graft.runtime.program import Program

MODEL = onnx.parser.parse_model(
    """<ir_version: 10, opset_import: ["" : 20]>
    g (float[batch, seq, 8] x, float[batch, past, 8] cache) => (float[batch, rows, all] y)
    <float[8] bias = {1, 2, 3, 4, 5, 6, 7, 8}> {
      moved = Add(x, bias)
      keys = Concat <axis = 1> (cache, moved)
      transposed = Transpose <perm = [0, 2, 1]> (keys)
      y = MatMul(moved, transposed)
    }"""
)
BIAS = np.arange(1, 9, dtype=np.float32)


def compiled(specialize: Any, **requested: Any) -> Program:
    return graft.compile(
        MODEL, ["llvm", "reference"], specialize=specialize, threads=1, cache=False, tuned=False, **requested
    )


def feeds(batch: int, seq: int, past: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(batch + 10 * seq + 100 * past)
    x, cache = generator.standard_normal((batch, seq, 8)), generator.standard_normal((batch, past, 8))
    return x.astype(np.float32), cache.astype(np.float32)


def check(program: Program, *shape: int) -> None:
    x, cache = feeds(*shape)
    expected = (x + BIAS) @ np.concatenate([cache, x + BIAS], 1).transpose(0, 2, 1)
    np.testing.assert_allclose(program(x, cache), expected, rtol=1e-4, atol=1e-4)


def ran(program: Program, *shape: int) -> str:
    return program.timed(*feeds(*shape))[0].name


# ---- What runs ----


def test_shapes_in_and_beside_the_versions_are_right() -> None:
    program = compiled({"seq": [4, 7]})
    for shape in ((1, 4, 3), (2, 4, 0), (1, 7, 2), (3, 5, 3), (1, 1, 0), (0, 4, 3), (2, 7, 9)):
        check(program, *shape)


def test_the_version_that_fits_runs_with_kernels_of_its_own() -> None:
    program = compiled({"seq": [4, (5, 8)]})
    assert [ran(program, 1, seq, 3) for seq in (4, 5, 8, 9)] == [
        "main[seq=4]", "main[seq=5..8]", "main[seq=5..8]", "main",
    ]  # fmt: skip
    calls = {call.module for one in program.description.procedures for call in one.calls}
    general = {call.module for call in program.description.procedures[0].calls}
    assert len(calls) == 3 * len(general)


def test_a_version_of_numbers_alone_has_no_symbols() -> None:
    program = compiled({"seq": [4], "batch": [1], "past": [3]})
    static = program.description.procedures[program.description.variants[0]]
    assert not static.symbols and all(one.static_shape is not None for one in static.tensors)
    check(program, 1, 4, 3)
    check(program, 2, 4, 3)


def test_several_symbols_give_every_combination_in_order() -> None:
    program = compiled({"batch": [1, 2], "seq": [4, 7]})
    names = [program.description.procedures[number].name for number in program.description.variants]
    assert names == ["main[batch=1, seq=4]", "main[batch=1, seq=7]", "main[batch=2, seq=4]", "main[batch=2, seq=7]"]
    assert [ran(program, 2, 7, 1), ran(program, 3, 7, 1)] == [names[3], "main"]


def test_inputs_are_those_of_the_general_version() -> None:
    program = compiled({"seq": [4]}, dims={"batch": (1, 9)})
    assert [one.shape for one in program.inputs] == [("batch", "seq", 8), ("batch", "past", 8)]
    with pytest.raises(graft.errors.InputError) as caught:
        program(*feeds(10, 4, 3))
    assert caught.value.message == (
        "input 'x' has 10 at axis 0, but dimension 'batch' is at most 9; compile the model with a wider range for it"
    )


def test_equal_constants_are_there_once() -> None:
    general, both = compiled({}), compiled({"seq": [4, 7]})
    assert both.description.constants.keys() == general.description.constants.keys()


def test_bodies_of_a_version_are_its_own() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20]> g (float[n] x, bool c) => (float[n] y) {
             y = If (c) <then_branch = a () => (float[n] p) { p = Neg(x) },
                         else_branch = b () => (float[n] q) { q = Exp(x) }>
        }"""
    )
    program = graft.compile(model, ["llvm"], specialize={"n": [3]}, threads=1)
    for length in (2, 3):
        x = np.ones(length, np.float32)
        np.testing.assert_allclose(program(x, np.array(True)), -x)
        np.testing.assert_allclose(program(x, np.array(False)), np.exp(x), rtol=1e-6)
    (number,) = program.description.variants
    (call,) = program.description.procedures[number].calls
    assert all(body > number for body in call.bodies)


def test_threads_run_different_shapes_at_the_same_time() -> None:
    program = compiled({"seq": [4, 7]})

    def run(seq: int) -> None:
        for _ in range(30):
            check(program, 2, seq, 3)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, (4, 7, 5, 4)))


def test_an_artifact_runs_its_versions_without_the_compiler(tmp_path: Path) -> None:
    compiled({"seq": [4, 7]}).save(tmp_path / "a.graft")
    script = f"""
import sys
sys.modules["onnx"] = sys.modules["onnx_ir"] = sys.modules["llvmlite"] = sys.modules["graft.compiler"] = None
import numpy as np, graft.runtime
program = graft.runtime.load({str(tmp_path / "a.graft")!r})
for seq in (4, 5, 7):
    x, cache = np.ones((1, seq, 8), np.float32), np.ones((1, 2, 8), np.float32)
    print(program.timed(x, cache)[0].name, program(x, cache).shape)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["main[seq=4] (1, 4, 6)", "main (1, 5, 7)", "main[seq=7] (1, 7, 9)"], done.stderr
    assert read(tmp_path / "a.graft").variants == (1, 2)


def test_a_plan_is_of_the_general_version() -> None:
    plan = graft.plan(MODEL, ["llvm", "reference"])
    program = graft.compile(MODEL, plan=plan, specialize={"seq": [4]}, threads=1)
    check(program, 1, 4, 2)
    assert ran(program, 1, 4, 2) == "main[seq=4]"


def test_intermediates_of_a_version_have_a_folder(tmp_path: Path) -> None:
    compiled({"seq": [4]}, keep_intermediates=tmp_path)
    assert (tmp_path / "01_normalized.onnx").exists() and (tmp_path / "seq=4" / "01_normalized.onnx").exists()


def test_the_time_of_versions_is_told() -> None:
    model = compile_model(MODEL, Request(["llvm"], specialize={"seq": [4]}, threads=1))
    assert model.seconds["specialize:seq=4"] > 0
    assert model.total_seconds > model.seconds["specialize:seq=4"] + model.seconds["partition"]


class Unloadable(graft.JsonBackend):
    """A backend whose regions compile, and whose engine does not start."""

    name = "unloadable"
    shapes = "symbolic"

    @graft.supports("MatMul")
    def product(self, node: Any) -> bool:
        return True

    def load(self, graph: Any, constants: Any) -> Any:
        raise OSError("no device")


def test_a_region_of_a_version_that_cannot_be_loaded_goes_to_the_next_backend() -> None:
    requested = {"seq": [4], "past": [3], "batch": [1]}
    program = graft.compile(MODEL, [Unloadable(), "llvm", "reference"], specialize=requested, threads=1)
    check(program, 1, 4, 3)
    (facts,) = program.description.metadata["variants"]
    plan = graft.Plan.from_json(facts["plan"])
    refused = [one for one in plan.placements if "unloadable" in one.reasons]
    assert "compile-failed" in {one.reasons["unloadable"].code for one in refused}
    assert not any("unloadable" in module.kind for module in program.description.modules)
    assert ran(program, 1, 4, 3) == "main[seq=4, past=3, batch=1]"


def test_a_region_of_a_version_is_compiled_anew_where_its_loader_is_missing(tmp_path: Path) -> None:
    pytest.importorskip("graft.plugins.onednn.backend")
    requested = {"seq": [4, 5], "past": [3], "batch": [1]}
    graft.compile(MODEL, ["onednn", "llvm", "reference"], specialize=requested, threads=1).save(tmp_path / "a.graft")
    description = read(tmp_path / "a.graft")
    missing = [number for number, module in enumerate(description.modules) if "onednn" in module.kind]
    assert len(missing) == 3  # of the general version, too
    program = Program.from_description(recompile(description, missing, 1), threads=1)
    assert not any("onednn" in module.kind for module in program.description.modules)
    for seq in (4, 5, 6):
        check(program, 1, seq, 3)


# ---- What cannot be asked for ----


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        ({"specialize": {"sequ": [4]}}, "the model has no dimension 'sequ' to specialize; did you mean 'seq'"),
        (
            {"specialize": {"depth": [4]}},
            "the model has no dimension 'depth' to specialize; it has 'batch', 'past', 'seq'",
        ),
        (
            {"specialize": {"seq": [4]}, "dims": {"seq": 4}},
            "dimension 'seq' is a number already (dims or shapes), which leaves nothing to specialize",
        ),
        (
            {"specialize": {"seq": [4]}, "shapes": {"x": (1, 4, 8)}},
            "dimension 'seq' is a number already (dims or shapes), which leaves nothing to specialize",
        ),
        (
            {"specialize": {"seq": [4, 513]}, "dims": {"seq": (1, 512)}},
            "dimension 'seq' is given 513 (specialize), outside of its range 1..512",
        ),
        (
            {"specialize": {"seq": [(4, None)]}, "dims": {"seq": (1, 512)}},
            "dimension 'seq' is given 4.. (specialize), outside of its range 1..512",
        ),
        ({"specialize": {"seq": [-1]}}, "dimension 'seq' is given -1 (specialize), outside of its range 0.."),
        ({"specialize": {"seq": [(9, 4)]}}, "dimension 'seq' is given 9..4 (specialize), which holds no number"),
        ({"specialize": {"seq": []}}, "specialize gives dimension 'seq' no value; give one, or leave it out"),
        (
            {"specialize": {"seq": list(range(7)), "batch": list(range(5))}},
            "specialize asks for 7 x 5 = 35 versions of the model; at most 32 are possible: give fewer values",
        ),
    ],
)
def test_a_wrong_specialization_is_reported(requested: dict[str, Any], expected: str) -> None:
    with pytest.raises(ModelError) as caught:
        graft.compile(MODEL, ["reference"], **requested)
    assert caught.value.message == expected


def test_a_specialization_of_another_type_is_reported() -> None:
    with pytest.raises(graft.errors.ArgumentError) as caught:
        compiled({"seq": 4})
    assert caught.value.message == (
        "compile: specialize is dict {'seq': 4}; give a mapping of dimensions to lists of numbers or ranges, "
        'as in {"seq": [128, (1, 64)]}, or None'
    )


def test_a_name_with_other_characters_is_understood_as_the_file_has_it() -> None:
    model = onnx.ModelProto()
    model.CopyFrom(MODEL)
    for value in model.graph.input:
        value.type.tensor_type.shape.dim[0].dim_param = "batch-size"
    program = graft.compile(
        model, ["reference"], dims={"batch-size": (1, 8)}, specialize={"batch-size": [2]}, threads=1
    )
    assert [ran(program, 2, 3, 1), ran(program, 1, 3, 1)] == ["main[batch_size=2]", "main"]


def test_a_symbol_that_nothing_binds_is_damage_where_a_region_is_compiled_anew(tmp_path: Path) -> None:
    """As atheris found: an extent of an input had another name, in a manifest whose checksum was right."""
    graft.compile(MODEL, ["reference"], without=["equal-dimensions"], threads=1).save(tmp_path / "a.graft")
    description = read(tmp_path / "a.graft")
    (procedure,) = description.procedures
    number = procedure.inputs[0]
    shape = tuple(
        Operation("mul", 2, one) if isinstance(one, Symbol) else one for one in procedure.tensors[number].shape
    )
    tensors = list(procedure.tensors)
    tensors[number] = replace(tensors[number], shape=shape)
    for other in procedure.inputs[1:]:
        tensors[other] = replace(
            tensors[other], shape=tuple(2 if isinstance(one, Symbol) else one for one in tensors[other].shape)
        )
    damaged = replace(description, procedures=(replace(procedure, tensors=tuple(tensors)),))
    with pytest.raises(ArtifactError, match="artifact is damaged: nothing binds the symbols"):
        recompile(damaged, range(len(description.modules)), 1)
