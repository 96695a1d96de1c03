"""Differentiation: reverse mode over nodes, by the rules that stand in the operator table."""
