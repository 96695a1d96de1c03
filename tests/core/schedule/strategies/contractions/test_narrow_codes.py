"""Codes of narrow weights: packed and read back by the interpreter, against numbers decoded one by one."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from graft.core.operators.definition import build as b
from graft.core.schedule.strategies.contractions.narrow_codes import Code, code_of, magnitudes
from graft.core.tensor_ir import ir
from graft.core.tensor_ir.interpreting.interpreter import run_stages

CODES = [Code(2, -2), Code(2, 0), Code(3, -4), Code(4, 0, 1), Code(6, -32), Code(6, 0, 3)]
FLOATS = {1: (ml_dtypes.float4_e2m1fn, 4), 3: (ml_dtypes.float6_e2m3fn, 6)}


def numbers_of(code: Code) -> np.ndarray:
    """All numbers of a code."""
    if code.mantissa is None:
        return np.arange(code.low, code.low + (1 << code.bits)).astype(np.int8)
    sizes = magnitudes(code.mantissa)
    return np.unique(np.concatenate((sizes, -sizes))).astype(np.int8)


def read_back(code: Code, words: np.ndarray) -> np.ndarray:
    """What `Code.number` reads, by the interpreter: ``[term of a group, group, column]``."""
    groups, columns = len(words) // code.words, words.shape[1]
    source = ir.Buffer("words", "int32", (b.index(groups), b.index(code.words), b.index(columns)))
    stages = []
    for term in range(code.terms):
        target = ir.Buffer(f"term{term}", "float32", (b.index(groups), b.index(columns)))

        def value(i, term=term):
            return code.number([b.load(source, i[0], b.index(word), i[1]) for word in range(code.words)], term)

        stages.append(b.compute(target, value))
    arrays = run_stages(stages, {source: words.reshape(groups, code.words, columns)})
    return np.stack([arrays[stage.buffer] for stage in stages])


@pytest.mark.parametrize("code", CODES, ids=str)
def test_what_is_packed_is_read_back(code):
    known = numbers_of(code)
    random = np.random.default_rng(0)
    weights = random.choice(known, (3 * code.terms, 7))
    weights[: len(known), 0] = known[: len(weights)]
    words = code.packed((weights.astype(np.int16) - code.low).astype(np.int8))
    assert (words.dtype, words.nbytes * 8) == (np.int32, weights.size * code.bits)
    found = read_back(code, words).transpose(1, 0, 2).reshape(weights.shape)
    np.testing.assert_array_equal(found, weights.astype(np.float32) - code.low)


@pytest.mark.parametrize("mantissa", FLOATS)
def test_small_floats_are_those_of_the_specification_in_units_of_the_smallest(mantissa):
    dtype, bits = FLOATS[mantissa]
    every = np.arange(1 << (bits - 1), dtype=np.uint8).view(dtype).astype(np.float64)
    unit = Fraction(every[1])
    assert [Fraction(one) / unit for one in every] == magnitudes(mantissa).tolist()


@pytest.mark.parametrize(
    ("contents", "bits", "mantissa"),
    [
        ([-2, 1], 2, None),
        ([-3, 1], 3, None),
        ([-8, 7], 4, None),
        ([-12, 8, 3], 4, 1),
        ([-12, 5], 6, None),
        ([-60, 56, 1], 6, 3),
        ([-60, 57], None, None),
        ([127, 0], None, None),
    ],
)
def test_the_fewest_bits_that_hold_all_are_taken(contents, bits, mantissa):
    array = np.zeros((64, 4), np.int8)
    array[: len(contents), 1] = contents
    found = code_of(array, 32)
    assert (None if found is None else (found.bits, found.mantissa)) == (None if bits is None else (bits, mantissa))


def test_bytes_without_a_sign_begin_at_0_and_are_no_small_floats():
    assert code_of(np.array([[0], [3]] * 16, np.uint8), 32) == Code(2, 0)
    assert code_of(np.array([[0], [12]] * 16, np.uint8), 32) == Code(4, 0)
    assert code_of(np.array([[0], [64]] * 16, np.uint8), 32) is None


def test_a_group_of_terms_fits_in_a_block():
    array = np.ones((16, 2), np.int8)
    assert code_of(array, 16) == Code(2, -2)
    assert code_of(array, 8) == Code(4, -8)
    assert code_of(array, 12) is None
