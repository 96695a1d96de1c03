"""Loading artifacts: in a fresh process, on another machine, and where a plugin or its library is missing."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import graft
from graft.core.machine.rows import COMPILED_FOR
from graft.errors import ArtifactError, GraftError
from graft.runtime.artifact import read, save
from graft.runtime.loading import load

from .artifacts import LOADER, changed, description, write

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
SMALL = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2, 8] x, float[8, 4] w) => (float[2, 4] y) { a = MatMul(x, w)  b = Softmax(a)  y = Neg(b) }"""


@pytest.fixture
def llvm(tmp_path: Path) -> Path:
    """The artifact of a small model, compiled by the built-in compiler alone."""
    path = tmp_path / "small.graft"
    graft.compile(onnx.parser.parse_model(SMALL), ["llvm"], threads=1).save(path)
    return path


@pytest.fixture
def vendor(tmp_path: Path) -> tuple[Path, graft.Program]:
    """The artifact of the digits model, and the program; most of it is oneDNN's."""
    reason = next(iter(graft.compiler.request.plugins().backends(["onednn"]))).available()
    if reason is not None:
        pytest.skip(reason)
    program = graft.compile(str(DIGITS), ["onednn", "llvm"], threads=1)
    assert any(module.kind == "json:onednn" for module in program.description.modules)
    program.save(tmp_path / "digits.graft")
    return tmp_path / "digits.graft", program


def python(code: str, *arguments: object, **options: Any) -> str:
    """Run code in a fresh process and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=120, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


FRESH = """
import sys
import numpy as np
import graft
program = graft.runtime.load(sys.argv[1], threads=1)
result = program(*(np.ones(one.shape, one.dtype) for one in program.inputs))
print(result.shape, float(result.sum()))
forbidden = ("onnx", "onnx_ir", "llvmlite", "pluggy", "graft.core", "graft.partition", "graft.compiler.driver")
forbidden = (*forbidden, "importlib.metadata")  # what looks for plugins
print([name for name in forbidden if name in sys.modules])
"""


def test_a_fresh_process_needs_neither_onnx_nor_a_compiler(llvm: Path) -> None:
    assert python(FRESH, llvm) == "(2, 4) -2.0\n[]\n"


ANY_SHAPE = """
import sys
sys.modules |= dict.fromkeys(("onnx", "onnx_ir", "llvmlite", "sympy", "graft.compiler", "graft.core"))
import numpy as np
from graft.runtime.loading import load
program, feeds = load(sys.argv[1], threads=1), np.load(sys.argv[2])
results = {name: program.run({"x": feeds[name]})["y"] for name in feeds}
np.savez(sys.argv[3], **results)
"""


def test_an_artifact_runs_twenty_shapes_where_there_is_no_compiler_and_no_onnx(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[batch, seq, 8] x) => (float[batch, heads, seq, seq] y) <int64[4] split = {0, 0, 2, 4}> {
            h = Reshape(x, split)  q = Transpose <perm = [0, 2, 1, 3]> (h)  k = Transpose <perm = [0, 2, 3, 1]> (h)
            s = MatMul(q, k)  y = Softmax(s) }"""
    )
    program = graft.compile(model, ["llvm"], threads=1)
    assert {module.kind for module in program.description.modules} == {"native"}
    program.save(tmp_path / "any.graft")
    draw = np.random.default_rng(0)
    shapes = [(number % 4 + 1, 3 * number + 1, 8) for number in range(20)]
    feeds = {f"{one}": draw.standard_normal(one).astype(np.float32) for one in shapes}
    np.savez(tmp_path / "feeds.npz", **feeds)  # type: ignore[arg-type]
    python(ANY_SHAPE, tmp_path / "any.graft", tmp_path / "feeds.npz", tmp_path / "results.npz")
    results = np.load(tmp_path / "results.npz")
    for name, x in feeds.items():
        heads = x.reshape(*x.shape[:2], 2, 4).transpose(0, 2, 1, 3)
        scores = np.exp(heads @ heads.transpose(0, 1, 3, 2))
        np.testing.assert_allclose(results[name], scores / scores.sum(-1, keepdims=True), rtol=1e-4, atol=1e-6)


