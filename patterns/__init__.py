"""The pattern language: build, match, explain, rewrite."""
