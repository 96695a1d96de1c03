"""Stages with an order of their own, scans, scatters and selections, and recurrent layers."""
