"""Layers as JSON, without their numbers: enough to lay them out anew, and no more than a report needs.

Of an array only its shape and range are kept: they decide the instructions, its contents do not.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any, get_args

import numpy as np

from graft.errors import ArtifactError
from graft.plugins.accelerator.frontend.layers import Activation, Layer, PoolingKind, Requantize

KINDS = {kind.__name__: kind for kind in (*get_args(Layer), Activation, Requantize)}
MOST_NUMBERS = 1 << 31


def described(item: Any) -> Any:
    """Return a layer, or a part of one, as JSON values."""
    match item:
        case np.ndarray():
            return {"type": item.dtype.name, "shape": list(item.shape), "range": [item.min().item(), item.max().item()]}
        case PoolingKind():
            return {"pooling": item.value}
        case tuple():
            return [described(one) for one in item]
        case _ if type(item).__name__ in KINDS:
            values = {field.name: described(getattr(item, field.name)) for field in fields(item)}
            return {"class": type(item).__name__, **values}
        case _:
            return item


def layer_of(text: Any) -> Layer:
    """Return a layer whose arrays have the shape and range of those described."""
    layer: Layer = _item(text)
    return layer


def _item(text: Any) -> Any:
    match text:
        case {"type": dtype, "shape": shape, "range": [least, most]}:
            if math.prod(shape) > MOST_NUMBERS:
                raise ArtifactError(f"the notes of a layer tell of an array of {shape}")
            array = np.full(shape, most, dtype)
            array.flat[0] = least
            return array
        case {"pooling": value}:
            return PoolingKind(value)
        case {"class": name, **values}:
            return KINDS[name](**{str(field): _item(value) for field, value in values.items()})
        case list():
            return tuple(_item(one) for one in text)
        case _:
            return text
