"""In what two results differ: type, shape, NaNs and infinities, and by more than rounding."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

BOUNDS = {
    "float64": (1e-6, 1e-8), "float32": (1e-3, 1e-5), "float16": (1e-2, 5e-3), "bfloat16": (4e-2, 2e-2),
    "complex64": (1e-3, 1e-5), "complex128": (1e-6, 1e-8),
}  # fmt: skip
"""By type: the relative bound, and the absolute one in units of the largest expected value or of 1."""
NARROW = (0.13, 0.13)
"""The bound of floats of a byte and less: one step of their mantissas."""


def unlike(
    got: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    rtol: float | None = None,
    atol: float | None = None,
) -> str:
    """Return in what results differ from those expected by more than rounding, "" if in nothing.

    Without any bound, zeros differ by their signs.
    """
    for name, wanted in expected.items():
        if name not in got:
            return f"there is no output '{name}'"
        found = np.asarray(got[name])
        if found.dtype != wanted.dtype or found.shape != wanted.shape:
            return f"output '{name}' is {found.dtype}{list(found.shape)}, not {wanted.dtype}{list(wanted.shape)}"
        if text := _differs(found, wanted, rtol, atol):
            return f"output '{name}': {text}"
    return ""


def unlike_bits(got: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> str:
    """Return in what two results of one computation differ, if in a single bit; NaNs are equal whatever their bits."""
    for name, wanted in expected.items():
        found = np.asarray(got[name])
        if found.shape != wanted.shape:
            return f"output '{name}' has shape {list(found.shape)}, not {list(wanted.shape)}"
        same = found == wanted
        if wanted.dtype.kind in "fc" or wanted.dtype.name in BOUNDS:
            same = same | (np.isnan(found) & np.isnan(wanted))
        if not np.all(same):
            return f"output '{name}': {_worst(found, wanted, ~np.asarray(same))}"
    return ""


def _differs(found: np.ndarray, wanted: np.ndarray, rtol: float | None, atol: float | None) -> str:
    if wanted.dtype.kind in "biuSUO" or wanted.size == 0:
        wrong = np.asarray(found != wanted)
        return _worst(found, wanted, wrong) if wrong.any() else ""
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    near = BOUNDS.get(wanted.dtype.name, NARROW)
    left, right = found.astype(wide), wanted.astype(wide)
    finite = np.isfinite(right)
    with np.errstate(all="ignore"):
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        largest = float(np.max(np.abs(right[finite]), initial=1.0))
        bound = (near[0] if rtol is None else rtol) * np.abs(right) + (near[1] if atol is None else atol) * largest
        close = finite & np.isfinite(left) & (np.abs(left - right) <= bound)
    if rtol == atol == 0 and wanted.dtype.kind != "c":
        same &= (right != 0) | (np.signbit(left) == np.signbit(right))
        close = np.zeros_like(same)
    wrong = ~(same | close)
    return _worst(found, wanted, wrong) if wrong.any() else ""


def _worst(found: np.ndarray, wanted: np.ndarray, wrong: np.ndarray) -> str:
    """Return the first element that is wrong, and how many are."""
    place = tuple(int(index) for index in np.argwhere(wrong)[0])
    count = int(wrong.sum())
    more = f", and {count - 1} of {wrong.size - 1} others" if count > 1 else ""
    where = f" at {list(place)}" if place else ""
    return f"{found[place]!s} instead of {wanted[place]!s}{where}{more}"
