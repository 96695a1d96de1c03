"""Decoders with growing caches: a step gives what all of the text at once gives, in ONNX's own words."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import graft
from examples.decoders.models import Config, gpt2, llama

SMALL = Config(layers=1, width=32, heads=4, kv_heads=2, inner=48, vocabulary=30, positions=64)
MODELS = {"gpt2": gpt2, "llama": llama}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("threads", [1, 2])
def test_steps_of_any_length_give_what_the_reference_gives(name, threads):
    model = MODELS[name](SMALL)
    program = graft.compile(model, ["llvm", "reference"], threads=threads)
    assert [cache.copied for cache in program.caches] == ["", ""]
    reference, text = ReferenceEvaluator(model), np.random.default_rng(0).integers(0, 30, (2, 20))
    empty = {f"past_{one}0": np.zeros((2, program.inputs[1].shape[1], 0, 8), np.float32) for one in "kv"}
    logits, *caches = reference.run(None, {"ids": text, **empty})
    bound, begin = program.bind(capacity=20), 0
    for count in (1, 7, 3, 1, 0, 6, 1, 1):
        got = bound(text[:, begin : begin + count])
        np.testing.assert_allclose(got, logits[:, begin : begin + count], rtol=1e-4, atol=1e-4)
        begin += count
    for got, expected in zip(bound.state.values(), caches, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_the_repeated_heads_of_grouped_queries_are_no_copies():
    program = graft.compile(llama(SMALL), ["llvm"], threads=1)
    kernels = [call.origin for call in program.description.procedures[0].calls]
    (attention,) = [names for names in kernels if any(name.startswith("softmax") for name in names)]
    assert len([name for name in attention if name.startswith("expand")]) == 2


def test_c_gives_the_same_steps():
    model = llama(SMALL)
    program, other = (graft.compile(model, [name], threads=1) for name in ("llvm", "c_source"))
    assert [cache.copied for cache in other.caches] == ["", ""]
    one, two = program.bind(), other.bind()
    for count in (5, 1, 1):
        ids = np.arange(2 * count).reshape(2, count)
        np.testing.assert_allclose(two(ids), one(ids), rtol=1e-4, atol=1e-4)
