"""ONNX's own node suite, and what Graft does not compute of it, with reasons."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

EVERY_NTH = 25
"""The share of the suite that runs in every test run; the rest is marked slow."""

REFUSED = {
    "a program takes and returns tensors of numbers only": (
        "*string*", "*strnormalizer*", "test_regex_full_match_*", "test_ai_onnx_ml_label_encoder_tensor_*",
        "test_identity_sequence", "test_*_opt", "test_if_seq", "test_loop13_seq", "test_loop16_seq_none",
        "test_sequence_*", "test_split_to_sequence_*", "test_optional_get_element_optional_*",
        "test_optional_get_element_sequence", "test_optional_has_element_tensor_input",
        "test_optional_has_element_optional_input", "test_optional_has_element_empty_optional_input",
    ),
    "a program takes and returns no types narrower than a byte": (
        "test_*INT4*", "test_*INT2*", "test_*FLOAT4*", "test_*E8M0*", "test_*int4*", "test_*int2*", "test_*float4e2m1*",
    ),
    "the operator needs Pillow (pip install 'graft-compiler[images]')": ("test_image_decoder_decode_*",),
    "Scan of opset 8 has a batch axis, which later ones have not": ("test_scan_sum",),
}  # fmt: skip
"""Cases that must end in a GraftError, by reason."""

DIFFERENT = {
    "the operator is random": ("test_bernoulli*",),
    "rounded to 16 bits less often than by the function that ONNX gives, and so nearer to the exact result": (
        "test_attention_3d_causal_bf16_expanded", "test_attention_4d_*causal_bf16_expanded",
        "test_attention_4d_causal_fp16_expanded", "test_attention_4d_*padded_kv_bf16_expanded",
    ),
}  # fmt: skip
"""Cases whose values differ from the suite's by more than its tolerance, by reason; shapes and types agree."""


@dataclass(frozen=True)
class Case:
    """A model, its inputs and what it must give; ``tensors`` is False where one of these is a sequence or optional."""

    name: str
    model: onnx.ModelProto
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    rtol: float
    atol: float
    tensors: bool


@cache
def all_cases() -> dict[str, Case]:
    """The cases by name, in the suite's order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        found = load_model_tests(kind="node")
    cases = {}
    for test in found:
        inputs, outputs = ([_array(one) for one in arrays] for arrays in test.data_sets[0])
        cases[test.name] = Case(
            test.name,
            test.model,
            dict(zip([value.name for value in test.model.graph.input], inputs, strict=False)),
            dict(zip([value.name for value in test.model.graph.output], outputs, strict=False)),
            test.rtol,
            test.atol,
            all(isinstance(one, np.ndarray) for one in (*inputs, *outputs)),
        )
    return cases


def listed(name: str, ledger: dict[str, tuple[str, ...]]) -> bool:
    """Whether a case is in a ledger."""
    return any(fnmatchcase(name, pattern) for patterns in ledger.values() for pattern in patterns)


def _array(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value
