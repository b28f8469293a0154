"""A model as data: operator records, the program that lists them, and its cost."""
