"""Regular expressions over strings: RegexFullMatch, and the Tokenizer of ONNX Runtime, beside which it is held."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import graft
from graft.errors import UnsupportedError
from tests.plugins.irregular.test_kernels import run, texts


def test_a_text_matches_whole_or_not_at_all() -> None:
    text = r'g (string[2,2] x) => (bool[2,2] y) { y = RegexFullMatch <pattern = "[a-z]+@[a-z.]+|\u00e4*"> (x) }'
    found = run(text.replace("\\u00e4", "\u00e4"), texts("a@b.c", "a@b.c!", "\u00e4\u00e4", "").reshape(2, 2))
    assert found.tolist() == [[True, False], [True, True]]


def tokens(given: np.ndarray, **attributes: Any) -> Any:
    attributes = {"mark": 0, "mincharnum": 1, "pad_value": "#", **attributes}
    node = helper.make_node("Tokenizer", ["x"], ["y"], domain="com.microsoft", **attributes)
    source = helper.make_tensor_value_info("x", TensorProto.STRING, given.shape)
    result = helper.make_tensor_value_info("y", TensorProto.STRING, None)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "g", [source], [result]), ir_version=10, opset_imports=opsets)
    found = graft.compile(model, backends=["irregular"])(given)
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(found, session.run(None, {"x": given.astype(object)})[0])
    return found.tolist()


SAID = texts("ab, c\u00e9d", "a", "", ", b ")


def test_tokens_are_what_lies_between_separators() -> None:
    expected = [["ab", "c\u00e9d"], ["a", "#"], ["#", "#"], ["b", "#"]]
    assert tokens(SAID, separators=[" ", ","]) == expected
    assert tokens(SAID, separators=["[ ,]+"]) == expected


def test_tokens_are_what_matches() -> None:
    assert tokens(SAID, tokenexp="[a-b]|ab") == [["ab"], ["a"], ["#"], ["b"]]
    assert tokens(SAID, tokenexp="[^ ,]+", mincharnum=2) == [["ab", "c\u00e9d"], ["#", "#"], ["#", "#"], ["#", "#"]]
    assert tokens(SAID, tokenexp="zz") == [[], [], [], []]


@pytest.mark.parametrize("form", [{"separators": [""]}, {"tokenexp": "."}])
def test_every_character_is_a_token(form: dict[str, Any]) -> None:
    assert tokens(SAID[:2].reshape(1, 2), mark=1, **form) == [
        [["\x02", "a", "b", ",", " ", "c", "\u00e9", "d", "\x03"], ["\x02", "a", "\x03", *"######"]]
    ]


def test_an_expression_that_no_automaton_tells_says_why() -> None:
    with pytest.raises(UnsupportedError, match=r"of the regular expression '\\1a': '\\1' refers to a group"):
        tokens(SAID, tokenexp=r"\1a")
