"""Random models of the kit with their extents opened: names for what may vary, and inputs at several sizes.

Whether an extent may vary is tried: a size is changed, and `onnx.reference` computes the model or does not. Inner
values must stay numbers of the kit's bounds, so that whatever differs by more than rounding is a fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import onnx

from graft.plugins.reference.own import Evaluator
from graft.testkit.models.draw import LARGEST, agree, is_real
from graft.testkit.models.model import RandomModel, random_model
from graft.testkit.models.options import Options
from graft.testkit.models.reference import EVALUATORS
from graft.testkit.models.source import Source
from graft.testkit.models.table import ROWS

from .rows import OPEN

OPTIONS = Options(
    nodes=(2, 9), types=(("float32", 8.0), ("float64", 1.0), ("float16", 1.0)), special=0.0, symbolic=0.0, older=0.1
)
SIZES = 2
"""How many sizes there are besides the drawn one."""
MOST = 30_000
"""Elements of a value."""
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class OpenModel:
    """A model whose inputs have dimensions by name, and what it computes at several sizes."""

    model: RandomModel
    runs: tuple[tuple[Arrays, Arrays], ...]
    """Inputs and results of all nodes, at the drawn size and at others."""

    @property
    def names(self) -> set[str]:
        """The names of what is open."""
        return {one for dims in self.model.symbols.values() for one in dims if isinstance(one, str)}


@dataclass
class Opening:
    """A model while it is tried at other sizes."""

    model: RandomModel
    source: Source
    dims: dict[str, list[int | str]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    """The drawn extent of each name."""

    def __post_init__(self) -> None:
        for name in self.model.inputs:
            shape = self.model.arrays[name].shape
            self.dims[name] = [self.named(extent, f"{name}_{axis}") for axis, extent in enumerate(shape)]
            self.sizes |= {key: size for key, size in zip(self.dims[name], shape, strict=True) if isinstance(key, str)}
        self.results = [name for node in self.model.nodes for name in node.output if name]
        self.evaluator = Evaluator(replace(self.model, outputs=tuple(self.results)).proto, new_ops=EVALUATORS)

    def named(self, extent: int, own: str) -> int | str:
        """Return a name for an extent, often that of all that have its size; seldom the number itself."""
        if self.source.random() < 0.1:
            return extent
        return f"e{extent}" if self.source.random() < 0.6 else own

    def open(self) -> OpenModel | None:
        """Return the model with what can be opened, None if that is nothing."""
        for name in [*self.sizes]:
            if not any(self.run({**self.sizes, name: self.other(name)}) for _ in range(2)):
                self.dims = {key: [self.sizes[name] if one == name else one for one in dims]
                             for key, dims in self.dims.items()}  # fmt: skip
                del self.sizes[name]
        runs = [self.run(self.sizes)]
        for _ in range(4 * SIZES):
            if len(runs) <= SIZES:
                runs += filter(None, [self.run({name: self.other(name) for name in self.sizes})])
        found = [run for run in runs if run is not None]
        if not self.sizes or len(found) < 2:
            return None
        symbols = {name: tuple(dims) for name, dims in self.dims.items()}
        return OpenModel(replace(self.model, symbols=symbols), tuple(found))

    def other(self, name: str) -> int:
        """Return another extent in place of the drawn one."""
        size = self.sizes[name]
        choices = [
            one for one in (1, size + 1, 2 * size, 2 * size + 1, 3 * size, 3, 7, size - 1) if one > 0 and one != size
        ]
        return choices[self.source.below(len(choices))] if self.source.random() < 0.97 else 0

    def run(self, sizes: Mapping[str, int]) -> tuple[Arrays, Arrays] | None:
        """Return inputs of these sizes and what the reference computes, None where it does not."""
        feeds = {
            name: self.drawn(self.model.arrays[name], [sizes[one] if isinstance(one, str) else one for one in dims])
            for name, dims in self.dims.items()
        }
        if any(array.size > MOST for array in feeds.values()):
            return None
        try:
            with np.errstate(all="ignore"):
                found = dict(zip(self.results, map(np.asarray, self.evaluator.run(None, feeds)), strict=True))
        except Exception:  # whatever it has against the sizes
            return None
        return (feeds, found) if all(map(usable, found.values())) and self.is_stated({**feeds, **found}) else None

    def is_stated(self, values: Arrays) -> bool:
        """Whether values have the ranks that the model states of outputs, and the shapes that bodies state."""
        ranks = all(values[name].ndim == self.model.arrays[name].ndim for name in self.model.outputs)
        return ranks and all(stated(node, {**self.model.arrays, **values}) for node in self.model.nodes)

    def drawn(self, like: np.ndarray, shape: list[int]) -> np.ndarray:
        """Return the array itself where the shape is its own, else numbers within its bounds."""
        if tuple(shape) == like.shape:
            return like
        if not like.size:
            return np.zeros(shape, like.dtype)
        if is_real(like):
            low, high = float(like.min()), float(like.max())
            return np.clip(self.source.uniform(low, high, shape).astype(like.dtype), like.min(), like.max())
        return like.reshape(-1)[self.source.integers(0, like.size, shape)]


def usable(array: np.ndarray) -> bool:
    """Whether there are numbers only, not too large, and not too many."""
    wide = array.astype(np.float64) if is_real(array) else np.zeros(1)
    return array.size <= MOST and bool(np.all(np.abs(wide) <= LARGEST))


def open_model(seed: int) -> OpenModel | None:
    """Return the model of a seed, the same on every machine; None where nothing of it can be open."""
    model = random_model(seed, OPTIONS, (*ROWS, *OPEN))
    return Opening(model, Source(seed + 1_000_003)).open() if model.inputs else None


def valid(model: RandomModel, feeds: Arrays, found: Arrays) -> bool:
    """Whether ONNX's own inference has nothing against these sizes."""
    fixed = replace(model, symbols={}, arrays={**model.arrays, **feeds, **found})
    try:
        inferred = onnx.shape_inference.infer_shapes(fixed.proto, check_type=True, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError:
        return False
    return all(
        agree([one.dim_value or None for one in value.type.tensor_type.shape.dim], found[value.name].shape)
        for value in inferred.graph.value_info
        if value.name in found and value.type.tensor_type.HasField("shape")
    )


def stated(node: onnx.NodeProto, values: Arrays) -> bool:
    """Whether a Scan is given the shapes that its body states of what it is given."""
    bodies = [one.g for one in node.attribute if one.name == "body"] if node.op_type == "Scan" else []
    for body in bodies:
        scanned = next(one.i for one in node.attribute if one.name == "num_scan_inputs")
        for number, (outer, inner) in enumerate(zip(node.input, body.input, strict=True)):
            shape = values[outer].shape[int(number >= len(node.input) - scanned) :]
            if not agree([one.dim_value or None for one in inner.type.tensor_type.shape.dim], shape):
                return False
    return True
