"""Backends with their options as text: what is read, what is printed, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graft.core.backend_spec import OptionValue, backend_text, split_backends, texts_of, value_text
from graft.errors import OptionError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("llvm", [("llvm", {})]),
        ("onednn, llvm", [("onednn", {}), ("llvm", {})]),
        ("npu:bits=8,mode=fast,llvm", [("npu", {"bits": "8", "mode": "fast"}), ("llvm", {})]),
        ("npu:tiles=[4,8],bits=8", [("npu", {"tiles": "[4,8]", "bits": "8"})]),
        ('npu:path="a,b",llvm', [("npu", {"path": '"a,b"'}), ("llvm", {})]),
        ("npu:at=tcp,host=here:80,llvm:x=1", [("npu", {"at": "tcp", "host": "here:80"}), ("llvm", {"x": "1"})]),
        ("npu:flag=a=b", [("npu", {"flag": "a=b"})]),
        ("onednn,", [("onednn", {}), ("", {})]),
    ],
)
def test_a_text_names_backends_and_their_options(text: str, found: list[tuple[str, dict[str, str]]]) -> None:
    assert split_backends(text) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bits=8", "option 'bits' belongs to no backend; write npu:bits=..."),
        ("llvm,bits=8", "option 'bits' belongs to no backend; write llvm:bits=..."),
        ("npu:bits", "'bits' behind 'npu:' is no option; write npu:NAME=VALUE"),
        ("npu:=8", "'' behind 'npu:' is no option; write npu:NAME=VALUE"),
        ("npu:bits=8,bits=9", "option 'bits' of backend 'npu' is given twice; give it once"),
        ("npu:tiles=[4,8", "'npu:tiles=[4,8' has a bracket or a quote without its partner at '[4,8'; close it"),
    ],
)
def test_a_text_that_is_none_is_told(text: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        split_backends(text)
    assert caught.value.message == message


def test_values_are_printed_as_the_command_line_has_them() -> None:
    values: list[OptionValue] = [True, 8, 0.5, None, "fast", "none", "a b", [4, 8], []]
    assert list(map(value_text, values)) == ["true", "8", "0.5", "none", "fast", '"none"', '"a b"', "[4,8]", "[]"]
    assert backend_text("npu", {"bits": 8, "tiles": [4, 8]}) == "npu:bits=8,tiles=[4,8]"
    assert backend_text("npu", {}) == "npu"


VALUES = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.none(), st.text())


@given(st.dictionaries(st.sampled_from(["bits", "mode", "tiles"]), st.one_of(VALUES, st.lists(VALUES, max_size=3))))
def test_what_is_printed_is_read_back(options: dict[str, OptionValue]) -> None:
    texts = {name: value_text(value) for name, value in options.items()}
    assert split_backends(f"{backend_text('npu', options)},llvm") == [("npu", texts), ("llvm", {})]
    assert texts_of(backend_text("npu", options)) == (backend_text("npu", options),)
