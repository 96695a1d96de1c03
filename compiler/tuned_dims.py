"""The dimensions at which kernels of shapes that vary are measured, checked against a model's symbols and ranges."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from graft.core.graph.dimensions import Dims, ranges_of
from graft.core.shapes.sample_inputs import typical_dimensions
from graft.core.tuning.options import TuneOptions
from graft.errors import TuningError
from graft.runtime.extents import Symbol


def check_dims(model: ir.Model, options: TuneOptions) -> None:
    """Raise TuningError for a value outside of its symbol's range, GraftError for a symbol that no input has."""
    ranges = {one.name: bounds for one, bounds in ranges_of(model).items() if isinstance(one, Symbol)}
    for name, values in options.dims.items():
        typical_dimensions(model, {name: values[0]})
        bounds = ranges.get(name)
        for value in values:
            if bounds is not None and not (bounds.low <= value and (bounds.high is None or value <= bounds.high)):
                high = "" if bounds.high is None else bounds.high
                raise TuningError(
                    f"tuning is to measure at '{name}' = {value}, and the program runs {bounds.low}..{high}; leave it "
                    "out, or widen the range in dims",
                    dimension=name,
                )


def without_numbers(options: TuneOptions, dims: Dims) -> Mapping[str, tuple[int, ...]]:
    """Return the values to measure at in a version of a model: of symbols that it has, in the ranges that it has."""
    left: dict[str, tuple[int, ...]] = {}
    for name, values in options.dims.items():
        spec = dims.get(name, (0, None))
        if not isinstance(spec, int | str):
            low, high = spec
            inside = tuple(value for value in values if low <= value and (high is None or value <= high))
            left |= {name: inside} if inside else {}
    return left
