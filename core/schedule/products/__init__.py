"""What strategies for sums of products are made of: tiles, blocks, packed operands, epilogues."""
