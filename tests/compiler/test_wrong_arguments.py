"""Every public function with every argument wrong: an error of Graft's that says what to give, never a raw one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import graft
import graft.datatypes
import graft.onnx_backend
import graft.quantization
import graft.runtime
import graft.testkit
from graft.datatypes.registry import DatatypeRegistry
from graft.errors import ArgumentError, GraftError, PlanError

MODEL = onnx.parser.parse_model(
    """<ir_version: 10, opset_import: ["" : 21]> g (float[2,2] x) => (float[2,2] y)
    <float[2,2] w = {1, 2, 3, 4}> { r = Relu(x) y = MatMul(r, w) }"""
)
X = np.ones((2, 2), np.float32)


class Spiky:
    """An object whose methods raise."""

    def __bool__(self) -> bool:
        raise ValueError("bool")

    def __eq__(self, other: object) -> bool:
        raise ValueError("eq")

    def __iter__(self) -> Iterator[object]:
        raise ValueError("iter")

    def __repr__(self) -> str:
        raise ValueError("repr")


WRONG: tuple[object, ...] = (
    None, 5, -1, 2.5, float("nan"), 10**30, "nonsense", "", "\0", b"bytes", [], [None], (1, 2), {}, {"x": "y"}, {1: 2},
    np.zeros(3), np.array("a"), Spiky(), object,
)  # fmt: skip


@dataclass(frozen=True)
class Public:
    """A public function and arguments with which it works."""

    function: Callable[..., Any]
    arguments: dict[str, Any]


def public(place: Path) -> dict[str, Public]:
    """The public functions by name."""
    program = graft.compile(MODEL, "llvm", threads=1)
    path = place / "m.graft"
    program.save(path)
    plan = graft.plan(MODEL, "llvm")
    table = DatatypeRegistry()
    table.register("mine", widths=(16,))
    number = {"threads": 1, "backends": "llvm"}
    posit = {"dtype": "custom[posit]16"}
    scaled, across = (graft.datatypes.encode_scaled(X, "mxfp4", axis) for axis in (1, 0))
    return {
        "load": Public(graft.load, {"source": MODEL}),
        "plan": Public(graft.plan, {"model": MODEL, **number}),
        "compile": Public(graft.compile, {"model": MODEL, "cache": False, **number}),
        "export_wasm": Public(graft.export_wasm, {"model": MODEL, "folder": place / "web"}),
        "bench": Public(graft.bench, {"model": MODEL, "seconds": 0.001, "warmup": 0.0, **number}),
        "verify": Public(graft.verify, {"model": MODEL, **number}),
        "bisect": Public(graft.bisect, {"model": MODEL, **number}),
        "quantize": Public(graft.quantize, {"model": MODEL, "recipe": "int8", "data": {"x": X}, "threads": 1}),
        "quantization.compare": Public(
            graft.quantization.compare, {"original": MODEL, "quantized": MODEL, "data": {"x": X}, "threads": 1}
        ),
        "quantization.assign": Public(
            graft.quantization.assign, {"model": MODEL, "data": {"x": X}, "bits": 8, "threads": 1}
        ),
        "quantization.preprocessed": Public(graft.quantization.preprocessed, {"data": {"x": X}, "function": dict}),
        "quantization.recipe_of": Public(graft.quantization.recipe_of, {"given": "int8"}),
        "quantization.recipe_for": Public(graft.quantization.recipe_for, {"backend": "llvm"}),
        "quantization.left_by": Public(graft.quantization.left_by, {"backend": "llvm", "model": graft.load(MODEL)}),
        "quantization.notes_of": Public(graft.quantization.notes_of, {"model": graft.load(MODEL)}),
        "grad": Public(graft.grad, {"model": graft.loss(MODEL, "mse")}),
        "loss": Public(graft.loss, {"model": MODEL, "kind": "mse"}),
        "sweep": Public(graft.sweep, {"model": MODEL, "types": ["posit8"], "threads": 1}),
        "explain": Public(graft.explain, {"model": MODEL, "node": plan.placements[0].node, "backends": "llvm"}),
        "supports": Public(graft.supports, {}),
        "option": Public(graft.option, {"default": 5}),
        "Policy": Public(graft.Policy, {}),
        "TuneOptions": Public(graft.TuneOptions, {}),
        "Reject": Public(graft.Reject, {"code": "dtype", "text": "float32 only"}),
        "Plan.from_json": Public(graft.Plan.from_json, {"text": plan.to_json()}),
        "Plan.coverage": Public(plan.coverage, {"backend": "llvm"}),
        "Plan.regions": Public(plan.regions, {"backend": "llvm"}),
        "Plan.reasons": Public(plan.reasons, {"backend": "llvm"}),
        "Plan.why": Public(plan.why, {"backend": "llvm"}),
        "Plan.with_precision": Public(plan.with_precision, {"nodes": [], "precision": "bf16"}),
        "Plan.__getitem__": Public(plan.__getitem__, {"node": plan.placements[0].node}),
        "onnx_backend.prepare": Public(graft.onnx_backend.prepare, {"model": MODEL}),
        "onnx_backend.run_model": Public(graft.onnx_backend.run_model, {"model": MODEL, "inputs": [X]}),
        "onnx_backend.run_node": Public(graft.onnx_backend.run_node, {"node": MODEL.graph.node[0], "inputs": [X]}),
        "onnx_backend.supports_device": Public(graft.onnx_backend.supports_device, {"device": "CPU"}),
        "testkit.conformance": Public(graft.testkit.conformance, {"name": "reference", "level": 0}),
        "runtime.load": Public(graft.runtime.load, {"path": path, "threads": 1}),
        "Program.from_description": Public(graft.Program.from_description, {"description": program.description}),
        "Program.__call__": Public(program.__call__, {}),
        "Program.run": Public(program.run, {"inputs": {"x": X}}),
        "Program.bind": Public(program.bind, {"pairs": {"x": "y"}}),
        "Program.profile": Public(program.profile, {}),
        "Program.timed": Public(program.timed, {}),
        "Program.save": Public(program.save, {"path": path}),
        "Program.export_library": Public(program.export_library, {"path": place / "m.so"}),
        "Program.export_c_project": Public(program.export_c_project, {"path": place / "project"}),
        "datatypes.convert": Public(graft.datatypes.convert, {"model": MODEL, **posit}),
        "datatypes.create_lower_func": Public(graft.datatypes.create_lower_func, {"symbols": {16: "malloc"}}),
        "datatypes.decode": Public(graft.datatypes.decode, {"bits": X.astype(np.uint16), **posit}),
        "datatypes.encode": Public(graft.datatypes.encode, {"numbers": X, **posit}),
        "datatypes.lookup": Public(graft.datatypes.lookup, {"table": np.zeros(65536, np.uint8), "bits": 8}),
        "datatypes.via": Public(graft.datatypes.via, {"carrier": "float32"}),
        "datatypes.register": Public(table.register, {"name": "mine"}),
        "datatypes.register_float": Public(
            graft.datatypes.register_float, {"name": "half", "exponent": 1, "mantissa": 1}
        ),
        "datatypes.register_fixed": Public(graft.datatypes.register_fixed, {"name": "cents", "bits": 8, "fraction": 2}),
        "datatypes.scaled_type": Public(graft.datatypes.scaled_type, {"name": "mxfp4"}),
        "datatypes.encode_scaled": Public(graft.datatypes.encode_scaled, {"numbers": X, "type": "mxfp4"}),
        "datatypes.decode_scaled": Public(graft.datatypes.decode_scaled, {"array": scaled}),
        "datatypes.matmul_scaled": Public(graft.datatypes.matmul_scaled, {"left": scaled, "right": across}),
        "datatypes.convert_scaled": Public(graft.datatypes.convert_scaled, {"model": MODEL, "type": "mxfp4"}),
        "datatypes.register_op": Public(
            table.register_op, {"lowering": 5, "op": "Add", "backend": "llvm", "datatype": "mine"}
        ),
    }  # fmt: skip


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Public]:
    return public(tmp_path_factory.mktemp("wrong"))


NAMES = (
    "load", "plan", "compile", "bench", "export_wasm", "verify", "bisect", "sweep", "quantize", "grad", "loss",
    "quantization.assign", "quantization.compare", "quantization.recipe_for", "quantization.left_by",
    "quantization.notes_of", "quantization.preprocessed", "quantization.recipe_of", "explain", "supports", "option",
    "Policy", "TuneOptions", "Reject", "Plan.from_json", "Plan.coverage", "Plan.regions", "Plan.reasons", "Plan.why",
    "Plan.with_precision",
    "Plan.__getitem__", "onnx_backend.prepare", "onnx_backend.run_model", "onnx_backend.run_node",
    "onnx_backend.supports_device", "testkit.conformance",
    "runtime.load", "Program.from_description", "Program.__call__", "Program.run",
    "Program.bind", "Program.profile", "Program.timed", "Program.save", "Program.export_library",
    "Program.export_c_project", "datatypes.convert",
    "datatypes.create_lower_func", "datatypes.decode", "datatypes.encode", "datatypes.lookup", "datatypes.via",
    "datatypes.register",
    "datatypes.register_float", "datatypes.register_fixed", "datatypes.scaled_type", "datatypes.encode_scaled",
    "datatypes.decode_scaled", "datatypes.matmul_scaled", "datatypes.convert_scaled", "datatypes.register_op",
)  # fmt: skip


_, FIVE, _, HALF, _, HUGE, *_ = WRONG
FINE = {("bench", "seconds"): (FIVE, HALF), ("bench", "warmup"): (FIVE, HALF), ("compile", "tune"): (FIVE, HALF, HUGE)}
"""What is right, and takes its time."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_argument_is_an_error_of_grafts(
    functions: dict[str, Public], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # "nonsense" is a fine path to write to
    known = functions[name]
    for parameter in inspect.signature(known.function).parameters.values():
        for wrong in WRONG:
            if any(wrong is fine for fine in FINE.get((name, parameter.name), ())):
                continue
            positional = (wrong,) if parameter.kind is inspect.Parameter.VAR_POSITIONAL else ()
            named = {
                **known.arguments,
                **({} if positional or parameter.kind is parameter.VAR_KEYWORD else {parameter.name: wrong}),
            }
            if parameter.kind is parameter.VAR_KEYWORD:
                named["nonsense"] = wrong
            try:
                known.function(*positional, **named)
            except GraftError as error:
                assert error.message
                assert "\n" not in error.message, error.message
            except TypeError as error:  # a call that the signature does not have is Python's to refuse
                assert parameter.kind is parameter.VAR_KEYWORD, error
                assert "unexpected keyword argument 'nonsense'" in str(error)


