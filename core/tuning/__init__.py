"""Tuning: parameters of schedules measured on this machine, and remembered."""
