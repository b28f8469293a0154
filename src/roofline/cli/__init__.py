"""The `roofline` command."""
