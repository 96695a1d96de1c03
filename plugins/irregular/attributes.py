"""A node's attributes as its kernel reads them: JSON, in which numbers that it cannot say are texts."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx_ir as ir

from graft.core.graph.view import NodeView
from graft.plugins.irregular.automata import automaton

_WORDS = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str.lower}


def attributes_of(node: NodeView) -> dict[str, Any]:
    """Return the attributes: numbers, texts and lists of these."""
    match node.op_type:
        case "StringNormalizer":
            return _plain(node) | _cases(node)
        case "LabelEncoder":
            return labels(node)
        case "RegexFullMatch" | "Tokenizer":
            return _plain(node) | {"automata": [automaton(one).to_json() for one in expressions(node)]}
        case _:
            return _plain(node)


def _plain(node: NodeView) -> dict[str, Any]:
    kinds = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS, ir.AttributeType.TYPE_PROTO, ir.AttributeType.TYPE_PROTOS)
    names = [name for name, one in node.node.attributes.items() if one.type not in kinds]
    return {name: _json(node.attribute(name)) for name in names}


def _json(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        case bytes():
            return value.decode("utf-8", "replace")
        case bool():
            return int(value)
        case str() | int() | float():
            return value
        case np.ndarray():
            held = value.astype(np.float64) if value.dtype.kind == "V" else value  # bfloat16
            return [_json(one) for one in held.reshape(-1).tolist()]
        case _:
            return [_json(one) for one in value]


def expressions(node: NodeView) -> list[str]:
    """Return the regular expressions of a node, none where every character is a token."""
    if node.op_type == "RegexFullMatch":
        return [_text(node.attribute("pattern", ""))]
    separators, token = node.attribute("separators"), node.attribute("tokenexp")
    given = [_text(token or "")] if separators is None else [_text(one) for one in separators]
    return [] if given == ["." if separators is None else ""] else given


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


# ---- Cases of characters ----


def _cases(node: NodeView) -> dict[str, Any]:
    """Return the characters that another case has another text of, in pairs: those of Python's Unicode."""
    action = node.attribute("case_change_action", "NONE")
    ignores = not node.attribute("is_case_sensitive", 0) and bool(node.attribute("stopwords"))
    return {"cases": _pairs(action)} if action != "NONE" or ignores else {}


@cache
def _pairs(action: str) -> list[int | str]:
    change: Callable[[str], str] = _WORDS[action]
    changed = ((code, change(chr(code))) for code in range(sys.maxunicode + 1))
    return [one for code, text in changed if text != chr(code) for one in (code, text)]


# ---- Keys and values of a LabelEncoder ----

_STANDARD: Mapping[str, Any] = {"strings": "_Unused", "int64s": -1, "floats": -0.0}


def labels(node: NodeView) -> dict[str, Any]:
    """Return keys, values and what stands for an unknown key, whichever attributes hold them."""
    classes = node.attribute("classes_strings")
    if classes is not None:  # the form of ai.onnx.ml 1: a text is encoded as its place, or a place as its text
        is_text = node.dtype == "string"
        keys, values = (classes, range(len(classes))) if is_text else (range(len(classes)), classes)
        standard = node.attribute("default_int64", -1) if is_text else node.attribute("default_string", "_Unused")
    else:
        (_, keys), (kind, values) = found(node, "keys"), found(node, "values")
        standard = _standard(node, kind, values)
    texts = bool(len(keys)) and isinstance(keys[0], str | bytes)
    return {
        "keys": _json(keys),
        "values": _json(values),
        "default": [_json(standard)],
        "keys_are_texts": int(texts),
    }


def found(node: NodeView, which: str) -> tuple[str, Sequence[Any]]:
    """Return the kind of the attribute that holds the ``keys`` or ``values``, and what is in it; "" without one."""
    for kind in ("strings", "int64s", "floats", "tensor"):
        value = node.attribute(f"{which}_{kind}")
        if value is not None:
            return kind, value.reshape(-1).tolist() if isinstance(value, np.ndarray) else value
    return "", ()


def _standard(node: NodeView, kind: str, values: Sequence[Any]) -> Any:
    if kind != "tensor":
        return node.attribute(f"default_{kind.removesuffix('s')}", _STANDARD[kind])
    given = node.attribute("default_tensor")
    if given is not None:
        return given.reshape(-1).tolist()[0]
    first = values[0] if values else 0
    return "_Unused" if isinstance(first, str | bytes) else -0.0 if isinstance(first, float) else -1
