"""Values of a model as a peer computes them."""

from __future__ import annotations

import pytest

import graft
from graft.errors import VerifyError
from tests.compiler.models import model


def test_a_peer_that_cannot_run_the_model_is_told() -> None:
    body = """c = Constant <value = bool {0}> ()
      y, z = Loop(, c, x) < body = b (int64 i, bool go, float[2] s) => (bool more, float[2] t, float[2] u)
        { more = Identity(go) t = Exp(s) u = Neg(s) } >"""
    proto = model(body, "float[2] x", "float[2] y, float[N,2] z")
    with pytest.raises(VerifyError) as caught:
        graft.verify(proto, ["llvm", "reference"], threads=1)
    assert caught.value.message == (
        "reference cannot run the model (ValueError: need at least one array to concatenate); verify against "
        "'onnxruntime'"
    )
