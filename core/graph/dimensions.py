"""The symbols of a model's inputs: their names, the numbers and ranges that the user gives them."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TypeAlias

import onnx
import onnx_ir as ir

from graft.core.affine.expressions import Range, Ranges, names_in, substituted
from graft.core.affine.text import parsed
from graft.core.affine.text import text as shown
from graft.core.graph.notes import noted
from graft.core.graph.traversal import all_graphs
from graft.errors import ModelError
from graft.runtime.extents import Extent, Operation, Symbol

DimensionSpec: TypeAlias = "int | tuple[int, int | None] | str"
"""What is said of a symbol: its number, the least and the greatest that it may be (None: open), or another's name."""
Dims: TypeAlias = Mapping[str, DimensionSpec]
"""By symbol what is said of it. A sum such as ``past + seq`` may have a range, too."""
RANGES = "graft.dimensions"
"""The key of a model's metadata for the ranges of its symbols."""
MOST = 2**62
"""The largest bound of a range that programs take."""
LATE = "graft.late-symbols"
"""The key of a graph's `meta` for the symbols that results of its nodes bind."""

_MADE_UP = re.compile(r"unk__\d+")
"""How onnx's inference calls dimensions of which it knows nothing."""


def ranges_of(model: ir.Model) -> Ranges:
    """Return the ranges that a model's symbols, and sums of them, have; every other symbol is 0 and above."""
    given = noted(model.metadata_props, RANGES, _are_ranges) or {}
    return {extent: Range(*bounds) for one, bounds in given.items() if (extent := parsed(one)) is not None}


def _are_ranges(found: object) -> bool:
    """Whether data are pairs of bounds by texts."""
    return isinstance(found, dict) and all(
        isinstance(one, list)
        and len(one) == 2
        and type(one[0]) is int
        and (one[1] is None or (type(one[1]) is int and one[0] <= one[1] <= MOST))
        and -MOST <= one[0] <= MOST
        for one in found.values()
    )


def values_and_ranges(dims: Dims) -> tuple[dict[str, int], Dims]:
    """Return the numbers to run a model with, and the ranges to compile it for, of what is said of both."""
    values = {name: spec for name, spec in dims.items() if isinstance(spec, int)}
    return values, {name: spec for name, spec in dims.items() if not isinstance(spec, int)}


def keep_ranges(model: ir.Model, ranges: Ranges) -> None:
    """Note the ranges of a model's symbols in it, beside those that it has."""
    if ranges:
        known = {**ranges_of(model), **ranges}
        model.metadata_props[RANGES] = json.dumps({shown(extent): [one.low, one.high] for extent, one in known.items()})


def replace_ranges(model: ir.Model, ranges: Ranges) -> None:
    """Note the ranges of a model's symbols in it, in the place of those that it has."""
    model.metadata_props.pop(RANGES, None)
    keep_ranges(model, ranges)


def keep_late_symbols(graph: ir.Graph, names: Set[str]) -> None:
    """Note, in a graph, the symbols that an axis of a node's result is alone, and of none of the graph's inputs."""
    graph.meta[LATE] = frozenset(names)


def late_symbols(graph: ir.Graph) -> Set[str]:
    """Return the symbols that are bound when a node of a graph has run, as its last inference of shapes found them."""
    found: frozenset[str] = graph.meta.get(LATE, frozenset())
    return found


def identifier(name: str) -> str:
    """Return a name that a dimension's text can have: letters, digits, ``_``, not beginning with a digit."""
    clean = re.sub(r"\W", "_", name)
    return clean if clean and not clean[0].isdigit() and clean not in ("min", "max") else f"_{clean}"


