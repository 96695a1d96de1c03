"""What a number format does to a model: errors per layer against float64, accuracy, time.

A study runs three forms of one model: in float64, in the format, and in the format with every layer's result as a
further output. This module makes the forms and measures; `graft.sweep` compiles and runs them.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from graft.core.graph.view import ValueView
from graft.core.types import CUSTOM_DOMAIN, is_custom
from graft.datatypes.native_float import ORDERED
from graft.datatypes.prepare import EACH, QUIRE
from graft.datatypes.registry import DatatypeRegistry
from graft.datatypes.shipped import DATATYPES
from graft.errors import DatatypeError

ALIASES = {"float8e4m3": "float8e4m3fn"}


# ---- Names ----


def short_names(registry: DatatypeRegistry = DATATYPES) -> dict[str, str]:
    """Return the types of the registry by short name: ``posit16`` is ``custom[posit]16``."""
    names = {}
    for row in registry:
        for width in row.widths:
            alone = len(row.widths) == 1 and row.name.startswith(f"float{width}")
            separator = "_" if row.name[-1].isdigit() else ""
            names[row.name if alone else f"{row.name}{separator}{width}"] = f"custom[{row.name}]{width}"
    return names


def type_named(name: str, registry: DatatypeRegistry = DATATYPES) -> str:
    """Return the type of a short name or of ``custom[name]bits``; raise DatatypeError for an unknown one."""
    if is_custom(name):
        registry.format(name)
        return name
    names = short_names(registry)
    found = names.get(ALIASES.get(name, name))
    if found is None:
        near = difflib.get_close_matches(name, names, 1)
        hint = f"did you mean '{near[0]}'" if near else f"there are {', '.join(names)}"
        raise DatatypeError(f"no datatype is called '{name}'; {hint}; or write custom[name]bits", datatype=name)
    return found


def accumulator_named(name: str, registry: DatatypeRegistry = DATATYPES) -> str:
    """Return how sums are rounded by a name: each operation, a quire, in a plain float, or in a type as `type_named`.

    Raises DatatypeError for an unknown name.
    """
    plain = (EACH, QUIRE, *ORDERED)
    if name in plain:
        return name
    try:
        return type_named(name, registry)
    except DatatypeError as error:
        near = difflib.get_close_matches(name, (*plain, *short_names(registry)), 1)
        hint = f"did you mean '{near[0]}'" if near else f"there are {', '.join(plain)} and all datatypes"
        raise DatatypeError(
            f"sums are rounded in no way called '{name}'; {hint}; or write custom[name]bits", datatype=name
        ) from error


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """A type of the registry, for lists; the numbers are None if it has only registered lowerings."""

    name: str
    type: str
    largest: float | None
    smallest: float | None
    epsilon: float | None
    """The distance from one to the next number."""
    owner: str


def listed(registry: DatatypeRegistry = DATATYPES) -> list[TypeFacts]:
    """Return every type that the registry lists, by short name."""
    rows = []
    for name, dtype in short_names(registry).items():
        format, owner = registry.format(dtype), registry.of(dtype).owner
        if format is None:
            rows.append(TypeFacts(name, dtype, None, None, None, owner))
            continue
        one = format.to_bits(np.ones(1))
        following = format.to_numbers(one + one.dtype.type(1))
        rows.append(TypeFacts(name, dtype, format.largest, format.smallest, float(following[0]) - 1, owner))
    names = set(short_names(registry).values())
    rows += [
        TypeFacts(row.name, f"custom[{row.name}]", None, None, None, row.owner)
        for row in registry
        if not any(f"[{row.name}]" in name for name in names)
    ]
    return rows


# ---- Forms of a model ----


def in_float64(model: ir.Model) -> ir.Model:
    """Return a normalised model with float64 in place of every other float, inputs and outputs included."""
    wide = model.clone()
    graph = wide.graph
    for value in graph.initializers.values():
        if _is_float(value) and value.const_value is not None:
            array = value.const_value.numpy().astype(np.float64)
            value.const_value = ir.tensor(array, name=value.name)
            value.type = ir.TensorType(ir.DataType.DOUBLE)
    for value in [*graph.inputs, *(output for node in graph for output in node.outputs)]:
        if _is_float(value):
            value.type = ir.TensorType(ir.DataType.DOUBLE)
    for node in graph:
        for name in ("to", "dtype", "stash_type"):
            attribute = node.attributes.get(name)
            if attribute is not None and attribute.value in (1, 10, 16):
                node.attributes[name] = ir.AttrInt64(name, ir.DataType.DOUBLE.value)
    return wide


def _is_float(value: ir.Value) -> bool:
    return ValueView(value).dtype in ("float16", "bfloat16", "float32")


def layers_of(converted: ir.Model) -> list[tuple[str, str]]:
    """Return name and operator of every node that computes in a custom type, in order; casts are none."""
    return [(node.name or "", node.op_type) for node in converted.graph if _is_layer(node)]


def _is_layer(node: ir.Node) -> bool:
    made = ValueView(node.outputs[0]).dtype
    return node.domain == CUSTOM_DOMAIN and node.op_type != "Cast" and is_custom(made)


def with_layers(model: ir.Model, layers: Sequence[str]) -> tuple[ir.Model, dict[str, str]]:
    """Return the model with the first outputs of the named nodes as float64 outputs, and their names by node."""
    observed = model.clone()
    graph = observed.graph
    nodes = {node.name: node for node in graph}
    names: dict[str, str] = {}
    for number, layer in enumerate(layers):
        if layer not in nodes:
            continue
        value = nodes[layer].outputs[0]
        domain = CUSTOM_DOMAIN if is_custom(ValueView(value).dtype) else ""
        output = ir.Value(name=f"layer_{number}", shape=value.shape, type=ir.TensorType(ir.DataType.DOUBLE))
        to = ir.AttrInt64("to", ir.DataType.DOUBLE.value)
        graph.append(ir.Node(domain, "Cast", [value], [to], outputs=[output], name=f"observe_{number}"))
        graph.outputs.append(output)
        names[layer] = f"layer_{number}"
    return observed, names


# ---- Measures ----


@dataclass(slots=True)
class Errors:
    """Errors of a layer against float64, summed over all inputs."""

    max_abs: float = 0.0
    max_rel: float = 0.0
    signal: float = 0.0
    noise: float = 0.0
    saturated: int = 0
    underflowed: int = 0
    invalid: int = 0
    elements: int = 0

    def add(self, actual: np.ndarray, exact: np.ndarray, largest: float, smallest: float) -> None:
        """Take in an array of results and what float64 gives.

        A result is saturated if it is the largest number (or infinite) and float64's is larger; it has underflowed if
        float64's is not zero and below the smallest number; it is invalid if it is NaN and float64's is not, or if
        one of them is infinite, they differ, and it is not saturated.
        """
        exact = np.asarray(exact, np.float64)
        both = np.isfinite(actual) & np.isfinite(exact)
        size = np.abs(exact)
        saturated = (np.abs(actual) >= largest) & (size > largest)
        invalid = ~both & ~np.isnan(exact) & (actual != exact) & ~saturated
        error = np.abs(np.subtract(actual, exact, where=both, out=np.zeros(exact.shape)))
        self.max_abs = max(self.max_abs, float(np.max(error, initial=0.0)))
        relative = error[size > 0] / size[size > 0]
        self.max_rel = max(self.max_rel, float(np.max(relative, initial=0.0)))
        self.signal += float(np.sum(np.where(both, exact, 0.0) ** 2))
        self.noise += float(np.sum(error**2))
        self.saturated += int(np.count_nonzero(saturated))
        self.underflowed += int(np.count_nonzero((size > 0) & (size < smallest)))
        self.invalid += int(np.count_nonzero(invalid))
        self.elements += actual.size

    @property
    def snr_db(self) -> float:
        """The signal-to-noise ratio in decibels: infinite without any error, minus infinite with invalid results."""
        if self.invalid:
            return -math.inf
        if self.noise == 0:
            return math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal > 0 else -math.inf


@dataclass(frozen=True, slots=True)
class LayerRow:
    """The errors of one layer's results."""

    layer: str
    operator: str
    max_abs: float
    max_rel: float
    snr_db: float
    saturated: int
    underflowed: int
    invalid: int
    elements: int

    @classmethod
    def of(cls, layer: str, operator: str, errors: Errors) -> LayerRow:
        """Return the row of a layer."""
        return cls(
            layer, operator, errors.max_abs, errors.max_rel, errors.snr_db, errors.saturated, errors.underflowed,
            errors.invalid, errors.elements,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TypeRow:
    """What one type, or one recipe, does to the model.

    ``accuracy`` is the share of labels that the largest output names, None without labels; ``agreement`` the share of
    inputs for which it is float64's. ``milliseconds`` is the best time of one call, ``ratio`` that over float32's.
    Bits are those of a product's weight and of an activation that a product reads, on average, scales counted.
    Microjoules of a run and square micrometres are those of the products, by a table of costs; None without one.
    """

    name: str
    type: str
    accuracy: float | None
    agreement: float
    output: LayerRow
    milliseconds: float
    ratio: float
    weight_bits: float = 32.0
    activation_bits: float = 32.0
    weight_bytes: int = 0
    energy_uj: float | None = None
    area_um2: float | None = None
    layers: tuple[LayerRow, ...] = field(default=())

    @property
    def saturated(self) -> int:
        """Saturated results in all layers."""
        return sum(row.saturated for row in self.layers)

    @property
    def underflowed(self) -> int:
        """Underflowed results in all layers."""
        return sum(row.underflowed for row in self.layers)


@dataclass(frozen=True, slots=True)
class SweepReport:
    """The outcome of a sweep; the first row is float32."""

    model: str
    inputs: int
    labelled: bool
    accumulate: str
    rows: tuple[TypeRow, ...]

    def front(self, cost: Callable[[TypeRow], float]) -> tuple[TypeRow, ...]:
        """Return the rows beside which none costs less and is as good, by accuracy if there are labels, then by signal.

        They come by cost.
        """
        best: tuple[float, float] | None = None
        found = []
        for row in sorted(self.rows, key=lambda row: (cost(row), *(-worth for worth in self.worth(row)))):
            if best is None or self.worth(row) > best:
                best = self.worth(row)
                found.append(row)
        return tuple(found)

    def worth(self, row: TypeRow) -> tuple[float, float]:
        """Return what rows are compared by, the larger the better."""
        return (row.accuracy or 0.0, row.output.snr_db)

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return asdict(self)
