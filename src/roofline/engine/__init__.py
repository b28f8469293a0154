"""From requests to steps: scheduling, KV blocks, sampling, and the `LLM` library front."""
