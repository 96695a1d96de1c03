"""Every option of `graft.compile` that a program keeps, it keeps when it is saved, loaded elsewhere, compiled anew."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import graft
from graft.core.affine.expressions import Range
from graft.core.tuning.options import TuneOptions
from graft.errors import ArtifactError
from graft.partition.policy import Policy
from graft.runtime.artifact import read, save
from graft.runtime.isolation.options import OF_ONE_MACHINE, Isolation, isolations_of
from graft.runtime.loading import load
from graft.runtime.program import Program

WEIGHT = np.random.default_rng(0).standard_normal((16, 16, 3, 3)).astype(np.float32) / 8
X = np.random.default_rng(1).standard_normal((2, 16, 12, 12)).astype(np.float32)
RANGES = {"n": (1, 4), "h": (1, 16)}


def model() -> onnx.ModelProto:
    """Convolutions that Winograd's algorithm may take, with a batch and a height that are open."""
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[n,16,h,12] x) => (float[n,16,h,12] y) <float[16,16,3,3] w>'
        "{ a = Conv<pads = [1, 1, 1, 1]>(x, w) b = Tanh(a) y = Conv<pads = [1, 1, 1, 1]>(b, w) }"
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(WEIGHT, "w"))
    return proto


CASES: Mapping[str, Mapping[str, Any]] = {
    "backends": {"backends": ["c_source"]},
    "shapes": {"shapes": {"x": (2, 16, 12, 12)}},
    "dims": {"dims": RANGES},
    "specialize": {"specialize": {"n": [2, (1, 3)], "h": [12]}},
    "threads": {"threads": 2},
    "cpu": {"cpu": "x86-64-v2"},
    "target": {"target": "x86-64-v3"},
    "precision": {"precision": "bf16"},
    "tune": {"tune": TuneOptions(seconds=0.2, trials=1), "tuned": True},
    "without": {"without": ["winograd", "fusion"]},
    "policy": {"backends": ["c_source", "llvm"], "policy": Policy(exclude_op=("c_source:Tanh",))},
    "place": {"backends": ["llvm", "reference"], "place": "model"},
    "memory": {"memory": "maximum", "dims": RANGES},
    "plan": {"backends": None, "plan": graft.plan(model(), ["reference"])},
}
"""What a program keeps, by the parameter that says it."""
LEAVE_NO_TRACE = {
    "model": "is what is compiled",
    "strict": "says when compiling fails",
    "cache": "says where kernels are looked for, which are the same",
    "tuned": "says what schedules are taken, which the kernels are",
    "keep_intermediates": "writes files beside the program",
    "manager": "says where backends are looked for",
    "isolation": "has a test of its own",
    "keep_weights": "is given in all cases",
    "schedules": "says what the kernels are; one that cannot be is refused",
}
FRESH = """
import hashlib, sys, numpy, graft
x = numpy.load(sys.argv[1])
for path in sys.argv[2:]:
    program = graft.runtime.load(path, threads=1)
    print(hashlib.sha256(program(x).tobytes()).hexdigest(), *program.inputs, sep="; ")
"""


def compiled(case: str) -> Program:
    options = {"backends": ["llvm"], "threads": 1, "cache": False, "tuned": False, "keep_weights": True, **CASES[case]}
    return graft.compile(model(), **options)


def asked_of(program: Program) -> dict[str, Any]:
    """What was asked of a program, as it says it."""
    facts, main = program.description.metadata, program.description.procedures[0]
    return {
        "precision": facts["precision"],
        "without": facts.get("without", ()),
        "versions": {row["label"] for row in facts.get("variants", ())},
        "ranges": {one.name: Range(one.low, one.high) for one in main.symbols},
        "planned once": bool(main.symbols and main.arena_bytes),
        "inputs": [str(one) for one in program.inputs],
    }


def test_every_option_of_compile_has_a_case() -> None:
    parameters = set(inspect.signature(graft.compile).parameters)
    assert {*CASES, *LEAVE_NO_TRACE} == parameters, "a new option is kept by artifacts, or has a reason not to be"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Program, Path]]:
    folder = tmp_path_factory.mktemp("kept")
    found = {case: (compiled(case), folder / f"{case}.graft") for case in CASES}
    for program, path in found.values():
        program.save(path)
    np.save(folder / "x.npy", X)
    return found


