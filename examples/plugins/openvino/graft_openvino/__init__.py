"""OpenVINO as a vendor of Graft: whole regions by its compiler, for processors, GPUs and NPUs."""
