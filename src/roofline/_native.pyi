# Types of the extension module built from native/bind: one section per register function.

import numpy as np
import numpy.typing as npt

# runtime.cpp
def cpu_features() -> dict[str, bool]: ...
def best_isa() -> str: ...
def isa_gaps(isa: str) -> list[str]: ...
def allowed_isa(cap: str) -> str: ...

class ThreadPool:
    def __init__(self, num_threads: int) -> None: ...
    @property
    def num_threads(self) -> int: ...

# sampling.cpp
class SamplingState:
    def __init__(
        self,
        prompt: npt.NDArray[np.int32],
        *,
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
        repetition: float,
        presence: float,
        frequency: float,
        min_tokens: int,
        seed: int,
        num_top: int,
        bias: list[tuple[int, float]],
        end_ids: list[int],
    ) -> None: ...
    def observe(self, token: int) -> None: ...
    @property
    def num_generated(self) -> int: ...

class Draw:
    @property
    def status(self) -> str: ...  # "ok", "not_finite", "nothing_left"
    @property
    def token(self) -> int: ...
    @property
    def logprob(self) -> float: ...
    @property
    def top(self) -> list[tuple[int, float]]: ...

def sample(logits: npt.NDArray[np.float32], states: list[SamplingState], pool: ThreadPool | None) -> list[Draw]: ...
def philox_uniform(seed: int, counter: int) -> float: ...
