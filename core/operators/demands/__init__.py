"""What operators demand of the extents of their operands, and the words in which their rows say it."""
