"""What all strategies are made of: flat stages, loop frames, accumulators, vectors."""
