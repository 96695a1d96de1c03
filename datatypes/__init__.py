"""Custom datatypes: registry, number formats, lowering, conversion of models. Names load on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graft.datatypes.arrays import decode, encode
    from graft.datatypes.conversion import convert
    from graft.datatypes.lowering import create_lower_func, lookup, via
    from graft.datatypes.registry import Datatype
    from graft.datatypes.shipped import DATATYPES, register, register_fixed, register_float, register_op

__all__ = [
    "DATATYPES",
    "Datatype",
    "convert",
    "create_lower_func",
    "decode",
    "encode",
    "lookup",
    "register",
    "register_fixed",
    "register_float",
    "register_op",
    "via",
]

_HOMES = {
    "DATATYPES": "shipped",
    "Datatype": "registry",
    "convert": "conversion",
    "create_lower_func": "lowering",
    "decode": "arrays",
    "encode": "arrays",
    "lookup": "lowering",
    "register": "shipped",
    "register_fixed": "shipped",
    "register_float": "shipped",
    "register_op": "shipped",
    "via": "lowering",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'graft.datatypes' has no attribute '{name}'; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"graft.datatypes.{_HOMES[name]}"), name)
