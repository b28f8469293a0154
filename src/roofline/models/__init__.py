"""One file per model family: from a ModelConfig to a Program and its weight names."""
