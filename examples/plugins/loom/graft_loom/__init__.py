"""A made-up machine for Graft, the loom: eight threads in lockstep, a stack, and no other registers."""
