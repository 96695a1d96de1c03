import pytest

from graft.testkit import conformance
from graft_tensorrt.backend import TensorRt

reason = TensorRt().available()
if reason is not None:
    pytest.skip(f"tensorrt is held to no level: {reason}", allow_module_level=True)

TestTensorRt = conformance("tensorrt", level=5, xfail="ledger.txt")
