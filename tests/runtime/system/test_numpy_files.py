"""Arrays of NumPy's files, and one kind of error for all that is wrong with one."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest

from graft.runtime.system.numpy_files import read_numpy


def archive() -> bytes:
    np.savez(file := io.BytesIO(), x=np.arange(3), y=np.ones(2))
    return file.getvalue()


def test_arrays_come_from_both_kinds_of_files(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.asfortranarray(np.arange(6, dtype=">f4").reshape(2, 3)))
    np.savez(tmp_path / "none.npz")
    (tmp_path / "two.npz").write_bytes(archive())
    np.testing.assert_array_equal(read_numpy(tmp_path / "one.npy"), [[0, 1, 2], [3, 4, 5]])
    found = read_numpy(tmp_path / "two.npz")
    assert isinstance(found, dict) and found["x"].tolist() == [0, 1, 2] and list(found) == ["x", "y"]
    assert read_numpy(tmp_path / "none.npz") == {}


@pytest.mark.parametrize("content", [b"", b"\x80\x04\x95", b"[1, 2]"])
def test_nothing_is_taken_for_a_pickle(tmp_path: Path, content: bytes) -> None:
    """NumPy would say that the file may be trusted."""
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(ValueError, match=r"^it begins as no file of NumPy's does$"):
        read_numpy(tmp_path / "x.npy")


DAMAGED = {
    "shape': (1,": "it is damaged: TokenError",
    "shape': (4611686018427387904,)}": "array is too big",
    "shape': (9000000000000,)}": "its header says more than memory holds: ",
    "shape': (-1,)}": "Failed to read all data",
}


@pytest.mark.parametrize(("end", "said"), DAMAGED.items())
def test_a_header_that_says_what_is_not_there_is_one_kind_of_error(tmp_path: Path, end: str, said: str) -> None:
    text = "{'descr': '<f4', 'fortran_order': False, '" + end
    (tmp_path / "x").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode())
    with pytest.raises(ValueError, match=said):
        read_numpy(tmp_path / "x")


@pytest.mark.parametrize("content", [archive()[:40], archive().replace(b"NUMPY", b"NUMPU")])
def test_a_damaged_archive_is_the_same_kind(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match="it is damaged: BadZipFile"):
        read_numpy(tmp_path / "x")
