"""`roofline bench MODEL`: prefill and decode rates over random ids, one line a measure.

The measures go through the engine as requests do: scheduler, back end and greedy sampling are all in the time. `prefillN` is one prompt
of N tokens up to its first token; `decode_bB` is 64 steps of B streams that have at least 128 tokens in context.
"""

from __future__ import annotations

import json
import random
import re
import statistics
import time
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from roofline.cli import options
from roofline.cli.display import progress_bars
from roofline.core.batch import BLOCK_LEN
from roofline.core.errors import RequestError
from roofline.core.sampling import SamplingParams
from roofline.engine.engine import Engine
from roofline.engine.floor import Floor, Rate, floor_of
from roofline.engine.llm import LLM
from roofline.weights.catalog import DEFAULT_MODEL

DECODE_CONTEXT = 128
NUM_DECODE_STEPS = 64
DEFAULT_MEASURES = "prefill512,prefill2048,decode_b1,decode_b8,decode_b32"
_MEASURE = re.compile(r"(?P<kind>prefill|decode_b)(?P<size>[1-9]\d{0,5})")


@dataclass(frozen=True)
class Measure:
    """One thing to measure: a prompt of `size` tokens, or `size` streams decoding."""

    name: str
    is_prefill: bool
    size: int

    @property
    def num_seqs(self) -> int:
        return 1 if self.is_prefill else self.size

    @property
    def sequence_len(self) -> int:
        """Longest sequence. A batch whose prompts take several steps starts decoding while the last ones prefill."""
        return self.size + 1 if self.is_prefill else DECODE_CONTEXT + NUM_DECODE_STEPS + 1 + self.size


def bench(
    model: options.Model = DEFAULT_MODEL,
    measure: Annotated[str, typer.Option(help="What to measure: prefillN and decode_bB, by comma.")] = DEFAULT_MEASURES,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each measure.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    threads: options.Threads = None,
    isa: options.Isa = None,
    kv_dtype: options.KvDtype = None,
    max_tokens_per_step: options.MaxTokensPerStep = None,
    pre_tokenizer: options.PreTokenizer = None,
) -> None:
    """Measure prefill and decode."""
    measures = parse_measures(measure)
    settings = options.engine_settings(
        threads=threads,
        isa=isa,
        kv_dtype=kv_dtype,
        max_tokens_per_step=max_tokens_per_step,
        pre_tokenizer=pre_tokenizer,
    )
    with progress_bars() as progress:
        llm = LLM(model, progress=progress, **room_for(measures), **settings)
    with llm:
        floor = floor_of(llm.loaded)
        for one in measures:
            record = _record(llm, one, _rates(llm.loaded.engine, one, repeat), floor)
            typer.echo(json.dumps(record) if as_json else _line(record))


def parse_measures(text: str) -> list[Measure]:
    """The measures that `text` names. Raises RequestError for one that there is none of."""
    measures = []
    for name in text.split(","):
        match = _MEASURE.fullmatch(name.strip())
        if match is None:
            raise RequestError(
                f"there is no measure {name.strip()!r}", hint="prefillN (a prompt of N tokens) or decode_bB (B streams)"
            )
        measures.append(Measure(name.strip(), match["kind"] == "prefill", int(match["size"])))
    return measures


def room_for(measures: list[Measure]) -> dict[str, int]:
    """Engine settings under which every measure fits."""
    return {
        "max_context": max(one.sequence_len for one in measures),
        "max_sequences": max(one.num_seqs for one in measures),
        "num_blocks": max(one.num_seqs * -(-one.sequence_len // BLOCK_LEN) for one in measures),
    }


def _rates(engine: Engine, one: Measure, repeat: int) -> list[float]:
    """Tokens per second of `repeat` runs, after one that is not counted."""
    rng = random.Random(0)
    first, last = min(1000, engine.vocab_size - 1), min(40_000, engine.vocab_size)

    def run_s() -> float:
        if one.is_prefill:
            return _prefill_s(engine, [rng.randrange(first, last) for _ in range(one.size)])
        return decode_s(engine, [[rng.randrange(first, last) for _ in range(DECODE_CONTEXT)] for _ in range(one.size)])

    num_tokens = one.size if one.is_prefill else one.size * NUM_DECODE_STEPS
    run_s()
    return [num_tokens / run_s() for _ in range(repeat)]


def _prefill_s(engine: Engine, prompt: list[int]) -> float:
    engine.submit(prompt, SamplingParams(temperature=0, max_tokens=1, ignore_eos=True))
    start = time.perf_counter()
    while engine.has_work:
        engine.step()
    return time.perf_counter() - start


def decode_s(engine: Engine, prompts: list[list[int]]) -> float:
    """Seconds of NUM_DECODE_STEPS steps that all streams share. RequestError where a step can't hold all of them."""
    params = SamplingParams(temperature=0, max_tokens=None, ignore_eos=True)
    requests = [engine.submit(prompt, params) for prompt in prompts]
    try:
        started: set[int] = set()
        while len(started) < len(requests):
            started |= {output.request_id for output in engine.step()}
        start = time.perf_counter()
        for _ in range(NUM_DECODE_STEPS):
            _require_all(len(engine.step()), len(requests))
        return time.perf_counter() - start
    finally:
        for request_id in requests:
            engine.abort(request_id)


def _require_all(num_ran: int, num_streams: int) -> None:
    if num_ran != num_streams:
        raise RequestError(
            f"{num_ran} of {num_streams} streams ran in a step", hint=f"--max-tokens-per-step {num_streams} or more"
        )


def _record(llm: LLM, one: Measure, rates: list[float], floor: Floor | None) -> dict[str, Any]:
    best, median = max(rates), statistics.median(rates)
    rate = Rate(best, None if floor is None else _floor_rate(floor, one))
    return {
        "engine": "roofline",
        "measure": one.name,
        "tokens_per_s": round(best, 2),
        "median": round(median, 2),
        "spread": round((best - min(rates)) / median, 4),
        "floor_tokens_per_s": None if rate.floor_tokens_per_s is None else round(rate.floor_tokens_per_s, 2),
        "floor_share": None if rate.floor_share is None else round(rate.floor_share, 4),
        "threads": llm.config.num_threads,
        "kernels": llm.loaded.backend.kernel_tiers(),
        "context": 0 if one.is_prefill else DECODE_CONTEXT,
    }


def _floor_rate(floor: Floor, one: Measure) -> float:
    if one.is_prefill:
        return one.size / floor.prefill_s(one.size)
    middle = DECODE_CONTEXT + NUM_DECODE_STEPS // 2
    return one.size / floor.decode_step_s(middle, num_seqs=one.size)


def _line(record: dict[str, Any]) -> str:
    rate = Rate(record["tokens_per_s"], record["floor_tokens_per_s"])
    return f"{record['measure']:>12}  {rate.text()}, median {record['median']:.1f}, spread {record['spread']:.0%}"
