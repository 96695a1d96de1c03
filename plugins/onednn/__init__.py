"""oneDNN by JSON: the pattern for every library vendor."""
