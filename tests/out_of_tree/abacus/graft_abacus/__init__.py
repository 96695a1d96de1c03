"""A made-up machine for Graft: its row, its emitter and a strategy of its own."""
