"""The machine as data: four wires of beads that move side by side, no vectors, one memory behind a small store."""

from graft.core.machine.machine import KIB, Costs, Level, Machine, Memory

ABACUS = Machine(
    "abacus-4",
    "abacus",
    registers=8,
    memories=(Memory("scratch", 16 * KIB, seen_by="wire"), Memory("host")),
    levels=(Level("wire", 4),),
    costs=Costs(fused=0.5, loads=1, latency=2),
)
