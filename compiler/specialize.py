"""Specialised programs: versions of a model for some values of its symbols, beside the general one.

Each version is the model compiled again with numbers, or narrower ranges, for the symbols. Its procedures, modules and
constants join the general program's, and the runtime takes the first version that the shapes of a call fit.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, TypeAlias

import onnx_ir as ir

from graft.compiler.compiled_model import CompiledModel
from graft.core.affine.expressions import ANY, Range, names_in
from graft.core.affine.text import parsed as parsed_extent
from graft.core.graph.dimensions import Dims, identifier, ranges_of
from graft.core.importer.load import load
from graft.core.importer.source import Source
from graft.core.shapes.unification import aliases_of
from graft.errors import GraftError, ModelError
from graft.runtime.devices import on_devices
from graft.runtime.extents import Symbol
from graft.runtime.procedure import Call, Procedure, ProgramDescription
from graft.runtime.program import Program

Specialize: TypeAlias = Mapping[str, Sequence["int | tuple[int, int | None]"]]
"""By symbol: the numbers, or ranges, that versions are compiled for."""
Load = Callable[[ProgramDescription], Program]
MOST_VARIANTS = 32
"""Each is compiled and kept whole, and compared with every call's shapes."""


# ---- What is asked for ----


def combinations(source: Source, loaded: ir.Model, specialize: Specialize) -> list[Dims]:
    """Return what to compile a model again for: the product of the values of all symbols, in the order given.

    ``loaded`` is what `graft.load` made of ``source`` with the user's dimensions and shapes. Raises ModelError for a
    symbol that it does not have, for values outside of declared ranges, for none, and for too many combinations.
    """
    known, ranges = _symbols(loaded), ranges_of(loaded)
    specs: dict[str, dict[str, int | tuple[int, int | None]]] = {}
    for given, values in specialize.items():
        name = known_name(aliases_of(loaded.metadata_props).get(given, given), known)
        if name not in known:
            raise _unknown(given, known, name in _symbols(load(source)))
        if not values:
            raise ModelError(
                f"specialize gives dimension '{given}' no value; give one, or leave it out", dimension=given
            )
        bounds = [_bounds(value) for value in values]
        for one in bounds:
            _check(given, one, ranges.get(Symbol(name), ANY))
        specs[name] = {_shown(one): one.low if one.low == one.high else (one.low, one.high) for one in bounds}
    count = math.prod(len(one) for one in specs.values())
    if count > MOST_VARIANTS:
        factors = " x ".join(str(len(one)) for one in specs.values())
        raise ModelError(
            f"specialize asks for {factors} = {count} versions of the model; at most {MOST_VARIANTS} are possible: "
            "give fewer values",
            versions=count,
        )
    return [dict(zip(specs, one, strict=True)) for one in product(*(one.values() for one in specs.values()))]


def known_name(given: str, known: Sequence[str]) -> str:
    """Return what a loaded model calls a symbol that a user names as its file does."""
    return given if given in known else identifier(given)


def narrowed(dims: Dims | None, chosen: Dims) -> Dims:
    """Return the user's dimensions with those that a version has its own values of."""
    return {
        **{name: spec for name, spec in (dims or {}).items() if known_name(name, tuple(chosen)) not in chosen},
        **chosen,
    }


def label_of(dims: Dims) -> str:
    """Return what a version is for, as text: ``batch=1, seq=1..64``."""
    return ", ".join(
        f"{name}={spec if isinstance(spec, str) else _shown(_bounds(spec))}" for name, spec in dims.items()
    )


def dims_of(label: str) -> Dims:
    """Return what a version is for, of the text that `label_of` makes of it."""
    found: dict[str, int | tuple[int, int | None] | str] = {}
    for one in label.split(", "):
        name, _, spec = one.partition("=")
        low, dots, high = spec.partition("..")
        found[name] = spec if spec.isidentifier() else (int(low), int(high) if high else None) if dots else int(low)
    return found


def _symbols(model: ir.Model) -> list[str]:
    """Return the names of the symbols of a model's inputs."""
    dimensions = [one for value in model.graph.inputs for one in value.shape or () if not isinstance(one, int)]
    return sorted(names_in([parsed_extent(str(one.value)) for one in dimensions if one.value is not None]))


def _bounds(spec: int | tuple[int, int | None]) -> Range:
    low, high = (spec[0], spec[1]) if isinstance(spec, tuple | list) else (spec, spec)
    return Range(int(low), None if high is None else int(high))


def _shown(one: Range) -> str:
    return str(one.low) if one.low == one.high else str(one)


