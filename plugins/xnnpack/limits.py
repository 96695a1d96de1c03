"""The operators whose results XNNPACK limits, where NaN becomes a number.

Its kernels end in ``min(max(y, low), high)``, with infinities where nothing is to be limited. The instructions of x86
that compute this give the limit where the other operand is NaN; later versions of XNNPACK turn the operands round.
"""

LIMITED = frozenset(
    {"Add", "AveragePool", "Clip", "Conv", "Div", "Gemm", "GlobalAveragePool", "MatMul", "MaxPool", "Mul", "Relu",
     "Softmax", "Sub"}
)  # fmt: skip