def test_a_program_with_a_vendors_library_needs_no_compiler_either(vendor: tuple[Path, graft.Program]) -> None:
    path, program = vendor
    expected = program(*(np.ones(one.shape, one.dtype) for one in program.inputs))
    shape, imported = python(FRESH, path).splitlines()
    assert shape.startswith(str(expected.shape))
    assert imported == "['pluggy', 'importlib.metadata']"  # the marker of the plugin's hooks, and what finds it


COMPILE = """
import sys
import graft
graft.compile(sys.argv[1], sys.argv[3].split(","), threads=1).save(sys.argv[2])
"""


@pytest.mark.parametrize(
    "backends", ["onednn,llvm", *(pytest.param(one, marks=pytest.mark.slow) for one in ("llvm", "reference"))]
)
def test_the_same_model_gives_the_same_bytes_in_every_process(
    backends: str, vendor: tuple[Path, graft.Program], tmp_path: Path
) -> None:
    written = []
    for seed in ("1", "2"):
        path, folder = tmp_path / f"{seed}.graft", tmp_path / seed
        folder.mkdir()
        model = folder / "model.onnx"
        model.write_bytes(DIGITS.read_bytes())
        python(COMPILE, model, path, backends, env={**os.environ, "PYTHONHASHSEED": seed}, cwd=os.getcwd())
        written.append(path.read_bytes())
    assert written[0] == written[1]


def test_loading_and_saving_again_gives_the_same_bytes(llvm: Path, tmp_path: Path) -> None:
    load(llvm, threads=1).save(tmp_path / "again.graft")
    assert (tmp_path / "again.graft").read_bytes() == llvm.read_bytes()


def message_of(function: Callable[[], object]) -> str:
    with pytest.raises(ArtifactError) as caught:
        function()
    return str(caught.value)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the features are those of x86-64")
def test_the_runtime_knows_every_feature_that_programs_may_need(llvm: Path) -> None:
    wanted = sorted(COMPILED_FOR - {"neon", "dotprod", "fullfp16", "i8mm", "bf16", "sve", "sve2", "v"})

    def change(facts: Any) -> None:
        facts["targets"] = [{"arch": "x86_64", "features": wanted}]

    llvm.write_bytes(changed(llvm.read_bytes(), change))
    said = message_of(lambda: load(llvm, threads=1))  # no processor has those of all makers
    assert "unknown to this runtime" not in said


def test_missing_processor_features_are_told(llvm: Path) -> None:
    def change(facts: Any) -> None:
        facts["targets"] = [{"arch": "x86_64", "features": ["avx512f", "amx-fp64"]}]

    llvm.write_bytes(changed(llvm.read_bytes(), change))
    said = message_of(lambda: load(llvm, threads=1))
    assert "amx-fp64" in said

    def other(facts: Any) -> None:
        facts["targets"] = [{"arch": "riscv64", "features": []}]

    llvm.write_bytes(changed(llvm.read_bytes(), other))
    assert "riscv64" in message_of(lambda: load(llvm, threads=1))


def test_a_missing_plugin_is_told_with_what_installs_it(tmp_path: Path) -> None:
    write(tmp_path / "a.graft")
    expected = "no loader for modules of kind 'test'; plugin 'tester' provides it; install it with: pip install tester"
    assert message_of(lambda: load(tmp_path / "a.graft", threads=1, strict=True)) == expected


