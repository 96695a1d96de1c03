"""What random models are to be like."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """What models may have; each part is a share of models or None where all is allowed.

    ``operators`` limits the rows that are drawn to those that add nothing but these operators (None: all); it is how a
    vendor draws models of what a backend claims. ``types`` are the floating-point types and their weights: a model
    computes in one. ``special`` is the share of models whose inputs hold NaN, infinities, subnormals and negative
    zeros, ``symbolic`` of those whose inputs have dimensions by name, ``older`` of those of an opset before the newest,
    ``control`` of those with If, Loop or Scan.
    """

    nodes: tuple[int, int] = (2, 12)
    operators: frozenset[str] | None = None
    types: tuple[tuple[str, float], ...] = (("float32", 8.0), ("float64", 1.0), ("float16", 1.0), ("bfloat16", 1.0))
    special: float = 0.1
    symbolic: float = 0.15
    older: float = 0.15
    control: float = 0.15

    def __str__(self) -> str:
        shares = ", ".join(f"{name} {getattr(self, name):g}" for name in ("special", "symbolic", "older", "control"))
        return f"{self.nodes[0]} to {self.nodes[1]} rows, {'/'.join(name for name, _ in self.types)}, {shares}"


PLAIN = Options(types=(("float32", 1.0),), special=0.0, symbolic=0.0, older=0.0, control=0.0)
"""float32, static and well conditioned: what every backend of networks is expected to have right."""
