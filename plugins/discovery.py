"""Plugins by their metadata: what is installed, without importing any of it."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, distributions, entry_points
from pathlib import Path

from graft.plugins.hooks import PROJECT
from graft.runtime.system.plugin_files import import_file
from graft.runtime.system.version import DISTRIBUTION, version

BUILT_IN = {
    "accelerator": "graft.plugins.accelerator.plugin",
    "c_source": "graft.plugins.c_source.plugin",
    "cblas": "graft.plugins.cblas.plugin",
    "cuda": "graft.plugins.cuda.plugin",
    "irregular": "graft.plugins.irregular.plugin",
    "llvm": "graft.plugins.llvm.plugin",
    "onednn": "graft.plugins.onednn.plugin",
    "reference": "graft.plugins.reference.plugin",
    "xnnpack": "graft.plugins.xnnpack.plugin",
}
"""The plugins in the tree, as `pyproject.toml` declares them: so a checkout that is not installed has them too."""

LIBRARIES = {
    "graft.plugins.cblas.plugin": "graft.plugins.cblas.library",
    "graft.plugins.onednn.plugin": "graft.plugins.onednn.library",
    "graft.plugins.xnnpack.plugin": "graft.plugins.xnnpack.library",
}
"""Those that need a library, with the light module whose ``missing()`` says what to install."""


@dataclass(frozen=True, slots=True)
class PluginSource:
    """An entry point of group ``graft``, or a file: where a plugin comes from."""

    name: str
    value: str
    """``my_package.npu`` or ``my_package:Npu``; the path of a file."""
    distribution: str = ""
    version: str = ""
    is_file: bool = False
    damage: str = ""
    """Why the metadata cannot be read, "" if it can."""

    @property
    def is_own(self) -> bool:
        """Whether this is one of the plugins in Graft's own tree."""
        return self.distribution == DISTRIBUTION and BUILT_IN.get(self.name) == self.value

    @property
    def provider(self) -> str:
        """``graft-npu 0.1``, or ``file npu.py``: how messages name who brings the plugin."""
        if self.is_file:
            return f"file {Path(self.value).name}"
        return f"{self.distribution} {self.version}".strip() or f"entry point '{self.value}'"

    def missing(self) -> str:
        """Return what one of Graft's own plugins lacks and how to install it, "" if nothing; others are not asked."""
        light = LIBRARIES.get(self.value) if self.is_own else None
        return "" if light is None else str(importlib.import_module(light).missing())

    def load(self) -> object:
        """Import and return what the source names; any exception of the plugin's code passes through.

        Raise ImportError where it names nothing that can be imported.
        """
        if self.damage:
            raise ImportError(self.damage)
        if self.is_file:
            return import_file(Path(self.value))
        if EntryPoint.pattern.match(self.value) is None:
            raise ImportError(f"'{self.value}' is not an entry point; write my_package.npu or my_package.npu:Npu")
        return EntryPoint(self.name, self.value, PROJECT).load()


def discover() -> list[PluginSource]:
    """Return the installed plugins and the built-in ones, sorted by name and distribution; imports none of them."""
    found = {(source.name, source.value, source.distribution): source for source in _installed()}
    present = {(name, value) for name, value, distribution in found if distribution == DISTRIBUTION}
    built_in = (
        PluginSource(name, value, DISTRIBUTION, version())
        for name, value in BUILT_IN.items()
        if (name, value) not in present
    )
    return sorted((*found.values(), *built_in), key=lambda source: (source.name, source.distribution, source.value))


def _installed() -> Iterator[PluginSource]:
    try:
        for entry in entry_points(group=PROJECT):
            yield _source(entry, entry.dist)
    except (TypeError, ValueError):  # some distribution has damaged metadata: read them one by one, without it
        for distribution in distributions():
            try:
                entries = list(distribution.entry_points.select(group=PROJECT))
            except (TypeError, ValueError) as error:
                damage = f"its entry_points.txt cannot be read: {error}; install it again"
                yield PluginSource(distribution.name, "", distribution.name, distribution.version, damage=damage)
            else:
                yield from (_source(entry, distribution) for entry in entries)


def _source(entry: EntryPoint, distribution: Distribution | None) -> PluginSource:
    if distribution is None:
        return PluginSource(entry.name, entry.value)
    name, version = (str(distribution.metadata[key] or "") for key in ("Name", "Version"))
    return PluginSource(entry.name, entry.value, name, version)


def clashes(sources: Iterable[PluginSource]) -> dict[str, list[PluginSource]]:
    """Return the names that several sources claim, with those sources."""
    by_name: dict[str, list[PluginSource]] = {}
    for source in sources:
        by_name.setdefault(source.name, []).append(source)
    return {name: claims for name, claims in by_name.items() if len(claims) > 1}
