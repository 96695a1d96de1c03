"""Calibration: from the histogram of a tensor to the range that its codes are to hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from graft.quantization.grids import Grid
from graft.quantization.recipe import Scaling
from graft.quantization.scales import SHARES, parameters
from graft.quantization.statistics.histogram import BINS, Histogram

Range = tuple[float, float]


def calibrated(histogram: Histogram, scaling: Scaling, grid: Grid) -> tuple[np.float32, np.float32]:
    """Return the scale and the zero point of a whole tensor by its histogram."""
    low, high = RULES[scaling.calibration](histogram, scaling, grid)
    scale, zero = parameters(np.array([low]), np.array([high]), grid, scaling)
    return scale[0], zero[0]


def min_max(histogram: Histogram, scaling: Scaling, grid: Grid) -> Range:
    """Return the range of all elements."""
    return histogram.low, histogram.high


def percentile(histogram: Histogram, scaling: Scaling, grid: Grid) -> Range:
    """Return the range that leaves out as many elements, half of them at each end, as the recipe allows."""
    share = (1 - scaling.percentile / 100) / 2
    total, edges = np.cumsum(histogram.counts), _edges(histogram)
    first = int(np.searchsorted(total, share * total[-1], "right"))
    last = int(np.searchsorted(total, (1 - share) * total[-1], "left"))
    return max(float(edges[first]), histogram.low), min(float(edges[last + 1]), histogram.high)


def least_error(histogram: Histogram, scaling: Scaling, grid: Grid) -> Range:
    """Return the share of the range, at each end by itself, of the least square error over the bins.

    The ends are looked for in turns, as one moves the zero point of the other.
    """
    used = np.flatnonzero(histogram.counts)
    x, weights = histogram.centres[used], histogram.counts[used]
    x = np.clip(x, histogram.low, histogram.high)

    def error(low: float, high: float) -> float:
        scale, zero = parameters(np.array([low]), np.array([high]), grid, scaling)
        rounded = (grid.codes(x / scale, zero) - zero) * scale
        return float(weights @ (rounded - x) ** 2)

    low, high = min(histogram.low, 0.0), max(histogram.high, 0.0)
    whole_low, whole_high = low, high
    both = [(error(low * share, high * share), share) for share in SHARES]
    low, high = low * min(both)[1], high * min(both)[1]
    if scaling.symmetric or grid.is_float:
        return low, high
    high = min((error(low, whole_high * share), whole_high * share) for share in SHARES)[1]
    low = min((error(whole_low * share, high), whole_low * share) for share in SHARES)[1]
    return low, high


def entropy(histogram: Histogram, scaling: Scaling, grid: Grid) -> Range:
    """Return the range cut at the threshold of the least divergence (Kullback-Leibler; TensorRT's calibration, 2017).

    For each threshold the distribution of sizes, with all beyond it in the last bin, is compared with itself in as
    many bins as the grid has sizes. Zero, which every grid has, is left out: the first bin has what the second has.
    """
    sizes = histogram.counts[BINS:] + histogram.counts[:BINS][::-1]
    sizes = sizes.reshape(BINS // 2, 2).sum(axis=1).astype(np.float64)
    sizes[0] = sizes[1]
    if not sizes.any():
        return histogram.low, histogram.high
    levels, used = int(min(2 ** (grid.bits - 1), 128)), int(np.flatnonzero(sizes)[-1]) + 1
    counts = range(levels, used + levels, max(levels // 8, 1))
    best = min((_divergence(sizes, count, levels), count) for count in counts)[1]
    threshold = best / (BINS // 2) * histogram.limit
    return max(histogram.low, -threshold), min(histogram.high, threshold)


def _divergence(sizes: np.ndarray, count: int, levels: int) -> float:
    """Return how far the first ``count`` bins, brought to ``levels`` bins and back, are from what was there."""
    kept = np.zeros(count)
    kept[: min(count, len(sizes))] = sizes[:count]
    reference = kept.copy()
    reference[-1] += sizes[count:].sum()
    group = np.minimum(np.arange(count) * levels // count, levels - 1)
    total = np.bincount(group, kept, levels)
    filled = np.bincount(group, kept > 0, levels)
    spread = np.where(kept > 0, total[group] / np.maximum(filled[group], 1), 0)
    p, q = reference / reference.sum(), spread / max(spread.sum(), 1e-300)
    both = (p > 0) & (q > 0)
    missing = p[(p > 0) & (q <= 0)].sum()
    return float((p[both] * np.log(p[both] / q[both])).sum() + missing * np.log(1e9))


def _edges(histogram: Histogram) -> np.ndarray:
    return np.arange(-BINS, BINS + 1) * (histogram.limit / BINS)


RULES: Mapping[str, Callable[[Histogram, Scaling, Grid], Range]] = {
    "minmax": min_max, "percentile": percentile, "mse": least_error, "entropy": entropy,
}  # fmt: skip
"""The rules of calibration by name; each gives the range that codes are to hold."""