def unique(name: str, taken: set[str]) -> str:
    """Return a name, with a number where it is taken, and take it."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found


def name_dimensions(graph: onnx.GraphProto) -> dict[str, str]:
    """Give every dimension of an input a name or an expression, in place; return the new name of each in the file.

    A text is an expression only if each of its symbols stands alone in some input, for only such an axis binds it; any
    other text is a name, as ``batch-size`` is. An unnamed dimension is called ``<input>_<axis>``.
    """
    texts = [dimension.dim_param for _, dimension in _dimensions(graph) if dimension.dim_param]
    alone = {one for one in texts if one.isidentifier() and one not in ("min", "max")}
    taken, names = set(alone), {one: one for one in alone}
    for name, (value, axis), dimension in _symbolic(graph):
        if not name:
            dimension.dim_param = unique(identifier(f"{value}_{axis}"), taken)
            continue
        if name not in names:
            extent = parsed(name)
            names[name] = (
                name if extent is not None and _is_over(names_in([extent]), alone) else unique(identifier(name), taken)
            )
        dimension.dim_param = names[name]
    return names


def _is_over(symbols: set[str], alone: set[str]) -> bool:
    return bool(symbols) and symbols <= alone


def _dimensions(graph: onnx.GraphProto) -> Iterator[tuple[tuple[str, int], onnx.TensorShapeProto.Dimension]]:
    for value in graph.input:
        for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
            yield (value.name, axis), dimension


def _symbolic(graph: onnx.GraphProto) -> Iterator[tuple[str, tuple[str, int], onnx.TensorShapeProto.Dimension]]:
    for place, dimension in _dimensions(graph):
        if not dimension.HasField("dim_value"):
            yield dimension.dim_param, place, dimension


def check_given(dims: Dims, name: str, number: int, where: str) -> None:
    """Raise ModelError if a symbol has a number that contradicts what is given of it."""
    low, high = _bounds(dims.get(name, (0, None)))
    if number >= low and (high is None or number <= high):
        return
    if low == high:
        raise ModelError(f"dimension '{name}' is given two values, {low} (dims) and {number} ({where})", dimension=name)
    raise ModelError(
        f"dimension '{name}' is given {number} ({where}), outside of its range {Range(low, high)} (dims)",
        dimension=name,
    )


def _bounds(spec: DimensionSpec) -> tuple[int, int | None]:
    if isinstance(spec, str):
        return 0, None
    return (spec[0], spec[1]) if isinstance(spec, tuple | list) else (spec, spec)


def apply_dimensions(graph: onnx.GraphProto, dims: Dims, names: Mapping[str, str]) -> Ranges:
    """Give symbols of the inputs their numbers, and one name to those that are equal; return the ranges of all others.

    The graph is changed in place. ``names`` are those in the file, with what they are called now. Raises ModelError for
    a symbol that no input has, a negative number, an empty range, and a symbol that is to be itself.
    """
    known = sorted({one for _, _, dimension in _symbolic(graph) for one in names_in([parsed(dimension.dim_param)])})
    equal = _equal({one: other for one, other in dims.items() if isinstance(other, str)}, names, known)
    numbers: dict[str, Extent] = {}
    ranges: dict[Extent, Range] = {}
    for given, spec in dims.items():
        if isinstance(spec, str):
            continue
        name = names.get(given, given)
        extent = parsed(name)
        if name not in known and (not isinstance(extent, Operation) or not names_in([extent]) <= set(known)):
            raise _unknown(given, known)
        low, high = _bounds(spec)
        if low < 0 or (high is not None and high < low):
            raise ModelError(
                f"dimension '{given}' cannot be {low if low == high else Range(low, high)}; give a number of at "
                f"least 0, or the least and the greatest",
                dimension=given,
            )
        if isinstance(extent, Operation):
            ranges[extent] = Range(low, high)
        elif low == high:
            numbers[name] = low
        else:
            ranges[Symbol(name)] = Range(low, high)
    numbers = {**numbers, **{name: substituted(other, numbers) for name, other in equal.items()}}
    for text, _, dimension in _symbolic(graph):
        extent = parsed(text)
        if extent is not None and names_in([extent]) & numbers.keys():
            _put(dimension, text, numbers)
    return ranges


def _equal(specs: Mapping[str, str], names: Mapping[str, str], known: Sequence[str]) -> dict[str, Extent]:
    """Return, by symbol that is to be another, that other one: the last, where that is to be another in its turn."""
    one_by_one: dict[str, str] = {}
    for given, other in specs.items():
        for one in (given, other):
            if names.get(one, one) not in known:
                raise _unknown(one, known)
        one_by_one[names.get(given, given)] = names.get(other, other)
    found: dict[str, Extent] = {}
    for name in one_by_one:
        last, steps = name, 0
        while last in one_by_one and steps <= len(one_by_one):
            last, steps = one_by_one[last], steps + 1
        if last in one_by_one:
            raise ModelError(f"dimension '{name}' is said to be itself (dims); leave it out", dimension=name)
        found[name] = Symbol(last)
    return found


def _unknown(given: str, known: Sequence[str]) -> ModelError:
    near = difflib.get_close_matches(given, known, 1)
    hint = f"did you mean '{near[0]}'" if near else f"it has {', '.join(map(repr, known)) or 'none'}"
    return ModelError(f"the model has no dimension '{given}'; {hint}", dimension=given)


def _put(dimension: onnx.TensorShapeProto.Dimension, text: str, numbers: Mapping[str, Extent]) -> None:
    extent = parsed(text)
    assert extent is not None, text
    result = substituted(extent, dict(numbers))
    if isinstance(result, int):
        dimension.dim_value = result
    else:
        dimension.dim_param = shown(result)


def forget_stated(graph: onnx.GraphProto) -> dict[str, Sequence[int | str | None]]:
    """Return the shapes that a graph states of results; where inputs have symbols or there are branches, take them out.

    Exporters write shapes there that were true for the inputs that they traced with, and the branch that these took.
    What they state of constants stays: onnx (1.23) would take a Slice's axes without a shape for none.
    """
    is_symbolic = next(_symbolic(graph), None) is not None or any(node.op_type == "If" for node in graph.node)
    stated: dict[str, Sequence[int | str | None]] = {}
    constants = {tensor.name for tensor in graph.initializer}
    for value in (*graph.output, *(value for value in graph.value_info if value.name not in constants)):
        tensor = value.type.tensor_type
        if value.type.HasField("tensor_type") and tensor.HasField("shape"):
            names = [one.dim_param if not _MADE_UP.fullmatch(one.dim_param) else None for one in tensor.shape.dim]
            numbers = [one.dim_value if one.HasField("dim_value") else None for one in tensor.shape.dim]
            stated[value.name] = [
                name or None if number is None else number for number, name in zip(numbers, names, strict=True)
            ]
            if is_symbolic:
                tensor.ClearField("shape")
    return stated


def forget_names(model: ir.Model) -> None:
    """Take the names of dimensions from all values but the model's inputs: the file's, and those that onnx makes up."""
    for graph in all_graphs(model):
        inner = () if graph is model.graph else graph.inputs
        for value in (*inner, *(value for node in graph for value in node.outputs)):
            if value.shape is not None and not value.shape.is_static():
                value.shape = ir.Shape([one if isinstance(one, int) else None for one in value.shape])
