"""The report: a plan, and what came of it, as people read it."""
