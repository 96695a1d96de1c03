"""What this machine can do at most: ``python -m benchmarks.roofline``.

Multiply-adds of one core, and what it reads from each level of memory, by kernels that the built-in compiler emits.
"""

from __future__ import annotations

from graft.measure.roofline import measure_roofline


def main() -> None:
    """Print the table."""
    roofline = measure_roofline()
    print("| limit of one core | |\n|---|---:|")
    print(f"| float32 multiply-add | {roofline.flops / 1e9:.0f} GFLOP/s |")
    for size, rate in roofline.bandwidth:
        print(f"| reading {size >> 10} KiB | {rate / 1e9:.0f} GB/s |")


if __name__ == "__main__":
    main()
