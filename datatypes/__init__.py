"""Custom datatypes: registry, number formats, lowering, conversion of models. Names load on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graft.datatypes.arrays import decode, encode
    from graft.datatypes.conversion import convert
    from graft.datatypes.lowering import create_lower_func, lookup, via
    from graft.datatypes.registry import Datatype
    from graft.datatypes.scaled.blocks import ScaledArray, decode_scaled, encode_scaled
    from graft.datatypes.scaled.conversion import convert_scaled
    from graft.datatypes.scaled.products import matmul_scaled
    from graft.datatypes.scaled.scaled_type import SCALED_TYPES, ScaledType, scaled_type
    from graft.datatypes.shipped import DATATYPES, register, register_fixed, register_float, register_op

__all__ = [
    "DATATYPES",
    "SCALED_TYPES",
    "Datatype",
    "ScaledArray",
    "ScaledType",
    "convert",
    "convert_scaled",
    "create_lower_func",
    "decode",
    "decode_scaled",
    "encode",
    "encode_scaled",
    "lookup",
    "matmul_scaled",
    "register",
    "register_fixed",
    "register_float",
    "register_op",
    "scaled_type",
    "via",
]

_HOMES = {
    "DATATYPES": "shipped",
    "SCALED_TYPES": "scaled.scaled_type",
    "Datatype": "registry",
    "ScaledArray": "scaled.blocks",
    "ScaledType": "scaled.scaled_type",
    "convert": "conversion",
    "convert_scaled": "scaled.conversion",
    "create_lower_func": "lowering",
    "decode": "arrays",
    "decode_scaled": "scaled.blocks",
    "encode": "arrays",
    "encode_scaled": "scaled.blocks",
    "lookup": "lowering",
    "matmul_scaled": "scaled.products",
    "register": "shipped",
    "register_fixed": "shipped",
    "register_float": "shipped",
    "register_op": "shipped",
    "scaled_type": "scaled.scaled_type",
    "via": "lowering",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'graft.datatypes' has no attribute '{name}'; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"graft.datatypes.{_HOMES[name]}"), name)
