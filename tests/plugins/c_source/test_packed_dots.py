"""Dot products of bytes in C without vectors: of words, whose arithmetic is exact in each of its forms."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest

import graft
from graft.runtime.c_source import INCLUDE

PROGRAM = """#include "graft/kernel.h"
#include <stdio.h>
int main(void) {
  const uint8_t bytes[] = {9, 255, 1, 0, 128, 7};
  const float floats[] = {-3.0f, 254.9f, 256.0f, 1e30f, NAN, -INFINITY};
  printf("%ld %ld", (long)word_at(bytes + 1), (long)dot4_u8s8(INT32_MAX, -1, 0x80ff017f));
  printf(" %ld", (long)dot2_s16(5, (int32_t)0xfffe0003u, 0x7fff8000));
  for (int i = 0; i < 6; i++) printf(" %d:%d", uint8_of_float(floats[i]), int8_of_float(floats[i]));
  return 0;
}
"""


def test_products_of_bytes_are_words_in_c_and_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (uint8[5,36] x) => (int32[5,6] y) <uint8 z = {131}> { y = MatMulInteger(x, w, z) }"""
    made = onnx.parser.parse_model(text)
    random = np.random.default_rng(0)
    w = random.integers(-128, 128, (36, 6), np.int8)
    made.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    program = graft.compile(made, ["c_source"], strict=True, cache=False, target="generic", without=["vector-types"])
    x = random.integers(0, 256, (5, 36), np.uint8)
    assert np.array_equal(program(x), (x.astype(np.int32) - 131) @ w.astype(np.int32))
    source = program.description.modules[0].source
    assert source is not None and "dot4_u8s8(" in source.text and "word_at(" in source.text


@pytest.mark.parametrize("flags", [(), ("-U__BYTE_ORDER__", "-D__BYTE_ORDER__=0")])
def test_the_arithmetic_of_words_and_of_floats_in_bytes(flags: tuple[str, ...], tmp_path: Path) -> None:
    image = tmp_path / "words"
    command = ["cc", "-std=c11", "-DGRAFT_PROJECT", "-fsanitize=undefined", "-fno-sanitize-recover", f"-I{INCLUDE}"]
    subprocess.run([*command, *flags, "-x", "c", "-", "-o", str(image), "-lm"], input=PROGRAM, text=True, check=True)
    done = subprocess.run([str(image)], capture_output=True, text=True, check=True)
    word = int.from_bytes(bytes([255, 1, 0, 128]), "little", signed=True)
    total = (2**31 - 1 + 255 * (127 + 1 - 1 - 128) + 2**31) % 2**32 - 2**31
    floats = "0:-3 254:127 255:127 255:127 0:0 0:-128"
    pairs = 5 + 3 * -(2**15) + -2 * (2**15 - 1)
    assert done.stdout == f"{word} {total} {pairs} {floats}"
