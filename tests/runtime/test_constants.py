"""Constants by content."""

from __future__ import annotations

import numpy as np
import pytest

from graft.runtime import _native
from graft.runtime.constants import ConstantStore, aligned_array, constant_key


def test_the_same_constant_is_kept_once() -> None:
    store, array = ConstantStore(), np.arange(3, dtype=np.float32)
    key = store.add(array)
    assert store.add(array.copy()) == key
    assert store.add(array.astype(np.float64)) != key
    assert store.add(array.reshape(1, 3)) != key
    assert len(store.arrays) == 3


def test_a_key_is_that_of_the_values_whatever_their_order_in_memory() -> None:
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    assert constant_key(np.asfortranarray(array)) == constant_key(array)
    assert constant_key(array.T) == constant_key(np.ascontiguousarray(array.T)) != constant_key(array)
    assert constant_key(array) == "3837eabfd0a26e79f7f57ebc4d7b610c-int32-3x4"
    assert constant_key(np.zeros((), np.float32)) != constant_key(np.zeros(0, np.float32))


def test_different_arrays_of_one_hash_are_both_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "content_hash", lambda data: "0" * 32)
    store = ConstantStore()
    arrays = [np.full(2, value, np.float32) for value in (1, 2, 3)]
    keys = [store.add(array) for array in arrays]
    assert keys == [f"{'0' * 32}-float32-2{suffix}" for suffix in ("", "-2", "-3")]
    assert [store.add(array.copy()) for array in arrays] == keys
    assert [store.arrays[key][0] for key in keys] == [1, 2, 3]


@pytest.mark.parametrize("shape", [(), (5,), (3, 7)])
def test_an_aligned_array_lies_where_kernels_want_it(shape: tuple[int, ...]) -> None:
    for dtype in (np.dtype(np.uint8), np.dtype(np.float64)):
        array = aligned_array(shape, dtype)
        assert (array.shape, array.dtype, array.ctypes.data % 64) == (shape, dtype, 0)
