"""What a model's products cost in hardware: energy and area by number format, from a table that anybody may replace.

A product of weights and activations is computed by the multiplier of least energy that holds both formats. Its sums are
added by the adder of least energy that holds their type, where they have one of their own; otherwise in int32 or
float32, or in the product's own format where a table has no wider one. Weights are read once.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.core.operators.all import OPERATORS
from graft.errors import GraftError
from graft.quantization.sites import Product, product_of
from graft.runtime.foreign import kind_of

if TYPE_CHECKING:
    from graft.plugins.registry.manager import PluginManager

Figures = Mapping[str, tuple[float, float | None]]
"""Picojoules of an operation, and square micrometres of its unit, None where unknown, by format."""
Formats = tuple[str, str, str]
"""The formats of a product's weights, of its activations, and of its sums ("" where these have none of their own)."""
FLOATS = {
    "float32": (8, 23), "float16": (5, 10), "bfloat16": (8, 7), "float8e4m3fn": (4, 3), "float8e5m2": (5, 2),
    "float6e2m3": (2, 3), "float6e3m2": (3, 2), "float4e2m1": (2, 1),
}  # fmt: skip
"""Bits of the exponent and of the fraction."""


@dataclass(frozen=True, slots=True)
class CostTable:
    """Figures of a technology: of one multiplication and one addition by format, and picojoules to read a bit."""

    name: str
    source: str = ""
    multiply: Figures = field(default_factory=dict)
    add: Figures = field(default_factory=dict)
    read: float = 0.0


TABLES = {
    one.name: one
    for one in (
        CostTable(
            "45nm", "Horowitz, Computing's energy problem, ISSCC 2014; weights from DRAM",
            multiply={"int8": (0.2, 282), "int32": (3.1, None), "float16": (1.1, 1640), "float32": (3.7, 7700)},
            add={"int8": (0.03, 36), "int32": (0.1, None), "float16": (0.4, 1360), "float32": (0.9, 4184)},
            read=1300 / 64,
        ),
        CostTable(
            "7nm", "Jouppi et al., Ten lessons from three generations, ISCA 2021; weights from DRAM",
            multiply={"int8": (0.07, None), "int32": (1.48, None), "bfloat16": (0.21, None), "float16": (0.34, None),
                      "float32": (1.31, None)},
            add={"int8": (0.007, None), "int32": (0.03, None), "bfloat16": (0.11, None), "float16": (0.16, None),
                 "float32": (0.38, None)},
            read=1300 / 64,
        ),
    )
}  # fmt: skip
"""The tables that come with Graft."""


@dataclass(frozen=True, slots=True)
class HardwareCost:
    """Microjoules of one run of a model's products, and square micrometres of one unit of each kind that they need."""

    energy_uj: float | None
    area_um2: float | None


def table_of(given: str | os.PathLike[str] | CostTable, manager: PluginManager | None = None) -> CostTable:
    """Return a table by its name, Graft's or a plugin's (`graft_cost_tables`), or from a TOML file.

    A file whose ``base`` names a table changes that one. Raises GraftError for what is no table.
    """
    if isinstance(given, CostTable):
        return given
    known = {**TABLES, **(_of_plugins(manager) if manager is not None else {})}
    if str(given) in known:
        return known[str(given)]
    path = Path(given)
    if path.suffix != ".toml":
        near = difflib.get_close_matches(str(given), known, 1)
        hint = f"did you mean '{near[0]}'" if near else f"there are {', '.join(known)}"
        raise GraftError(f"no table of costs is called '{given}'; {hint}, or give a .toml file")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GraftError(f"table of costs '{path}' cannot be read: {error}", path=str(path)) from error
    base = content.pop("base", None)
    return _changed(CostTable(path.stem) if base is None else table_of(base, manager), content, str(path))


def _changed(table: CostTable, content: Mapping[str, Any], where: str) -> CostTable:
    names, new = [one.name for one in fields(CostTable)], dict[str, Any]()
    for name, value in content.items():
        if name not in names:
            raise GraftError(f"table of costs '{where}' has no field '{name}'; it may have {', '.join(names)}")
        if name in ("multiply", "add"):
            if not isinstance(value, Mapping):
                raise GraftError(f"table of costs '{where}': '{name}' is {kind_of(value)}; give figures by format")
            rows = {one: _figures(figures, f"{where}: '{name}' of {one}") for one, figures in value.items()}
            value = {**getattr(table, name), **rows}
        elif isinstance(value, str) != (name != "read"):
            raise GraftError(f"table of costs '{where}': '{name}' is {value!r}; give a text, of 'read' a number")
        new[name] = value
    return replace(table, **new)


