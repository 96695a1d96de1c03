"""Random bits by counter against the known answers of the algorithm's authors (Random123, kat_vectors)."""

from __future__ import annotations

import numpy as np
import pytest

from graft.datatypes.formats import evaluate
from graft.datatypes.philox import draw, philox

KNOWN = [
    ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_words_are_those_of_the_authors(counter: tuple[int, ...], key: tuple[int, int], words: str) -> None:
    arrays = [np.array([word], np.uint64) for word in counter]
    found = [evaluate(lambda *c, n=number: philox(c, key)[n], *arrays)[0] for number in range(4)]  # type: ignore[misc]
    assert " ".join(f"{word:08x}" for word in found) == words


def draws(places: np.ndarray, seed: int) -> np.ndarray:
    return evaluate(lambda place: draw(place, seed), places.astype(np.uint64))


def test_an_element_has_the_word_of_its_place() -> None:
    assert [f"{word:08x}" for word in draws(np.arange(4), 0)] == KNOWN[0][2].split()
    np.testing.assert_array_equal(draws(np.arange(40), 7)[13:], draws(np.arange(13, 40), 7))


def test_another_seed_or_a_far_place_draws_other_bits() -> None:
    places = np.arange(1000)
    others = [draws(places, 1), draws(places, 1 << 32), draws(places + (1 << 34), 0), draws(places + (1 << 40), 0)]
    assert all((draws(places, 0) != one).mean() > 0.99 for one in others)
