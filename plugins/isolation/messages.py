"""What the host of an isolated plugin and the plugin's process tell each other first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graft.core.backend_spec import OptionValue
from graft.plugins.discovery import PluginSource
from graft.plugins.options.declared import Option
from graft.plugins.time_limit import Limits

STATED = (
    "name", "priority", "by_default", "fallback", "fuses", "loses_nan", "quantized", "one_sample",
    "unwanted_passes", "recipes", "memory", "simulates", "api_level", "constants", "shapes", "install", "rules",
)  # fmt: skip
"""The attributes that a backend states."""


@dataclass(frozen=True, slots=True)
class Opening:
    """How a remote process begins: what the host imports, how much memory and time there is, and which plugin it is.

    ``sandbox`` is what it may read besides what is installed, None where it is in no sandbox.
    """

    path: list[str]
    memory: int | None
    source: PluginSource
    limits: Limits
    sandbox: list[str] | None


@dataclass(frozen=True, slots=True)
class RemoteDeclaration:
    """What a backend says of itself once; checks and derivatives of its patterns are asked for."""

    attributes: Mapping[str, Any]
    patterns: tuple[tuple[str, Any, bool, bool], ...]
    """Names, patterns, whether there is a check, and a derivative."""
    rows: tuple[Option, ...]
    values: Mapping[str, OptionValue]
