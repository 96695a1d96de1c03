"""What an operator's row is, and the words that rows are written in."""
