"""Bisection: from a model that goes wrong to the smallest part that does, and what makes it right."""
