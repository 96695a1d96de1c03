"""NumPy's files as anybody gives them: their arrays, or one kind of error for whatever is wrong with one."""

from __future__ import annotations

import os

import numpy as np

MAGIC = np.lib.format.MAGIC_PREFIX, b"PK\3\4", b"PK\5\6"
"""How an .npy file begins, an .npz archive, and one of no arrays; NumPy takes all others for pickles."""


def read_numpy(path: str | os.PathLike[str]) -> np.ndarray | dict[str, np.ndarray]:
    """Return the array of an ``.npy`` file, or those of an ``.npz`` archive by name.

    Raises OSError for a file that cannot be read, and ValueError for one that is neither, or damaged.
    """
    with open(path, "rb") as file:
        if not file.read(6).startswith(MAGIC):
            raise ValueError("it begins as no file of NumPy's does")
        file.seek(0)
        try:
            content = np.load(file, allow_pickle=False)
            if isinstance(content, np.ndarray):
                return content
            with content:
                return {name: content[name] for name in content.files}
        except MemoryError as error:
            raise ValueError(f"its header says more than memory holds: {error}") from error
        except (OSError, ValueError):
            raise
        except Exception as error:  # what the parsers of archives and of Python's tokens raise is many kinds
            raise ValueError(f"it is damaged: {type(error).__name__}: {error}") from error
