"""The declaration of a backend: the attributes of its class, each read once, checked, and kept as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from graft.core.device_memory import DeviceMemory
from graft.errors import PluginError
from graft.plugins.backend import API_LEVEL, Backend, ConstantOwnership, ShapeSupport
from graft.plugins.options.declared import Option
from graft.plugins.supports import Rule
from graft.runtime.foreign import kind_of, shown
from graft.runtime.system.version import DISTRIBUTION

SUPPORTED_API_LEVELS = range(1, API_LEVEL + 1)
OWNERSHIPS: tuple[ConstantOwnership, ...] = get_args(ConstantOwnership)
SHAPES: tuple[ShapeSupport, ...] = get_args(ShapeSupport)
Word = TypeVar("Word", bound=str)


@dataclass(frozen=True, slots=True)
class BackendDeclaration:
    """The attributes of a backend that the core relies on."""

    name: str
    priority: int
    by_default: bool
    fallback: bool
    fuses: bool
    packed: bool
    quantized: bool
    one_sample: bool
    simulates: bool
    unwanted_passes: frozenset[str]
    loses_nan: frozenset[str]
    recipes: tuple[Mapping[str, Any], ...]
    api_level: int
    constants: ConstantOwnership
    shapes: ShapeSupport
    device: str
    memory: DeviceMemory
    install: str
    rules: tuple[Rule, ...]
    options: tuple[Option, ...]


def declaration_of(backend: Backend, who: str, plugin: str = "", distribution: str = "") -> BackendDeclaration:
    """Return the declaration of a backend; raise PluginError, ``who`` in front, for what cannot be used.

    Properties of the backend may raise whatever they like: ask in a fence.
    """
    name = _text(backend.name)
    if name is None or not name.replace("-", "_").isidentifier():
        raise PluginError(
            f"{who}: backend {kind_of(backend)} has the name {shown(backend.name)}; "
            "set name to letters, digits, '_' and '-', as in name = \"npu\"",
            plugin=plugin or str(name),
        )
    plugin = plugin or name
    level = _whole(backend.api_level, "api_level", API_LEVEL, f"{who}: backend '{name}'", plugin)
    if level not in SUPPORTED_API_LEVELS:
        raise PluginError(_wrong_level(who, name, level, distribution), plugin=plugin, backend=name)
    who = f"{who}: backend '{name}'"
    priority = _whole(backend.priority, "priority", Backend.priority, who, plugin)
    by_default = _flag(backend.by_default, "by_default", who, plugin)
    fallback = _flag(backend.fallback, "fallback", who, plugin)
    fuses = _flag(backend.fuses, "fuses", who, plugin)
    packed = _flag(backend.packed, "packed", who, plugin)
    quantized = _flag(backend.quantized, "quantized", who, plugin)
    one_sample = _flag(backend.one_sample, "one_sample", who, plugin)
    simulates = _flag(backend.simulates, "simulates", who, plugin)
    unwanted = _names(backend.unwanted_passes, "unwanted_passes", ("passes", "interleave-convolutions"), who, plugin)
    loses_nan = _names(backend.loses_nan, "loses_nan", ("operators", "Relu"), who, plugin)
    _names(backend.channels_last, "channels_last", ("operators", "MaxPool"), who, plugin)
    constants = _one_of(OWNERSHIPS, backend.constants, "constants", who, plugin)
    shapes = _one_of(SHAPES, backend.shapes, "shapes", who, plugin)
    return BackendDeclaration(
        name, priority, by_default, fallback, fuses, packed, quantized, one_sample, simulates, unwanted, loses_nan,
        _recipes(backend, who, plugin), level, constants, shapes, _device(backend, who, plugin),
        _memory(backend, who, plugin), _install(backend, who, plugin), _rules(backend, who, plugin),
        backend.option_rows(),
    )  # fmt: skip


def _text(value: object) -> str | None:
    """Return a text as a plain str, None for anything else; a subclass may bring methods that raise."""
    return str.__str__(value) if issubclass(type(value), str) else None


def _whole(value: object, attribute: str, example: int, who: str, plugin: str) -> int:
    if not issubclass(type(value), int) or type(value) is bool:
        raise PluginError(
            f"{who} has the {attribute} {shown(value)}; set {attribute} to a whole number, as in "
            f"{attribute} = {example}",
            plugin=plugin,
        )
    return int.__index__(value)  # type: ignore[arg-type]


def _flag(value: object, attribute: str, who: str, plugin: str) -> bool:
    if value is True or value is False:
        return value
    raise PluginError(f"{who} has {attribute} = {shown(value)}; set it to True or False", plugin=plugin)


def _one_of(words: tuple[Word, ...], value: object, attribute: str, who: str, plugin: str) -> Word:
    text = _text(value)
    for known in words:
        if text == known:
            return known
    raise PluginError(f"{who} has {attribute} = {shown(value)}; set it to one of {', '.join(words)}", plugin=plugin)


def _names(value: object, attribute: str, what: tuple[str, str], who: str, plugin: str) -> frozenset[str]:
    """Return a set of names; ``what`` says of what, with an example."""
    if type(value) is not frozenset or not all(type(one) is str for one in value):
        raise PluginError(
            f"{who} has {attribute} = {shown(value)}; set it to a frozenset of {what[0]}, as in "
            f"frozenset({{'{what[1]}'}})",
            plugin=plugin,
        )
    return value


def _recipes(backend: Backend, who: str, plugin: str) -> tuple[Mapping[str, Any], ...]:
    """Return the recipes; what stands in them is checked where a model is quantised by one."""
    value: object = backend.recipes
    if type(value) is tuple and all(type(one) is dict and type(one.get("name")) is str for one in value):
        return value
    raise PluginError(
        f"{who} has recipes = {shown(value)}; set it to a tuple of mappings, each with a name, as in "
        'recipes = ({"name": "npu-int8", "base": "int8-channel"},)',
        plugin=plugin,
    )


def _memory(backend: Backend, who: str, plugin: str) -> DeviceMemory:
    value: object = backend.memory
    if type(value) is DeviceMemory:
        return value
    raise PluginError(
        f"{who} has memory = {shown(value)}; set it to what the device has room for, as in "
        "memory = graft.DeviceMemory(weights=128 * 1024)",
        plugin=plugin,
    )


def _device(backend: Backend, who: str, plugin: str) -> str:
    value = _text(backend.device)
    if not value:
        raise PluginError(
            f'{who} has device = {shown(backend.device)}; set it to "cpu", or to the name of the device that its '
            "loader brings",
            plugin=plugin,
        )
    return value


def _install(backend: Backend, who: str, plugin: str) -> str:
    value = _text(backend.install)
    if value is None:
        raise PluginError(
            f"{who} has install = {shown(backend.install)}; set it to the command that installs what it needs, as in "
            'install = "pip install npu"',
            plugin=plugin,
        )
    return value


def _rules(backend: Backend, who: str, plugin: str) -> tuple[Rule, ...]:
    """Return the rules, which `supports` makes; a class that sets them by hand must set Rule objects."""
    rules: object = backend.rules
    if type(rules) is not tuple or not all(type(rule) is Rule for rule in rules):
        raise PluginError(
            f"{who} has rules = {shown(rules)}; leave `rules` to the decorator graft.supports", plugin=plugin
        )
    return rules


def _wrong_level(who: str, name: str, level: int, distribution: str) -> str:
    first, last = SUPPORTED_API_LEVELS[0], SUPPORTED_API_LEVELS[-1]
    supported = f"{first}" if first == last else f"{first} to {last}"
    remedy = DISTRIBUTION if level > last else distribution or "a newer version of the plugin"
    return (
        f"{who}: backend '{name}' was written for plugin interface {level}, "
        f"this Graft supports {supported}; pip install --upgrade {remedy}"
    )
