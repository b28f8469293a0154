"""What the sampler's settings mean, in plain NumPy: full sort, float64, one row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def adjusted(
    logits: npt.ArrayLike,
    *,
    bias: dict[int, float] | None = None,
    prompt: list[int] | None = None,
    generated: list[int] | None = None,
    repetition: float = 1.0,
    presence: float = 0.0,
    frequency: float = 0.0,
) -> npt.NDArray[np.float64]:
    x = np.array(logits, dtype=np.float64)
    for token, value in (bias or {}).items():
        x[token] += value
    generated = generated or []
    for token in set(prompt or []) | set(generated):
        x[token] = x[token] / repetition if x[token] > 0 else x[token] * repetition
    for token in set(generated):
        x[token] -= frequency * generated.count(token) + presence
    return x


def probabilities(
    x: npt.NDArray[np.float64], *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> npt.NDArray[np.float64]:
    """Probability of every token after temperature, top-k, top-p and min-p."""
    p = np.exp((x - x.max()) / temperature)
    by_rank = np.lexsort((np.arange(len(x)), -x))
    if 0 < top_k < len(x):
        p[by_rank[top_k:]] = 0
    p /= p.sum()
    if top_p < 1:
        needed = int(np.searchsorted(np.cumsum(p[by_rank]), top_p)) + 1
        p[by_rank[needed:]] = 0
    p[p < min_p * p.max() * (1 - 1e-6)] = 0
    return p / p.sum()
