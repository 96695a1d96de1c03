"""What the system around gives: files, folders that nobody else writes into, the C compiler, a notebook."""
