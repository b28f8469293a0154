"""Interpreters that run a Program: `reference` (NumPy) and `cpu` (native)."""
