"""Recipes: how a model is quantised, as data. A recipe is a name, a TOML file or a `Recipe`."""

from __future__ import annotations

import difflib
import json
import os
import tomllib
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar

from graft.core.operators.all import OPERATORS
from graft.core.passes.normalize import PASSES
from graft.core.rewriting.node_bodies import is_function
from graft.datatypes.prepare import EACH, QUIRE
from graft.datatypes.scaled.scaled_type import RULES, SCALED_TYPES, ScaledType, scaled_name, scaled_type
from graft.datatypes.study import accumulator_named, short_names, type_named
from graft.errors import DatatypeError, RecipeError
from graft.quantization.grids import GRIDS
from graft.runtime.arguments import Kind, instance, takes
from graft.runtime.foreign import shown

Record = TypeVar("Record")
Files = tuple[Path, ...]
"""Files of recipes, of which each names the following one."""
CHOICES: Mapping[str, Sequence[str]] = {
    "type": tuple(GRIDS),
    "granularity": ("tensor", "channel", "group"),
    "calibration": ("minmax", "percentile", "mse", "entropy"),
    "rounding": ("nearest", "zero", "stochastic", "gptq"),
    "scale": ("float32", "power-of-two"),
}
"""What the fields of a scaling may say that hold a word."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """How a kind of tensors (weights, activations) is scaled and rounded.

    ``group`` is the number of weights along the summed axis that share a scale; ``percentile`` the share of elements,
    in percent, that are not clipped. ``rounding`` is of weights (that of activations is ONNX's, to nearest even);
    ``seed`` is that of stochastic rounding. ``scale`` says which numbers a scale may be.
    """

    type: str = "int8"
    granularity: str = "tensor"
    group: int = 32
    symmetric: bool = True
    calibration: str = "minmax"
    percentile: float = 99.999
    rounding: str = "nearest"
    seed: int = 0
    scale: str = "float32"


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is quantised and how; None for weights or activations that stay as they are.

    ``caches`` are the keys and values that a decoder takes and gives. ``nodes`` are patterns of names or operators of
    the nodes that are quantised (all that can be if there are none),
    ``keep`` of those that are not. With ``results`` what a quantised node makes is quantised, too, where no quantised
    node reads it, and so is a bias that is added behind a product: such a node computes on codes alone. ``shared`` are
    patterns of nodes whose operands and results have one scale. ``decompose`` are operators that are written as others
    before anything is quantised (LayerNormalization; Div by what is computed as a product by its reciprocal), and
    ``operators`` those that are quantised beside the usual ones: for hardware that has integers alone. ``without`` are
    standard passes that do not simplify the model before: what they write anew is to be quantised as it is.
    ``equalize`` moves factors between layers until the channels of their weights have like ranges; ``smooth`` (0 to 1,
    0 for not at all) moves that power of the range of activations into the weights; ``awq`` moves the power of the mean
    size of activations that suits the rounded weights best; ``correct_bias`` takes the mean error of rounded weights
    out of biases. ``layers`` are patterns of nodes, each with the recipe whose weights, activations and sums are
    theirs; the last that fits holds. ``accumulators`` is the type that products sum in, as `graft.datatypes.convert`
    names them (none: what each operator sums in by itself). ``blocks`` is a scaled type: products multiply its blocks,
    which ONNX has no form for, and weights and activations are None; ``layers`` may have others.
    """

    name: str = "custom"
    weights: Scaling | None = field(default_factory=Scaling)
    activations: Scaling | None = None
    caches: Scaling | None = None
    nodes: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    results: bool = False
    shared: tuple[str, ...] = ()
    decompose: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    equalize: bool = False
    smooth: float = 0.0
    awq: bool = False
    correct_bias: bool = False
    accumulators: str = ""
    layers: tuple[tuple[str, Recipe], ...] = ()
    blocks: str | ScaledType = ""

    @property
    def scaled_type(self) -> ScaledType:
        """The type of ``blocks``."""
        return scaled_type(self.blocks) if isinstance(self.blocks, str) else self.blocks

    @property
    def needs_data(self) -> bool:
        """Whether anything in it is measured on inputs."""
        scalings = [(one.weights, one.activations) for one in (self, *(one for _, one in self.layers))]
        measured = any(
            (weights is not None and weights.rounding == "gptq") or activations for weights, activations in scalings
        )
        return (
            measured
            or self.caches is not None
            or self.smooth > 0
            or self.correct_bias
            or (self.awq and self.weights is not None)
        )

    def to_toml(self) -> str:
        """Return the recipe as a file has it."""
        given = {name: value for name, value in _values(self).items() if name not in (*_TABLES, "layers")}
        tables = {name: getattr(self, name) for name in _TABLES}
        given |= {name: None for name, table in tables.items() if table is None}
        tables |= {"layers": {json.dumps(pattern): _of_layer(one) for pattern, one in self.layers} or None}
        return _lines(given) + "".join(
            f"\n[{name}]\n{_lines(table if isinstance(table, dict) else _values(table))}"
            for name, table in tables.items()
            if table is not None
        )


_OF_LAYER = ("weights", "activations", "accumulators")
_TABLES = ("weights", "activations", "caches")


def _of_layer(recipe: Recipe) -> object:
    """Return what a file says of a layer: the name of its recipe, or what it has."""
    if recipe == (FLOATS if recipe.name == FLOATS.name else NAMED.get(recipe.name)):
        return recipe.name
    if recipe.blocks:
        alone = recipe.name if recipe == Recipe(recipe.name, None, blocks=recipe.name) else None
        return alone or {name: getattr(recipe, name) for name in ("name", "blocks", "accumulators")}
    return {name: getattr(recipe, name) for name in ("name", *_OF_LAYER)}


def _lines(entries: Mapping[str, Any]) -> str:
    return "".join(f"{name} = {_literal(value)}\n" for name, value in entries.items())


FLOATS = Recipe("float32", None)
"""The recipe of a layer that stays as it is."""
_ACTIVATIONS = Scaling(symmetric=False, calibration="mse")
_CHANNELS = Scaling(granularity="channel")
_GROUPS = Scaling(type="int4", granularity="group", calibration="mse")
_MX = replace(_GROUPS, scale="power-of-two", rounding="gptq")
_FLOAT8 = Scaling(type="float8e4m3fn")
NAMED = {
    row.name: row
    for row in (
        Recipe("int8", Scaling(), _ACTIVATIONS, correct_bias=True),
        Recipe("int8-channel", _CHANNELS, _ACTIVATIONS, correct_bias=True),
        Recipe("int8-weights", _CHANNELS),
        Recipe("int3-weights", replace(_MX, type="int3"), correct_bias=True),
        Recipe("int4-weights", replace(_GROUPS, rounding="gptq"), correct_bias=True),
        Recipe("mxfp4-weights", replace(_MX, type="float4e2m1"), correct_bias=True),
        Recipe("mxfp6-weights", replace(_MX, type="float6e2m3"), correct_bias=True),
        Recipe("float8", replace(_FLOAT8, granularity="channel", calibration="mse"), _FLOAT8, correct_bias=True),
    )
}
"""The recipes that have a name."""

RECIPE = instance(
    str, os.PathLike, Recipe, Mapping, wanted="the name of a recipe, the path of a TOML file, a mapping or a Recipe"
)
"""What a recipe may be given as."""
RECIPES = Kind("a list of recipes", lambda value: isinstance(value, list | tuple) and all(map(RECIPE.fits, value)))


@takes(given=RECIPE)
def recipe_of(given: str | os.PathLike[str] | Recipe | Mapping[str, Any]) -> Recipe:
    """Return a recipe by its name, from a TOML file, or from a mapping as such a file has it.

    A file or mapping whose ``base`` names a recipe changes that one. Raises RecipeError for what is no recipe, and for
    files that are of themselves.
    """
    return _recipe_of(given, ())


def _recipe_of(given: Any, files: Files) -> Recipe:
    if isinstance(given, Recipe):
        return checked(given)
    if isinstance(given, Mapping):
        return changed(given, files)
    if str(given) in NAMED:
        return NAMED[str(given)]
    path = Path(given)
    kind, dash, rule = str(given).partition("-")
    if kind in SCALED_TYPES and rule in (RULES if dash else ("",)):
        return in_blocks(str(given))
    if path.suffix != ".toml":
        near = _near(str(given), [*NAMED, *SCALED_TYPES])
        raise RecipeError(f"no recipe is called '{given}'; {near}, or give a .toml file")
    if path.resolve() in files:
        chain = " -> ".join(one.name for one in (*files[files.index(path.resolve()) :], path))
        raise RecipeError(f"recipe '{path}' is made of itself: {chain}; name another base or layer", path=str(path))
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecipeError(f"recipe '{path}' cannot be read: {error}", path=str(path)) from error
    return changed({"name": path.stem, **content}, (*files, path.resolve()))


def in_blocks(type: str, accumulators: str = "") -> Recipe:
    """Return the recipe of products in blocks of a scaled type, by its name, which are added in a type."""
    return checked(Recipe(type, None, blocks=type, accumulators=accumulators))


def changed(content: Mapping[str, Any], files: Files = ()) -> Recipe:
    """Return the recipe that ``content["base"]`` names (the one of no name without it), its other entries changed.

    ``files`` are those that it is read for.
    """
    rest = dict(content)
    base = rest.pop("base", None)
    start = Recipe(weights=None if rest.get("blocks") else Scaling()) if base is None else _recipe_of(base, files)
    return checked(_updated(start, rest, "recipe", files))


def _updated(record: Record, content: Mapping[str, Any], where: str, files: Files = ()) -> Record:
    """Return a record with fields set from a mapping; a table in it changes the record that stands there."""
    kinds = typing.get_type_hints(type(record))
    new: dict[str, Any] = {}
    for name, value in content.items():
        if name not in kinds:
            raise RecipeError(f"{where} has no field '{name}'; {_near(name, kinds)}", field=name)
        if name == "layers" and isinstance(value, Mapping):
            own = tuple(
                (pattern, FLOATS if one == FLOATS.name else _recipe_of(one, files)) for pattern, one in value.items()
            )
            value = (*getattr(record, name), *own)
        elif name == "blocks" and isinstance(value, Mapping):
            value = _blocks_of(getattr(record, name), value, where)
        elif isinstance(value, Mapping):
            inner = getattr(record, name)
            if Scaling not in typing.get_args(kinds[name]):
                raise RecipeError(f"{where}: '{name}' is a table; give {_kind(kinds[name])}", field=name)
            value = _updated(Scaling() if inner is None else inner, value, f"{where}: table '{name}'")
        elif value == "float32" and Scaling in typing.get_args(kinds[name]):
            value = None
        new[name] = tuple(value) if isinstance(value, list) else value
    return replace(record, **new)  # type: ignore[type-var]


def _blocks_of(start: str | ScaledType, content: Mapping[str, Any], where: str) -> ScaledType:
    """Return the scaled type that a table says, which changes the one that stands there."""
    known = {"element": str, "scale": str, "block": int, "rule": str, "tensor_scale": bool}
    unknown = next((name for name in content if name not in known), None)
    if unknown is not None:
        raise RecipeError(f"{where}: table 'blocks' has no field '{unknown}'; {_near(unknown, known)}", field=unknown)
    if not start and "element" not in content:
        raise RecipeError(f"{where}: table 'blocks' has no element; give a type, such as float4e2m1", field="blocks")
    for name, one in content.items():
        if type(one) is not known[name]:
            raise RecipeError(f"{where}: table 'blocks': {name} is {shown(one)}; give {_kind(known[name])}", field=name)
    try:
        given = {**content, **{name: type_named(content[name]) for name in ("element", "scale") if name in content}}
        if not start:
            return ScaledType(**given)
        return replace(scaled_type(start) if isinstance(start, str) else start, **given)
    except DatatypeError as error:
        raise RecipeError(f"{where}: table 'blocks': {error.message}", field="blocks") from error


def checked(recipe: Recipe) -> Recipe:
    """Return a recipe whose fields hold what they may hold; raise RecipeError otherwise."""
    _check(recipe, "recipe")
    for name in _TABLES:
        scaling = getattr(recipe, name)
        if scaling is not None:
            _check(scaling, f"recipe: table '{name}'")
    for pattern, one in recipe.layers:
        if one.layers:
            raise RecipeError(f"recipe: the layers '{pattern}' have layers of their own", field="layers")
        checked(one)
    if recipe.blocks:
        _check_blocks(recipe)
    _check_accumulators(recipe.accumulators)
    for field_name in ("decompose", "operators"):
        for name in getattr(recipe, field_name):
            _check_operator(name, field_name)
    for name in recipe.without:
        if name not in PASSES:
            raise RecipeError(f"recipe: without has '{name}', which is no pass; {_near(name, PASSES)}", field="without")
    if not 0 <= recipe.smooth <= 1:
        raise RecipeError(f"recipe: smooth is {recipe.smooth}; give a number from 0 to 1", field="smooth")
    for name in ("activations", "caches"):
        scaling = getattr(recipe, name)
        if scaling is not None:
            _check_codes(scaling, name)
    return recipe


def _check_blocks(recipe: Recipe) -> None:
    """Raise RecipeError for what is no scaled type, and for fields that blocks have no use for."""
    try:
        blocks = scaled_name(recipe.scaled_type)
    except DatatypeError as error:
        raise RecipeError(f"recipe: blocks are of a scaled type: {error.message}", field="blocks") from error
    names = ("name", "nodes", "keep", "decompose", "without", "equalize", "smooth", "blocks", "accumulators", "layers")
    # Layers of other recipes have a use for what these have, but for weights and activations of their own.
    own = (one.name for one in fields(recipe) if one.name not in _TABLES) if recipe.layers else names
    used = {name: getattr(recipe, name) for name in own}
    for name, value in _values(Recipe(weights=None, **used)).items():
        if getattr(recipe, name) != value:
            raise RecipeError(
                f"recipe: products in blocks have no use for {name}; leave it out beside blocks of {blocks}",
                field=name,
            )


def _check_accumulators(name: str) -> None:
    """Raise RecipeError for what is no type of sums."""
    if name in (EACH, QUIRE):
        raise RecipeError(f"recipe: accumulators are of a type, such as float16 or int32, not '{name}'")
    try:
        if name:
            accumulator_named(name)
    except DatatypeError as error:
        raise RecipeError(f"recipe: accumulators: {error.message}", field="accumulators") from error


def _check_operator(name: str, field_name: str) -> None:
    """Raise RecipeError for what is no operator, or cannot be decomposed and is to be."""
    operator = OPERATORS.get(name)
    if operator is None:
        near = OPERATORS.nearest(name)
        hint = f"did you mean '{near}'" if near else "give names of ONNX's operators"
        raise RecipeError(f"recipe: {field_name} has '{name}', which is no operator; {hint}", field=field_name)
    if field_name == "decompose" and not is_function(operator):
        raise RecipeError(f"recipe: {name} cannot be decomposed: it is no function of others", field=field_name)


def _check_codes(scaling: Scaling, name: str) -> None:
    """Raise RecipeError for a scaling that QuantizeLinear cannot do at run time."""
    if scaling.granularity != "tensor":
        raise RecipeError(f"recipe: {name} are of granularity '{scaling.granularity}'; ONNX scales them as a 'tensor'")
    if GRIDS[scaling.type].floats is not None:
        raise RecipeError(f"recipe: {name} are of '{scaling.type}', which ONNX has no type for; weights may be")
    if scaling.rounding != "nearest":
        raise RecipeError(f"recipe: {name} are rounded '{scaling.rounding}'; ONNX rounds them to 'nearest'")


def _check(record: Recipe | Scaling, where: str) -> None:
    kinds = typing.get_type_hints(type(record))
    for name, value in _values(record).items():
        kind, choices = kinds[name], CHOICES.get(name)
        allowed = typing.get_args(kind) if isinstance(kind, UnionType) else (typing.get_origin(kind) or kind,)
        fits = isinstance(value, (*allowed, int) if kind is float else allowed)
        if not fits or (isinstance(value, bool) and kind is not bool):
            raise RecipeError(f"{where}: {name} is {shown(value)}; give {_kind(kind)}", field=name)
        if name == "type" and value not in GRIDS and value in short_names():
            raise RecipeError(
                f"{where}: type is '{value}', which QDQ has not; give it as blocks = {{element = '{value}'}}",
                field=name,
            )
        if choices is not None and value not in choices:
            raise RecipeError(f"{where}: {name} is {shown(value)}; {_near(value, choices)}", field=name)
    if isinstance(record, Scaling):
        if record.group < 1:
            raise RecipeError(f"{where}: group is {record.group}; give at least 1", field="group")
        if not 0 < record.percentile <= 100:
            raise RecipeError(f"{where}: percentile is {record.percentile}; give one above 0, up to 100")


def _values(record: Any) -> dict[str, Any]:
    return {one.name: getattr(record, one.name) for one in fields(record)}


def _kind(kind: object) -> str:
    names = {str: "a text", int: "a whole number", bool: "true or false", float: "a number", tuple[str, ...]: "texts",
             tuple[tuple[str, Recipe], ...]: "a table of recipes by pattern",
             str | ScaledType: "the name of a scaled type, or a table"}  # fmt: skip
    return names.get(kind, "a table, or 'float32'")  # type: ignore[call-overload, no-any-return]


def _literal(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | Scaling | ScaledType):
        entries = value if isinstance(value, dict) else _values(value)
        return f"{{{', '.join(f'{name} = {_literal(one)}' for name, one in entries.items())}}}"
    return json.dumps("float32" if value is None else value, ensure_ascii=False)


def _near(name: object, known: Sequence[str] | Mapping[str, object]) -> str:
    near = difflib.get_close_matches(str(name), known, 1)
    return f"did you mean '{near[0]}'" if near else f"there are {', '.join(known)}"
