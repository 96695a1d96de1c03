"""The example of decoders: text decoded with caches that grow in place is that decoded without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
