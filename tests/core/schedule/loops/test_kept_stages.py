"""What is costly is kept, and what divides becomes a product."""

from graft.core.schedule.loops.kept_stages import keep_costly, with_reciprocals
from graft.core.tensor_ir.parser import parse_stages
from graft.core.tensor_ir.printer import print_stages
from tests.core.schedule.strategies.nests.test_fused_rows import SOFTMAX


def test_exponentials_are_kept_and_the_sum_gives_its_reciprocal():
    stages = parse_stages(SOFTMAX)
    result = with_reciprocals(keep_costly(stages), [stages[-1].buffer])
    assert print_stages(result) == (
        "input x: float32[6, 40]\n"
        "stage top: float32[6] in scratch at (i) = reduce max over k < 40 from float32(-inf): x[i, k]\n"
        "stage y_kept: float32[6, 40] in scratch at (m, n) = exp(x[m, n] - top[m])\n"
        "stage total: float32[6] in scratch at (p) = reduce add over q < 40 from float32(0.0): y_kept[p, q]\n"
        "  then total_1: float32 = float32(1.0) / total_1\n"
        "stage y: float32[6, 40] at (m_1, n_1) = y_kept[m_1, n_1] * total[m_1]\n"
    )


def test_a_sum_that_is_not_only_a_divisor_stays():
    text = SOFTMAX.replace("/ total[m]", "/ total[m] + total[m]")
    stages = parse_stages(text)
    assert with_reciprocals(stages, [stages[-1].buffer]) == stages
