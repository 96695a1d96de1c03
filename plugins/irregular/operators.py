"""Operators that ONNX does not have, of which the kernels are here."""

from __future__ import annotations

from typing import Any

import onnx
from onnx.defs import OpSchema

from graft.core.operators.definition.function_body import MICROSOFT
from graft.core.operators.definition.table import Operator


def _one_axis_more(context: Any) -> None:
    kind = context.get_input_type(0)
    if kind is not None and kind.tensor_type.HasField("shape"):
        longer = onnx.TypeProto.FromString(kind.SerializeToString())
        longer.tensor_type.shape.dim.add()
        context.set_output_type(0, longer)


def tokenizer() -> Operator:
    """Return ONNX Runtime's Tokenizer: strings in, their tokens along one axis more out, padded to the most of one.

    Either ``separators`` (one or more regular expressions, at which a text is split one after the other; ``[""]``:
    after every character) or ``tokenexp`` (what a token looks like). Tokens of under ``mincharnum`` characters are
    left out; ``mark`` puts U+0002 before those of a text and U+0003 behind them. What skl2onnx writes for text.
    """
    kinds = OpSchema.AttrType
    schema = OpSchema(
        "Tokenizer",
        MICROSOFT,
        1,
        inputs=[OpSchema.FormalParameter("X", "T")],
        outputs=[OpSchema.FormalParameter("Y", "T")],
        type_constraints=[("T", ["tensor(string)"], "Strings.")],
        attributes=[
            OpSchema.Attribute("mark", kinds.INT, required=True),
            OpSchema.Attribute("mincharnum", kinds.INT, required=True),
            OpSchema.Attribute("pad_value", kinds.STRING, required=True),
            OpSchema.Attribute("separators", kinds.STRINGS, required=False),
            OpSchema.Attribute("tokenexp", kinds.STRING, required=False),
        ],
    )
    schema.set_type_and_shape_inference_function(_one_axis_more)
    return Operator("Tokenizer", domain=MICROSOFT, schema=schema)