def _unknown(name: str, known: Sequence[str], is_fixed: bool) -> ModelError:
    if is_fixed:
        return ModelError(
            f"dimension '{name}' is a number already (dims or shapes), which leaves nothing to specialize",
            dimension=name,
        )
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean '{near[0]}'" if near else f"it has {', '.join(map(repr, known)) or 'none'}"
    return ModelError(f"the model has no dimension '{name}' to specialize; {hint}", dimension=name)


def _check(name: str, spec: Range, allowed: Range) -> None:
    if spec.high is not None and spec.high < spec.low:
        raise ModelError(f"dimension '{name}' is given {spec} (specialize), which holds no number", dimension=name)
    is_open = spec.high is None
    if spec.low < allowed.low or (allowed.high is not None and (is_open or spec.high > allowed.high)):  # type: ignore[operator]
        raise ModelError(
            f"dimension '{name}' is given {_shown(spec)} (specialize), outside of its range {allowed}", dimension=name
        )


# ---- What comes of it ----


@dataclass(frozen=True, slots=True)
class SpecializedModel(CompiledModel):
    """The outcome of several compilations: that of the general one, with the program that all of them make."""

    general: CompiledModel | None = None
    variants: Mapping[str, CompiledModel] = field(default_factory=dict)
    """The versions by `label_of` what they are for, in the order in which the runtime tries them."""

    def load(self, load: Load) -> Program:
        """Return what ``load`` makes of the program, regions that cannot be loaded here going to the next backend."""
        assert self.general is not None
        try:
            return load(self.description)
        except GraftError:
            general = self.general.loadable(load)
            variants = {label: one.loadable(load) for label, one in self.variants.items()}
            if general is self.general and all(variants[label] is one for label, one in self.variants.items()):
                raise
        return specialized(general, variants).load(load)


def specialized(general: CompiledModel, variants: Mapping[str, CompiledModel]) -> CompiledModel:
    """Return the general model with versions of it, by label."""
    if not variants:
        return general
    more = {f"specialize:{label}": one.total_seconds for label, one in variants.items()}
    reports = [one.tuning for one in (general, *variants.values()) if one.tuning is not None]
    return SpecializedModel(
        joined(general.description, {label: one.description for label, one in variants.items()}),
        general.plan, general.partitioned, general.normalized, general.regions, general.modules, general.passed,
        {**general.seconds, **more}, sum(reports[1:], reports[0]) if reports else None, general.reuse,
        general.memory, general.devices,
        general.without, general.device_faults, general, variants,
    )  # fmt: skip


def joined(general: ProgramDescription, variants: Mapping[str, ProgramDescription]) -> ProgramDescription:
    """Return one program of a general one and versions of it by label; equal constants are there once.

    What tools ask of versions stands in the metadata, ``variants``: label, numbers of the first procedure and module,
    plan and weights; the partitioned models are files ``variants/<number>.onnx``.
    """
    procedures, modules = list(general.procedures), list(general.modules)
    devices = list(dict.fromkeys(device for one in (general, *variants.values()) for device in one.devices))
    procedures = [on_devices(procedure, general.devices, devices) for procedure in procedures]
    constants, files = dict(general.constants), dict(general.files)
    facts: list[dict[str, Any]] = []
    for number, (label, one) in enumerate(variants.items()):
        place = {"procedure": len(procedures), "module": len(modules)}
        metadata = {key: one.metadata[key] for key in ("plan", "summary", "weights") if key in one.metadata}
        facts.append({"label": label, **place, **metadata})
        own = [on_devices(procedure, one.devices, devices) for procedure in one.procedures]
        procedures += _renumbered(own, label, len(procedures), len(modules))
        modules += one.modules
        constants = {**one.constants, **constants}
        files |= {f"variants/{number}.onnx": data for name, data in one.files.items() if name == "model.onnx"}
    return replace(
        general, procedures=tuple(procedures), modules=tuple(modules), constants=constants, files=files,
        metadata={**general.metadata, "variants": facts}, variants=tuple(row["procedure"] for row in facts),
        devices=tuple(devices),
    )  # fmt: skip


def _renumbered(procedures: Sequence[Procedure], label: str, procedure: int, module: int) -> list[Procedure]:
    """Return a program's procedures as part of another, behind as many procedures and modules."""

    def moved(call: Call) -> Call:
        bodies = tuple(body + procedure for body in call.bodies)
        return replace(call, bodies=bodies, module=call.module + module if call.kind == "call" else call.module)

    rows = [replace(one, calls=tuple(map(moved, one.calls))) for one in procedures]
    return [replace(one, name=f"{one.name}[{label}]") for one in rows]
