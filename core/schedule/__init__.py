"""Schedules: what turns stages into loops. This room: what a kernel is, and the parameters of its schedule."""
