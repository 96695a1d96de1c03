import time

from graft.core.tensor_ir.ir import (
    Buffer,
    Store,
)
from graft.core.tensor_ir.rewriting.sharing import bind_shared
from tests.core.tensor_ir.test_deep_expressions import deep


def test_a_deep_statement_is_bound_to_names():
    output = Buffer("y", "float32", ())
    started = time.process_time()
    bind_shared(Store(output, (), deep(2000)))
    assert time.process_time() - started < 20