def _figures(given: Any, where: str) -> tuple[float, float | None]:
    """Return picojoules and square micrometres of a number, or of a list of both."""
    numbers = given if isinstance(given, list) else [given]
    good = all(isinstance(one, int | float) and not isinstance(one, bool) and 0 <= one < 1e30 for one in numbers)
    if not good or not 1 <= len(numbers) <= 2:
        raise GraftError(f"table of costs '{where}' is {given!r}; give picojoules, or [picojoules, square micrometres]")
    return float(numbers[0]), float(numbers[1]) if len(numbers) == 2 else None


def _of_plugins(manager: PluginManager) -> dict[str, CostTable]:
    found = {}
    for plugin, tables in manager.call("graft_cost_tables"):
        for table in tables:
            if not isinstance(table, CostTable):
                raise GraftError(
                    f"plugin '{plugin}': graft_cost_tables gave {kind_of(table)}; give CostTable objects", plugin=plugin
                )
            found[table.name] = table
    return found


def cost_of(
    model: ir.Model, formats: Callable[[Product], Formats], weight_bytes: int, table: CostTable
) -> HardwareCost:
    """Return what the products of a float model cost, ``formats`` giving those of one.

    Raises GraftError where no multiplier of the table holds both operands, or no adder the sums.
    """
    energy, units = 8 * weight_bytes * table.read, dict[tuple[str, str], float | None]()
    for node in model.graph:
        product = product_of(node)
        operator = OPERATORS.get(node.op_type, node.domain)
        if product is None or operator is None or operator.cost is None:
            continue
        weight, activation, sums = formats(product)
        unit = cheapest(table, weight, activation)
        total = _adder(table, unit, sums)
        units["multiply", unit], units["add", total] = table.multiply[unit][1], table.add[total][1]
        energy += operator.cost(NodeView(node)).flops / 2 * (table.multiply[unit][0] + table.add[total][0])
    areas = [area for area in units.values() if area is not None]
    return HardwareCost(energy / 1e6, sum(areas) if len(areas) == len(units) else None)


def _adder(table: CostTable, unit: str, sums: str) -> str:
    """Return the format in which products of a multiplier are added, or sums of a type; raise GraftError for none."""
    if sums:
        able = [one for one in table.add if _holds(one, sums)]
        if not able:
            raise GraftError(
                f"table of costs '{table.name}' has no adder for {sums}; it has {', '.join(table.add)}: add one to the "
                "table"
            )
        return min(able, key=lambda one: table.add[one][0])
    wide = "int32" if _integer_bits(unit) else "float32" if unit in FLOATS else unit
    total = wide if wide in table.add else unit
    if total not in table.add:
        raise GraftError(f"table of costs '{table.name}' adds neither {wide} nor {unit}; add one to the table")
    return total


def cheapest(table: CostTable, weight: str, activation: str) -> str:
    """Return the format of the multiplier of least energy that holds both operands; of integers that of integers.

    Raises GraftError where the table has none.
    """
    integers = _integer_bits(weight) is not None and _integer_bits(activation) is not None
    units = [one for one in table.multiply if not integers or _integer_bits(one) is not None]
    able = [one for one in units if _holds(one, weight) and _holds(one, activation)]
    if not able:
        raise GraftError(
            f"table of costs '{table.name}' has no multiplier for {weight} by {activation}; it has "
            f"{', '.join(table.multiply)}: add one to the table"
        )
    return min(able, key=lambda one: table.multiply[one][0])


def _holds(unit: str, operand: str) -> bool:
    """Whether every number of a format is one of a unit's; that of unsigned integers is the signed one's."""
    if unit == operand:
        return True
    bits, wide = _integer_bits(operand), _integer_bits(unit)
    if wide is not None:
        return bits is not None and bits <= wide
    if unit not in FLOATS:
        return False
    exponent, fraction = FLOATS[unit]
    if bits is not None:
        return bits - 1 <= fraction + 1 and bits <= 2 ** (exponent - 1)
    return operand in FLOATS and FLOATS[operand][0] <= exponent and FLOATS[operand][1] <= fraction


def _integer_bits(format: str) -> int | None:
    digits = format.removeprefix("u").removeprefix("int")
    return int(digits) if digits.isdigit() and format.removeprefix("u").startswith("int") else None
