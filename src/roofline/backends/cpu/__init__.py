"""The native CPU back end: lowers a Program to fused kernels and runs a whole step without Python."""
