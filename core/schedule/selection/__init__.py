"""Which strategy a kernel gets: the table, in order of preference, and the choice from it."""
