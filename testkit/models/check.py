"""What must hold of a random model: every way to compile it gives what the reference computes.

A *way* is a name: ``default`` (all installed backends by cost), ``mixed`` (all, but each claims a drawn share of the
nodes only, as vendors do), a backend's name (that one first, `reference` behind it), ``llvm`` (alone), or ``-`` and the
name of an optimisation or a pass that is switched off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from zlib import crc32

import numpy as np

import graft.compiler.api as api
from graft.compiler.request import plugins
from graft.core.machine.target import OPTIMISATIONS
from graft.core.operators.all import OPERATORS
from graft.core.passes.normalize import PASSES
from graft.errors import GraftError, UnsupportedError
from graft.partition.policy import Policy
from graft.testkit.models.draw import is_real
from graft.testkit.models.model import RandomModel

ALONE = "llvm"
LAST = "reference"
SWITCHES = (*OPTIMISATIONS, *PASSES)


@dataclass(frozen=True, slots=True)
class Finding:
    """What goes wrong with a model in one way.

    ``kind`` is ``wrong`` (another answer), ``refused`` (an UnsupportedError), ``error`` (another GraftError) or
    ``crash`` (any other exception).
    """

    seed: int
    way: str
    kind: str
    text: str

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.way}: {self.kind}: {self.text}"


def ways() -> tuple[str, ...]:
    """Return the ways to compile of this machine: its backends, mixtures, and each optimisation switched off."""
    names = [backend.name for backend in plugins().backends() if backend.by_default and backend.available() is None]
    return ("default", "mixed", *names, *(f"-{name}" for name in SWITCHES))


def way_of(seed: int, among: tuple[str, ...] | None = None) -> str:
    """Return the way of a seed, where a model is tried in one way only: half of them default and mixed."""
    if among is not None:
        return among[crc32(f"way {seed}".encode()) % len(among)]
    choices = ways()
    plain = [one for one in choices if not one.startswith("-")]
    number = crc32(f"way {seed}".encode())
    match number % 8:
        case 0 | 1 | 2:
            return "default"
        case 3:
            return "mixed"
        case 4 | 5 | 6:
            return plain[number // 8 % len(plain)]
        case _:
            return choices[len(plain) + number // 8 % (len(choices) - len(plain))]


def check(model: RandomModel, way: str) -> Finding | None:
    """Return what goes wrong with a model that is compiled in one way and run twice, None if nothing does."""
    try:
        program = api.compile(
            model.proto, threads=1 + model.seed % 2, strict=True, cache=False, tuned=False, **_request(model, way)
        )
        lost = _loses_nan(model, way)
        for _ in range(2):
            if text := difference(model, program.run(model.feeds), nan_may_be_lost=lost):
                return None if agrees_with_peer(model, program.run(model.feeds)) else _found(model, way, "wrong", text)
        return None
    except UnsupportedError as error:
        return _found(model, way, "refused", str(error))
    except GraftError as error:
        return _found(model, way, "error", f"{type(error).__name__}: {error}")
    except Exception as error:  # what a compiler may not do is what is looked for
        return _found(model, way, "crash", f"{type(error).__name__}: {error}")


def _found(model: RandomModel, way: str, kind: str, text: str) -> Finding:
    return Finding(model.seed, way, kind, text)


def _request(model: RandomModel, way: str) -> dict[str, Any]:
    """Return the arguments of `compile` that a way stands for."""
    if way == "default":
        return {}
    if way == "mixed":
        return {"policy": Policy(exclude_node=_left_out(model))}
    if way.startswith("-"):
        return {"without": (way.removeprefix("-"),), "backends": [ALONE, LAST]}
    return {"backends": [way] if way == LAST else [way, LAST]}


def _loses_nan(model: RandomModel, way: str) -> bool:
    """Whether a model is given to a backend that says of one of its operators that NaNs are lost there."""
    if way in ("default", "mixed") or way.startswith("-"):
        return False
    (backend,) = plugins().backends([way])
    return any(node.op_type in backend.loses_nan for node in model.proto.graph.node)


def _left_out(model: RandomModel) -> tuple[str, ...]:
    """Return what backends do not claim, a share of the nodes that depends on the seed."""
    share = (0.0, 0.2, 0.5)[crc32(f"share {model.seed}".encode()) % 3]
    # the names of the simplified model: what a model has that is all constant is not there
    rows = api.plan(model.proto).placements
    names = [backend.name for backend in plugins().backends() if backend.name != LAST and backend.by_default]
    return tuple(
        f"{backend}:{row.node}"
        for row in rows
        for backend in names
        if crc32(f"{model.seed} {backend} {row.node}".encode()) / 2**32 < share
    )


def difference(
    model: RandomModel,
    got: Mapping[str, object],
    expected: Mapping[str, object] | None = None,
    *,
    nan_may_be_lost: bool = False,
) -> str:
    """Return in what ``got`` differs from the expected outputs by more than rounding, an empty text if in nothing.

    What is expected to be NaN may be anything if ``nan_may_be_lost``.
    """
    for name, wanted in (model.expected if expected is None else expected).items():
        array, right = np.asarray(got[name]), np.asarray(wanted)
        if array.shape != right.shape or array.dtype != right.dtype:
            return f"{name}: {array.dtype}{list(array.shape)} instead of {right.dtype}{list(right.shape)}"
        if not is_real(right):
            if not np.array_equal(array, right):
                return f"{name}: {array!r} instead of {right!r}"
            continue
        numbers, wide = array.astype(np.float64), right.astype(np.float64)
        numbers = np.where(np.isnan(wide), np.nan, numbers) if nan_may_be_lost else numbers
        if text := _distance(numbers, wide, model.tolerance):
            return f"{name}: {text}, {array!r} instead of {right!r}"
    return ""


def _distance(array: np.ndarray, right: np.ndarray, tolerance: float) -> str:
    numbers = np.isfinite(right)
    same = np.where(np.isnan(right), np.isnan(array), array == right)
    if not np.all(same | numbers):
        return "no such infinity or NaN"
    bound = tolerance * max(1.0, float(np.max(np.abs(right[numbers]), initial=0.0)))
    with np.errstate(invalid="ignore"):
        worst = np.abs(array[numbers] - right[numbers])
    return "" if np.all(worst <= bound) else f"off by {np.max(worst):.3g}"


@cache
def peer() -> object | None:
    """Return ONNX Runtime where it is installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    onnxruntime.set_default_logger_severity(4)
    return onnxruntime


def agrees_with_peer(model: RandomModel, got: Mapping[str, object]) -> bool:
    """Whether ONNX Runtime gives what Graft gives: where it does, `onnx.reference` errs or ONNX leaves a choice."""
    found = by_peer(model)
    return found is not None and not difference(model, got, found)


def by_peer(model: RandomModel) -> dict[str, object] | None:
    """Return what ONNX Runtime computes, None where it is not there or cannot."""
    runtime = peer()
    if runtime is None or any(array.dtype.name == "bfloat16" for array in model.feeds.values()):
        return None
    try:
        options = runtime.SessionOptions()  # type: ignore[attr-defined]
        options.intra_op_num_threads = 1
        session = runtime.InferenceSession(  # type: ignore[attr-defined]
            model.proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return dict(zip(model.outputs, session.run(list(model.outputs), model.feeds), strict=True))
    except Exception:  # whatever it has against a model
        return None


def undrawn(drawn: frozenset[str]) -> set[str]:
    """Return the operators of the table that are not among those drawn."""
    return {row.name for row in OPERATORS if not row.domain} - drawn
