"""The datatype registry, lowering functions and the shipped number formats."""
