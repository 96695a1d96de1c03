"""Rockchip's NPUs as a vendor of Graft: regions by a toolkit with an interpreter of its own."""
