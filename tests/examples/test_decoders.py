"""The example of decoders: text decoded with caches that grow in place is that decoded without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

import graft
from examples.decoders.models import Config
from examples.decoders.weight_only import llama_4bit

SCRIPT = Path(__file__).parents[2] / "examples" / "decoders" / "greedy.py"


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("model", ["gpt2", "llama"])
def test_both_ways_of_decoding_give_one_text(model):
    done = run("--model", model, "--tokens", "6", "--capacity", "10")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:4] == [f"past_{one} -> present_{one}: appended in place" for one in ("k0", "v0", "k1", "v1")]
    assert [len(line.split()) for line in lines[4:6]] == [11, 11]
    assert lines[6] == "10 rows in the caches; without them the same text: yes"


def test_a_cache_that_is_too_small_is_named():
    done = run("--tokens", "6", "--capacity", "9")
    assert done.returncode == 1
    assert "cache 'past_k0' would have 10 rows, but its capacity is 9" in done.stderr


def test_weights_of_four_bits_stay_packed_and_give_what_onnxruntime_gives():
    runtime = pytest.importorskip("onnxruntime")
    proto = llama_4bit(Config(vocabulary=112))
    program = graft.compile(proto, ["llvm"], threads=1)
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    for length, past in ((5, 0), (1, 5)):
        caches = {f"past_{kind}{layer}": (1, 2, past, 16) for layer in range(2) for kind in "kv"}
        feeds = {name: random.standard_normal(shape, np.float32) for name, shape in caches.items()}
        feeds["ids"] = random.integers(0, 100, (1, length))
        for expected, result in zip(session.run(None, feeds), program.run(feeds).values(), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    weights = sum(array.size for name, array in arrays_of(proto).items() if name.endswith("_packed"))
    words = [array for array in program.description.constants.values() if array.dtype == np.int32 and array.size > 99]
    assert weights <= sum(array.nbytes for array in words) < 1.2 * weights  # more by what fills panels up


def arrays_of(proto):
    return {one.name: numpy_helper.to_array(one) for one in proto.graph.initializer}
