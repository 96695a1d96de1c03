"""Greedy decoding with a cache that grows in place, checked against decoding without one.

    python examples/decoders/greedy.py [--model gpt2|llama] [--tokens 24] [--capacity 64]

The program is compiled once for every batch and length, and bound to its caches (`Program.bind`): it is called with
tokens alone, and a step writes one row to each cache. Without them, the whole text is computed anew for each token.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import graft
from graft.runtime.bound_program import BoundProgram

sys.path.insert(0, str(Path(__file__).parent))
from models import gpt2, llama

PROMPT = [[5, 17, 3, 92, 40], [8, 8, 61, 2, 77]]
"""Two texts at a time."""


def decoded(step: BoundProgram, prompt: np.ndarray, tokens: int) -> np.ndarray:
    """Return the tokens that follow: of the first call for the whole prompt, of later ones for one token each."""
    text, ids = prompt, prompt
    for _ in range(tokens):
        ids = step(ids)[:, -1:].argmax(-1)
        text = np.concatenate([text, ids], axis=1)
    return text


def without_cache(program: graft.Program, prompt: np.ndarray, tokens: int) -> np.ndarray:
    """Return the same, all of the text computed for each token."""
    text = prompt
    for _ in range(tokens):
        pasts = [np.zeros((len(text), *one.shape[1:2], 0, *one.shape[3:]), np.float32) for one in program.inputs[1:]]
        logits = program(text, *pasts)[0]
        text = np.concatenate([text, logits[:, -1:].argmax(-1)], axis=1)
    return text


def main() -> None:
    """Decode with and without the cache, and print both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["gpt2", "llama"], default="llama")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--capacity", type=int, default=None)
    options = parser.parse_args()
    program = graft.compile({"gpt2": gpt2, "llama": llama}[options.model]())
    for cache in program.caches:
        print(f"{cache.input} -> {cache.output}: {cache.copied or 'appended in place'}")
    bound, prompt = program.bind(capacity=options.capacity), np.array(PROMPT)
    text = decoded(bound, prompt, options.tokens)
    for row in text:
        print(*row)
    is_same = (text == without_cache(program, prompt, options.tokens)).all()
    print(f"{bound.length} rows in the caches; without them the same text: {'yes' if is_same else 'no'}")
    sys.exit(0 if is_same else 1)


if __name__ == "__main__":
    main()
