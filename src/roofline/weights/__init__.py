"""Reading checkpoints: GGUF and Hugging Face folders, validated before use, as named tensors in known schemes."""
