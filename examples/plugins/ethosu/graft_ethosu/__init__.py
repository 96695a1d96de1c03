"""Arm Ethos-U as a vendor of Graft: quantised regions by TOSA and Vela, run on a host by TOSA's reference model."""