def test_every_public_function_is_in_the_table(functions: dict[str, Public]) -> None:
    assert set(NAMES) == set(functions)
    named = {name for name in graft.__all__ if inspect.isfunction(getattr(graft, name))}
    assert named - {"hookimpl"} <= set(NAMES)
    of_datatypes = {
        f"datatypes.{name}" for name in graft.datatypes.__all__ if inspect.isroutine(getattr(graft.datatypes, name))
    }
    assert of_datatypes <= set(NAMES)
    of_quantization = {
        f"quantization.{name}"
        for name in graft.quantization.__all__
        if name != "quantize" and inspect.isfunction(getattr(graft.quantization, name))
    }
    assert of_quantization <= set(NAMES)
    methods = {f"Program.{name}" for name, _ in inspect.getmembers(graft.Program, inspect.isroutine) if name[0] != "_"}
    assert methods <= set(NAMES)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: graft.compile(MODEL, "llvm", threads="two"),
            "compile: threads is str 'two'; give a whole number up to 2147483647, or None",
        ),
        (
            lambda: graft.plan(MODEL, shapes={"x": 3}),
            "plan: shapes is dict {'x': 3}; give a mapping of input names to shapes, "
            'as in {"x": (1, 3, 224, 224)}, or None',
        ),
        (
            lambda: graft.compile(MODEL, without="fusion"),
            "compile: without is str 'fusion'; give a list of texts, as in [\"one\", \"two\"]",
        ),
        (
            lambda: graft.load(None),  # type: ignore[arg-type]
            "load: source is None; give the path of an ONNX model, its bytes, or a model in memory "
            "(onnx.ModelProto, onnx_ir.Model)",
        ),
        (
            lambda: graft.Policy(exclude_op="Softmax"),  # type: ignore[arg-type]
            "Policy: exclude_op is str 'Softmax'; give a list of texts, as in [\"one\", \"two\"]",
        ),
        (
            lambda: graft.runtime.load(7),  # type: ignore[arg-type]
            "load: path is int 7; give a path, as in \"model.graft\"",
        ),
    ],
)  # fmt: skip
def test_the_error_says_what_was_given_and_what_to_give(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call()
    assert caught.value.message == message
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("backends", ["llvm", "llvm,reference", " llvm , reference ", ["llvm"], ("llvm", "reference")])
def test_backends_are_one_name_or_several(backends: Any) -> None:
    assert graft.plan(MODEL, backends).backends[0] == "llvm"


@pytest.mark.parametrize(
    ("backends", "message"),
    [
        ("lvm", "unknown backend 'lvm'; did you mean 'llvm'? known backends are "),
        ("llvm,,reference", "backends has '', which is neither a name nor a graft.Backend object; write "),
        (5, "backends has 5, which is neither a name nor a graft.Backend object; write "),
        ([graft.Backend], "backends has <class 'graft.plugins.backend.Backend'>, which is neither a name nor a "
         "graft.Backend object; give Backend()"),
    ],
)  # fmt: skip
def test_what_is_no_backend_is_refused(backends: Any, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        graft.plan(MODEL, backends)
    assert caught.value.message.startswith(message)
