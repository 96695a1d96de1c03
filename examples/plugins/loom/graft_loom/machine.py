"""The loom as data: what fusion, schedules and tuning read of it."""

from graft.core.machine.machine import Costs, Level, Machine, Memory

LANES = 8
LOOM = Machine(
    "loom-8",
    "loom",
    registers=8,
    memories=(Memory("host"),),
    levels=(Level("lane", LANES),),
    costs=Costs(fused=0.5, loads=1, latency=1),
    unroll=1,
)
