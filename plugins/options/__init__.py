"""The declared options of backends: their types, their values, and the state of a backend that they do not cover."""