def test_a_process_elsewhere_has_the_same_bits(programs: dict[str, tuple[Program, Path]], tmp_path: Path) -> None:
    paths = [path for _, path in programs.values()]
    command = [sys.executable, "-c", FRESH, str(paths[0].parent / "x.npy"), *map(str, paths)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True)
    wanted = [
        "; ".join([hashlib.sha256(program(X).tobytes()).hexdigest(), *map(str, program.inputs)])
        for program, _ in programs.values()
    ]
    assert dict(zip(CASES, done.stdout.splitlines(), strict=True)) == dict(zip(CASES, wanted, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_a_loaded_program_says_the_same(case: str, programs: dict[str, tuple[Program, Path]], tmp_path: Path) -> None:
    program, path = programs[case]
    again = load(path, threads=1)
    assert asked_of(again) == asked_of(program)
    assert json.loads(json.dumps(dict(again.description.metadata))) == json.loads(
        json.dumps(dict(program.description.metadata))
    )
    again.save(tmp_path / "again.graft")
    assert (tmp_path / "again.graft").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("case", CASES)
def test_a_program_that_is_compiled_anew_is_asked_the_same(
    case: str, programs: dict[str, tuple[Program, Path]], tmp_path: Path
) -> None:
    program, path = programs[case]
    anew = load(path, threads=1, native="recompile")
    assert asked_of(anew) == asked_of(program)
    tolerance = 3e-2 if case == "precision" else 1e-4
    np.testing.assert_allclose(anew(X), program(X), rtol=tolerance, atol=tolerance)
    anew.save(tmp_path / "anew.graft")
    assert asked_of(load(tmp_path / "anew.graft", threads=1, native="recompile")) == asked_of(program)


@pytest.mark.parametrize(
    ("fact", "value", "said"),
    [
        ("without", 3, "artifact is damaged: what it does without is 3; compile it again"),
        ("variants", [{"module": 1, "weights": {}}], "the artifact's variants cannot be read"),
        ("variants", [{"label": "n=two=3"}], "the artifact's variants cannot be read"),
    ],
)
def test_damaged_options_are_an_error(
    fact: str, value: object, said: str, programs: dict[str, tuple[Program, Path]], tmp_path: Path
) -> None:
    description = read(programs["dims"][1])
    save(replace(description, metadata={**description.metadata, fact: value}), tmp_path / "damaged.graft")
    with pytest.raises(ArtifactError, match=re.escape(said)):
        load(tmp_path / "damaged.graft", native="recompile")


def test_a_pass_of_a_plugin_that_is_missing_is_done_without(
    programs: dict[str, tuple[Program, Path]], tmp_path: Path
) -> None:
    description = read(programs["without"][1])
    wanted = {**description.metadata, "without": ["a-pass-of-another", "winograd"]}
    save(replace(description, metadata=wanted), tmp_path / "other.graft")
    assert asked_of(load(tmp_path / "other.graft", native="recompile"))["without"] == ["winograd"]


def test_every_setting_of_isolation_is_kept_or_of_one_machine(tmp_path: Path) -> None:
    (tmp_path / "npu.lock").write_text("numpy==1.26.4\nonnx==1.16.1  # and its needs\n")
    given = Isolation(
        compile=False, run=False, seconds=3, load_seconds=4, memory=1 << 30, retries=0, fallback=False,
        requirements=[str(tmp_path / "npu.lock")], python="python", install=True, wheels="wheels",
    )  # fmt: skip
    sandboxed = Isolation(sandbox=True)
    row = json.loads(json.dumps({"npu": given.to_json(), "other": sandboxed.to_json()}))
    kept = isolations_of({"isolation": row})
    assert kept["other"] == sandboxed
    assert kept["npu"].requirements == ("numpy==1.26.4", "onnx==1.16.1"), "the lines, for the file may be elsewhere"
    default = Isolation()
    for name in (one for one in Isolation.__dataclass_fields__ if one not in (*OF_ONE_MACHINE, "requirements")):
        assert getattr(kept["npu"], name) == getattr(given, name)
        assert getattr(given, name) != getattr(default, name) or name == "sandbox", name
    for name in OF_ONE_MACHINE:
        assert getattr(kept["npu"], name) == getattr(default, name)
