"""How exact oneDNN's approximations are, and which of them are claimed.

Stated for oneDNN 3.2 and held by `tests/plugins/onednn/test_accuracy.py` on the machine at hand: against float64, over
all exponents and both signs. Other versions are taken to be no worse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LARGEST = 2.0**127
FLUSHED = 2.0**-125
"""Results below this in magnitude may be 0: the vector kernels of exp have no subnormal numbers."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A bound: ``|computed - exact| <= ulp * ulp(exact) + absolute * scale + FLUSHED``, for ``|x| <= largest``.

    ``scale`` is 1 for elementwise operators; for the others the largest of 1 and the magnitudes of their results.
    ``loses_nan`` says that a NaN in an operand may come out as a number.
    """

    ulp: float
    absolute: float = 0.0
    largest: float = LARGEST
    loses_nan: bool = False

    def within(self, limit: Accuracy) -> bool:
        """Whether the bound is at least as tight as another."""
        return self.ulp <= limit.ulp and self.absolute <= limit.absolute

    def __str__(self) -> str:
        return f"{self.ulp:g} ulp" + (f" + {self.absolute:.1e}" if self.absolute else "")


LIMIT = Accuracy(16, 2.0**-20)
"""What is claimed. The absolute part is for formulas that cancel in float32 by their definition, such as Gelu's
``0.5 x (1 + erf(x / sqrt 2))``: relative to a tiny result no float32 kernel of them is exact."""

ELTWISE: Mapping[str, Accuracy] = {
    "relu": Accuracy(0.5, loses_nan=True),
    "clip": Accuracy(0, loses_nan=True),
    "abs": Accuracy(0),
    "round": Accuracy(0),
    "linear": Accuracy(0.5),
    "square": Accuracy(0.5),
    "sqrt": Accuracy(0.5),
    "pow": Accuracy(1),
    "exp": Accuracy(6, loses_nan=True),
    "logistic": Accuracy(6),
    "tanh": Accuracy(2),
    "elu": Accuracy(4, 2.0**-23),
    "swish": Accuracy(16, 2.0**-24),
    "hardsigmoid": Accuracy(2, 2.0**-24, loses_nan=True),
    "hardswish": Accuracy(2, 2.0**-23, loses_nan=True),
    "gelu_tanh": Accuracy(8, 2.0**-22),
    "gelu_erf": Accuracy(8, 2.0**-20, largest=2.0**126),
    "log": Accuracy(16, 2.0**-15),
    "mish": Accuracy(16, 2.0**-19),
    "soft_relu": Accuracy(16, 2.0**-16),
}
"""By oneDNN's names of algorithms. The error of log is that near 1; log of a subnormal number is wrong altogether."""

PRIMITIVES: Mapping[str, Accuracy] = {
    "binary": Accuracy(0.5, loses_nan=True),
    "softmax": Accuracy(16, 2.0**-24, loses_nan=True),
    "log_softmax": Accuracy(16, 2.0**-17, loses_nan=True),
    "layer_normalization": Accuracy(16, 2.0**-21),
    "batch_normalization": Accuracy(16, 2.0**-22),
    "lrn": Accuracy(16, 2.0**-20),
    "average_pooling": Accuracy(16, 2.0**-21),
}
"""By primitive; sums and products (convolution, matmul) round as any order of float32 additions does."""
