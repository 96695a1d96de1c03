"""The error function as an expression; accuracy in `vector_math`."""

from __future__ import annotations

import math

from graft.core.tensor_ir.arithmetic.exponential import Format, copy_sign, exp, exp_nonpositive
from graft.core.tensor_ir.scalar_math import Value, select

SMALL = (
    0.12837916612625122, -0.3761262893676758, 0.11283625662326813, -0.02685573697090149, 0.005192438140511513,
    -0.0008050384349189699, 8.000279194675386e-05,
)  # fmt: skip
LARGE = (
    0.12866200506687164, 0.6350963115692139, 0.10632804781198502, -0.023840762674808502, 0.0036797451321035624,
    -0.000331991002894938, 1.2150630027463194e-05,
)  # fmt: skip
SMALL_TAYLOR = tuple(
    (-1) ** power * 2 / math.sqrt(math.pi) / (math.factorial(power) * (2 * power + 1)) - (power == 0)
    for power in range(20)
)
SCALED_COMPLEMENT = (
    0.17900115118138993, -0.32623356004303794, 0.2456038017123535, -0.15011593650063368, 0.0716658371964998,
    -0.02439249931947498, 0.004269136398334028, 0.0007077463330973814, -0.0005970635947038574, 4.525737931003333e-05,
    6.407775965260685e-05, -1.2872350958942981e-05, -8.113311890998391e-06, 2.118291857673269e-06,
    1.6248612258618818e-06, -1.5894383322630907e-07, -4.7285847132130636e-07,
)  # fmt: skip
"""erfcx(x) = exp(x^2) erfc(x) for 1 < x < 6.5 as a polynomial in (x - 3) / (x + 3)."""


def erf(x: Value, kind: Format) -> Value:
    """Return the error function."""
    if kind.dtype == "float32":
        size = abs(x).at_most(4.0)
        small = x.times_plus((size * size).polynomial(SMALL), x)
        large = 1.0 - exp_nonpositive(-size.times_plus(size.polynomial(LARGE), size), kind)
        return select(size < 0.9375, small, copy_sign(large, x, kind))
    size = abs(x).at_most(6.5)
    square = size * size
    small = x.times_plus(square.polynomial(SMALL_TAYLOR), x)
    scaled = ((size - 3.0) / (size + 3.0)).polynomial(SCALED_COMPLEMENT)
    large = 1.0 - exp(-square, kind) * scaled
    return select(size < 1.0, small, copy_sign(large, x, kind))
