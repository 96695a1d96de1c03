"""Names of models in C: what they cannot be, and what is made of the name of a file."""

from __future__ import annotations

import pytest

from graft.errors import ArtifactError
from graft.runtime.export.names import model_name

MEANT = {
    "main": "it is a word of C or C++; give another one, as in 'model_main'",
    "double": "it is a word of C or C++; give another one, as in 'model_double'",
    "graft": "it is the runtime's own name; give another one, as in 'model_graft'",
    "graft_digits": "it is like the names of the runtime, which begin with 'graft_'; give another one, as in "
    "'model_graft_digits'",
    "stdint": "it is the name of a header, 'stdint.h'; give another one, as in 'model_stdint'",
    "Limits": "it is the name of a header, 'limits.h'; give another one, as in 'model_Limits'",
    "linux": "it is a macro that compilers define; give another one, as in 'model_linux'",
    "_digits": "it is reserved for compilers and their libraries; give another one, as in 'model_digits'",
}


@pytest.mark.parametrize("name", MEANT)
def test_a_name_that_means_something_else_in_c_is_refused(name: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        model_name(name, "digits")
    assert str(caught.value) == f"'{name}' cannot be the name of a model in C: {MEANT[name]}"


@pytest.mark.parametrize(
    ("path", "name"),
    [("digits.so", "digits"), ("libdigits.so", "digits"), ("stdint", "model_stdint"), ("main", "model_main"),
     ("7.so", "model_7"), ("a-b", "a_b"), ("graft", "model_graft")],
)  # fmt: skip
def test_a_name_made_of_that_of_a_file_means_nothing_else(path: str, name: str) -> None:
    assert model_name(None, path) == name
