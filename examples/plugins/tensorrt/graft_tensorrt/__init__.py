"""TensorRT as a vendor of Graft: regions as engines for one device and one version, which take other weights."""