def test_what_cannot_be_compiled_anew_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.graft"
    save(replace(description(), files={}), path)
    assert message_of(lambda: load(path, threads=1)) == (
        "no loader for modules of kind 'test'; plugin 'tester' provides it; install it with: pip install tester; "
        "the artifact holds no model to compile the regions anew that have no loader here"
    )
    write(path)
    said = message_of(lambda: load(path, threads=1))
    assert "; the artifact's model cannot be read (DecodeError: " in said
    empty = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[1] x) => (float[1] y) {y=Abs(x)}'
    )
    save(replace(description(), files={"model.onnx": empty.SerializeToString()}), path)
    assert message_of(lambda: load(path, threads=1)).endswith(
        "; module 'm' of kind 'test' cannot be compiled anew: it is not one region of the artifact's model"
    )


def test_a_given_loader_is_used(tmp_path: Path) -> None:
    write(tmp_path / "a.graft")
    program = load(tmp_path / "a.graft", threads=1, loaders=[LOADER], strict=True)
    x = np.ones(4, np.float32)
    np.testing.assert_array_equal(program(x, np.array(False)), x)


def test_what_was_read_is_what_was_saved(tmp_path: Path) -> None:
    write(tmp_path / "a.graft")
    found, given = read(tmp_path / "a.graft"), description()
    assert found.procedures == given.procedures
    assert found.files == given.files
    (module,), (wanted,) = found.modules, given.modules
    assert replace(module, constants={}) == replace(wanted, constants={})
    np.testing.assert_array_equal(module.constants["bias"], wanted.constants["bias"])
    for key, array in given.constants.items():
        np.testing.assert_array_equal(found.constants[key], array)
        assert not found.constants[key].flags.writeable
        assert found.constants[key].ctypes.data % 64 == 0


def test_a_mapped_constant_outlives_the_file(tmp_path: Path) -> None:
    write(tmp_path / "a.graft")
    found = read(tmp_path / "a.graft")
    (tmp_path / "a.graft").unlink()
    (key, array) = next(iter(description().constants.items()))
    np.testing.assert_array_equal(found.constants[key], array)


WITHOUT_LIBRARY = """
import sys, warnings
import numpy as np
import graft
import graft.plugins.onednn.library as library
library.candidates = lambda: []
strict = sys.argv[2] == "strict"
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    try:
        program = graft.runtime.load(sys.argv[1], threads=1, strict=strict)
    except graft.GraftError as error:
        print(type(error).__name__, error)
        sys.exit()
print(*(f"{one.category.__name__}: {one.message}" for one in caught), sep="\\n")
print({module.kind for module in program.description.modules})
inputs = [np.random.default_rng(0).random(one.shape).astype(one.dtype) for one in program.inputs]
np.save(sys.argv[3], program(*inputs))
"""


def test_where_a_library_is_missing_its_regions_are_compiled_anew(
    vendor: tuple[Path, graft.Program], tmp_path: Path
) -> None:
    path, program = vendor
    lines = python(WITHOUT_LIBRARY, path, "lenient", tmp_path / "y.npy").splitlines()
    count = sum(module.kind == "json:onednn" for module in program.description.modules)
    assert len(lines) == 2
    assert lines[0].startswith("RuntimeWarning: ")
    assert lines[0].endswith(f"; {count} region{'s' * (count > 1)} compiled anew by the built-in compiler")
    assert "oneDNN" in lines[0]
    assert "pip install" in lines[0]
    assert lines[1] == "{'native'}"
    inputs = [np.random.default_rng(0).random(one.shape).astype(one.dtype) for one in program.inputs]
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), program(*inputs), rtol=1e-4, atol=1e-5)


def test_a_strict_load_refuses_a_missing_library(vendor: tuple[Path, graft.Program], tmp_path: Path) -> None:
    said = python(WITHOUT_LIBRARY, vendor[0], "strict", tmp_path / "y.npy")
    assert said.startswith("ArtifactError ")
    assert "oneDNN" in said
    assert "pip install" in said


def test_wrong_numbers_of_threads_are_refused(llvm: Path) -> None:
    with pytest.raises(GraftError) as caught:
        load(llvm, threads=0)
    assert str(caught.value) == "threads must be at least 1, got 0"
