"""Which nodes have a kernel: one row an operator, with what its kernel asks of types and attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graft.core.graph.view import NodeView, ValueView, is_packed
from graft.core.operators.definition.function_body import MICROSOFT
from graft.core.reject import Reject
from graft.core.types import FLOATS, INTEGERS, PACKED_TYPES
from graft.plugins.irregular.attributes import expressions, found
from graft.plugins.irregular.automata import automaton
from graft.plugins.irregular.regular_expressions import Unsupported

Check = Callable[[NodeView], Reject | None]

NARROW = PACKED_TYPES - {"string"} | {"float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"}
NUMBERS = FLOATS | INTEGERS | NARROW | {"bool"}


def refusal(node: NodeView) -> Reject | None:
    """Return why a node has no kernel, None if it has one."""
    check = CHECKS.get(("" if node.domain == "ai.onnx" else node.domain, node.op_type))
    if check is None:
        return Reject("no-pattern", f"{node.op_type} has no kernel here")
    for value in (*node.inputs, *node.outputs):
        if value is not None and value.name and (unknown := _unknown(value)) is not None:
            return unknown
    return check(node)


def _unknown(value: ValueView) -> Reject | None:
    kind = value.value.type
    if kind is None or (not value.dtype and not is_packed(value.value)):
        return Reject("dtype", f"the type of '{value.name}' is not known")
    if value.dtype and value.dtype not in NUMBERS | {"string"}:
        return Reject("dtype", f"'{value.name}' is of {value.dtype}")
    return None


def _anything(node: NodeView) -> Reject | None:
    return None


def _numbers(*places: int) -> Check:
    """Take inputs of these places that are tensors of numbers."""

    def check(node: NodeView) -> Reject | None:
        for place in places:
            value = node.input(place)
            if value is not None and value.dtype not in NUMBERS:
                return Reject("dtype", f"'{value.name}' is of {value.dtype or 'no numbers'}")
        return None

    return check


def _between_numbers(node: NodeView) -> Reject | None:
    """Take a cast that no text is read or written by."""
    source, target = node.inputs[0], node.outputs[0]
    if source is not None and "string" in (source.dtype, target.dtype):
        return Reject("dtype", f"{node.op_type} of {source.dtype} to {target.dtype} writes or reads numbers as text")
    return None


def _of_texts(node: NodeView) -> Reject | None:
    """Take inputs of strings."""
    wrong = next((one for one in node.inputs if one is not None and one.dtype != "string"), None)
    return None if wrong is None else Reject("dtype", f"'{wrong.name}' is of {wrong.dtype}, not of strings")


def _float_scores(node: NodeView) -> Reject | None:
    wrong = next((one for one in node.inputs[:2] if one is not None and one.dtype != "float32"), None)
    return None if wrong is None else Reject("dtype", f"'{wrong.name}' is of {wrong.dtype}, not of float32")


def _labels(node: NodeView) -> Reject | None:
    if node.attribute("classes_strings") is None and not (found(node, "keys")[0] and found(node, "values")[0]):
        return Reject("attribute", "LabelEncoder has no keys, or no values")
    return None


def _floats(node: NodeView) -> Reject | None:
    return None if node.dtype in FLOATS else Reject("dtype", f"{node.op_type} of {node.dtype}")


def _whole(node: NodeView) -> Reject | None:
    """Take elements of whole bytes, which are moved as computed numbers say."""
    plain = FLOATS | INTEGERS | {"bool"}
    if node.dtype not in plain or node.outputs[0].dtype not in plain:
        return Reject("dtype", f"{node.op_type} of {node.dtype}")
    return None


def _expressions(node: NodeView) -> Reject | None:
    """Take strings and regular expressions that an automaton can tell."""
    if node.op_type == "Tokenizer":
        given = [name for name in ("separators", "tokenexp") if node.attribute(name)]
        if len(given) != 1 or node.attribute("mincharnum", 0) < 1:
            return Reject("attribute", "Tokenizer needs a 'mincharnum' above 0 and either 'separators' or 'tokenexp'")
    for expression in expressions(node):
        try:
            automaton(expression)
        except Unsupported as error:
            return Reject("attribute", f"of the regular expression '{expression}': {error}")
    return _of_texts(node)


def _text_at_first(node: NodeView) -> Reject | None:
    """Take a first input of strings, which numbers say something of."""
    if node.dtype == "string" and all(one is None or one.dtype in INTEGERS for one in node.inputs[1:]):
        return None
    return Reject("dtype", f"{node.op_type} of {node.dtype}")


_ROWS: Mapping[str, Check] = {
    "Bernoulli": _floats,
    "Cast": _between_numbers,
    "CastLike": _between_numbers,
    "Compress": _numbers(0, 1),
    "ConcatFromSequence": _anything,
    "ConstantOfShape": _whole,
    "DFT": _floats,
    "Det": _floats,
    "DequantizeLinear": _numbers(0, 1, 2),
    "Dropout": _floats,
    "Equal": _of_texts,
    "Expand": _whole,
    "Flatten": _text_at_first,
    "Gather": _text_at_first,
    "Identity": _anything,
    "MaxRoiPool": _float_scores,
    "Multinomial": _floats,
    "NonMaxSuppression": _float_scores,
    "NonZero": _numbers(0),
    "Optional": _anything,
    "OptionalGetElement": _anything,
    "OptionalHasElement": _anything,
    "Pad": _whole,
    "QuantizeLinear": _numbers(0, 1, 2),
    "RandomNormal": _anything,
    "RandomNormalLike": _numbers(0),
    "RandomUniform": _anything,
    "RandomUniformLike": _numbers(0),
    "Range": _whole,
    "Reshape": _text_at_first,
    "RegexFullMatch": _expressions,
    "RoiAlign": _float_scores,
    "SequenceAt": _anything,
    "SequenceConstruct": _anything,
    "SequenceEmpty": _anything,
    "SequenceErase": _anything,
    "SequenceInsert": _anything,
    "SequenceLength": _anything,
    "Shape": _whole,
    "STFT": _floats,
    "Size": _whole,
    "Slice": _whole,
    "SplitToSequence": _numbers(0),
    "Squeeze": _text_at_first,
    "Tile": _whole,
    "StringConcat": _of_texts,
    "StringNormalizer": _of_texts,
    "StringSplit": _of_texts,
    "TfIdfVectorizer": _anything,
    "Unique": _numbers(0),
    "Unsqueeze": _text_at_first,
}
CHECKS: Mapping[tuple[str, str], Check] = {
    **{("", name): check for name, check in _ROWS.items()},
    ("ai.onnx.ml", "LabelEncoder"): _labels,
    (MICROSOFT, "Tokenizer"): _expressions,
}
