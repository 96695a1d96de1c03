"""The campaign: ``python -m tests.end_to_end.open_shapes FIRST COUNT``, in chunks whose counts are printed."""

from __future__ import annotations

import sys

from .checking import check_models

CHUNK = 200

if __name__ == "__main__":
    first, count = (int(one) for one in sys.argv[1:3])
    for start in range(first, first + count, CHUNK):
        seeds = range(start, min(start + CHUNK, first + count))
        print(f"seeds from {start}: {check_models(seeds, lambda text: print(text[:600], flush=True))}", flush=True)
