from graft.core.schedule.primitives.schedule_text import apply_schedule
from graft.core.tensor_ir.ir import Allocate
from graft.core.tensor_ir.visit import walk_statements
from tests.core.schedule.primitives.nests import check, matmul


def test_double_buffering_fills_the_next_place_while_this_one_is_used():
    stages, function = matmul(4, 4, 12)
    steps = "split k 4 -> k0 k1\nreorder k0 i j k1\ncache_read a at k0 in scratch -> near\npipeline k0 near"
    piped = apply_schedule(function, steps)
    (near,) = [one.buffer for one in walk_statements(piped.body) if isinstance(one, Allocate)]
    assert [int(extent.value) for extent in near.shape] == [2, 4, 4]
    check(stages, piped)
