"""Graft's notes in the metadata of a file that anybody wrote."""

from __future__ import annotations

import onnx
import pytest

import graft
from graft.core.graph.dimensions import RANGES
from graft.core.graph.notes import noted
from graft.core.shapes.unification import ALIASES, REASONS
from graft.errors import ModelError
from graft.quantization.preparation import PREPARED, preparation_of

TEXT = '<ir_version: 10, opset_import: ["" : 21]> g (float[n, 4] x) => (float[n, 4] y) { y = Relu (x) }'
FORMS = ["", "{", "3", '"x"', "null", "[[1]]", '{"n": 3}', '{"n": [1]}', '{"n": [5, 1]}', '{"n": null}', "[" * 100_000]
"""What none of the notes is."""


def test_a_note_is_data_or_says_why_it_is_none() -> None:
    assert noted({}, "k", lambda _: False) is None
    assert noted({"k": "[1]"}, "k", lambda found: found == [1]) == [1]
    with pytest.raises(ModelError) as caught:
        noted({"k": "[1]"}, "k", lambda _: False)
    assert (
        caught.value.message == "the model's metadata 'k' is not what Graft writes there, but [1]: it has another form"
    )


@pytest.mark.parametrize("text", FORMS)
@pytest.mark.parametrize("key", [RANGES, ALIASES, REASONS])
def test_a_model_with_notes_of_another_form_is_refused(key: str, text: str) -> None:
    model = onnx.parser.parse_model(TEXT)
    (model.graph if key == REASONS else model).metadata_props.add(key=key, value=text)
    with pytest.raises(ModelError, match=f"the model's metadata '{key}' is not what Graft writes there"):
        graft.compile(model, ["llvm"])


@pytest.mark.parametrize("text", FORMS)
def test_so_is_one_that_says_how_it_was_prepared(text: str) -> None:
    model = graft.load(onnx.parser.parse_model(TEXT))
    model.metadata_props[PREPARED] = text
    with pytest.raises(ModelError, match=f"the model's metadata '{PREPARED}' is not what Graft writes there"):
        preparation_of(model)
