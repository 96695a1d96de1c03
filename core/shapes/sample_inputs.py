"""Inputs for a model that nobody gave inputs for: seeded, of the right shapes, and inside what the model can index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx_ir as ir

from graft.core.graph.dimensions import ranges_of
from graft.core.graph.view import NodeView, ValueView
from graft.core.operators.index_check import index_bounds
from graft.core.shapes.equations import equations_of
from graft.core.shapes.inference import shape_spelled
from graft.core.shapes.symbolic_shapes import dimensions_of
from graft.errors import ModelError
from graft.runtime.dtypes import numpy_dtype
from graft.runtime.extents import Extent, Symbol
from graft.runtime.typical_shapes import shape_at, typical_value, typical_values

_PASSING = frozenset({"Cast", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Flatten", "Expand"})


def sample_inputs(model: ir.Model, seed: int = 0, dims: Mapping[str, int] | None = None) -> dict[str, np.ndarray]:
    """Return one array per input of the model, by name.

    Floats are standard normal; bools are random; integers run over the rows of the smallest table they index, and
    over {0, 1} where they index none (masks, flags). ``dims`` are values of symbols; others are small. Raise ModelError
    if the rank of an input is not known, GraftError for a symbol that no input has.
    """
    generator = np.random.default_rng(seed)
    numbers = typical_dimensions(model, dims)
    return {value.name or "": sample_value(ValueView(value), generator, numbers) for value in _free_inputs(model)}


def typical_dimensions(model: ir.Model, dims: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return a number for each symbol of a model's inputs: what ``dims`` says, else what is usual for its axis."""
    shapes = {value.name or "": _extents(value) for value in _free_inputs(model)}
    ranges = {one.name: (known.low, known.high) for one, known in ranges_of(model).items() if isinstance(one, Symbol)}
    varies = any(not isinstance(extent, int) for shape in shapes.values() for extent in shape or ())
    return typical_values(shapes, ranges, dims or {}, equations_of(model.graph, ranges_of(model)) if varies else ())


def typical_numbers(model: ir.Model) -> dict[str, int]:
    """Return the number that each symbol of a model counts with: `typical_dimensions`, and those of further ranges.

    A symbol that no input has and no range tells anything of is missing.
    """
    known = {one.name: bounds for one, bounds in ranges_of(model).items() if isinstance(one, Symbol)}
    ranges = {name: typical_value((one.low, one.high)) for name, one in known.items()}
    return {**ranges, **typical_dimensions(model)}


def _extents(value: ir.Value) -> tuple[Extent, ...] | None:
    shape = dimensions_of(value)
    return None if shape is None else tuple(extent for extent in shape if extent is not None)


def _free_inputs(model: ir.Model) -> Iterable[ir.Value]:
    return (value for value in model.graph.inputs if value.name not in model.graph.initializers)


def sample_value(view: ValueView, generator: np.random.Generator, dims: Mapping[str, int] | None = None) -> np.ndarray:
    """Return an array for one value, as `sample_inputs` does; raise ModelError if its rank is not known."""
    extents = _extents(view.value)
    shape = None if extents is None or len(extents) != view.rank else shape_at(extents, dims or {})
    if shape is None:
        python, option = shape_spelled({view.name: "1x3x224x224"})
        raise ModelError(
            f"input '{view.name}' has shape {view.shape}; give it a value as in {python}",
            spelled={python: option},
            input=view.name,
        )
    dtype = numpy_dtype(view.dtype)
    if view.dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if np.issubdtype(dtype, np.integer):
        return generator.integers(0, _index_bound(view.value), shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


def _index_bound(value: ir.Value) -> int:
    """Return one more than the largest integer that every lookup fed by ``value`` accepts; 2 where there is none."""
    bounds: list[int] = []
    pending, seen = [value], {value}
    while pending:
        for node, position in pending.pop().uses():
            found = _rows_of(NodeView(node), position)
            bounds += found
            if not found and node.op_type in _PASSING and position == 0 and node.outputs[0] not in seen:
                pending.append(node.outputs[0])
                seen.add(node.outputs[0])
    return max(1, min(bounds)) if bounds else 2


def _rows_of(view: NodeView, number: int) -> list[int]:
    """Return how many rows there are to choose from, as far as known, by positions in an input of a node."""
    if view.op_type == "OneHot" and number == 0 and (shape := view.outputs[0].shape):
        depth = shape[int(view.attribute("axis", -1))]
        return [depth] if isinstance(depth, int) else []
    bounds = [bound for bound in index_bounds(view) if bound.input == number]
    return [one.extent for one in bounds if isinstance(one.extent, int) and one.high == one.extent - 1]
