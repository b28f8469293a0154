"""`roofline run`, `chat` and `bench` on the real SmolLM2: answers on the output, notes and errors on the error stream."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from roofline import LLM, SamplingParams
from roofline.cli.bench import Measure, decode_s, parse_measures, room_for
from roofline.cli.main import app
from roofline.core.ceilings import Bandwidth, Ceilings, Peak, ceilings_path, save_ceilings
from roofline.core.errors import RequestError
from roofline.core.hardware import probe
from support.fake_model import fake_engine

SMALL = ["--max-context", "256", "--threads", "2"]


@pytest.fixture
def smollm2(model_path: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The model by its path, with a cache folder of its own: no ceilings are measured there."""
    path = str(model_path("smollm2-135m"))
    monkeypatch.setenv("ROOFLINE_CACHE_DIR", str(tmp_path))
    return path


def invoke(*arguments: str, typed: str | None = None) -> Any:
    return CliRunner().invoke(app, list(arguments), input=typed)


def test_run_streams_the_librarys_answer(smollm2: str) -> None:
    result = invoke("run", smollm2, "Say hello.", "-n", "20", *SMALL)
    assert result.exit_code == 0, result.stderr
    with LLM(smollm2, threads=2, max_context=256) as llm:
        params = SamplingParams(temperature=0, max_tokens=20)
        assert result.stdout == llm.chat([{"role": "user", "content": "Say hello."}], params).text + "\n"
        raw = invoke("run", smollm2, "1, 2, 3, 4,", "--raw", "-n", "8", *SMALL)
        assert raw.stdout == llm.generate("1, 2, 3, 4,", SamplingParams(temperature=0, max_tokens=8))[0].text + "\n"


def test_run_says_how_to_measure_the_floor_and_quotes_it_once_measured(smollm2: str) -> None:
    before = invoke("run", smollm2, "Say hello.", "-n", "8", *SMALL)
    assert "tokens/s" in before.stderr
    assert "roofline doctor --measure" in before.stderr.replace("\n", " ")
    hardware = probe()
    ceilings = Ceilings(
        fingerprint={},
        measured_at="",
        bandwidths=(Bandwidth(1, 1 << 20, 1e9, 0.0), Bandwidth(1, 1 << 34, 1e9, 0.0)),
        peaks=tuple(Peak(isa, kind, 1, 1e12, 0.0) for isa in hardware.isa.tiers for kind in ("int8", "fp32")),
        barrier_s=1e-6,
        wake_s=1e-6,
    )
    save_ceilings(ceilings, ceilings_path(hardware, os.environ))
    after = invoke("run", smollm2, "Say hello.", "-n", "8", *SMALL)
    assert after.stderr.count("% of the floor") == 2
    record = json.loads(
        invoke("bench", smollm2, "--measure", "decode_b1", "--repeat", "1", "--json", "--threads", "2").stdout
    )
    # 97 MB of weights and a little KV at 1 GB/s: ten steps a second, and a little less.
    assert 8 < record["floor_tokens_per_s"] < 11
    assert record["floor_share"] == pytest.approx(record["tokens_per_s"] / record["floor_tokens_per_s"], rel=1e-2)


def test_an_empty_input_is_no_prompt() -> None:
    empty = invoke("run", "smollm2-135m", typed="")
    assert empty.exit_code == 2
    assert "there is no prompt" in empty.stderr


def test_run_reads_a_piped_prompt(smollm2: str) -> None:
    piped = invoke("run", smollm2, "--raw", "-n", "5", *SMALL, typed="1, 2, 3,")
    assert piped.stdout == invoke("run", smollm2, "1, 2, 3,", "--raw", "-n", "5", *SMALL).stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--top-p", "0"], "top_p must be"),
        (["--temperature", "nan"], "temperature must be"),
        (["--isa", "sse9"], "unknown kernel tier: 'sse9'"),
        (["--threads", "0"], "threads must be"),
        (["--max-context", "100000000"], "max_context must be"),
        (["--kv-dtype", "int3"], "kv_dtype must be one of"),
        (["--stop", ""], "stop[0] must be"),
    ],
)
def test_bad_values_are_errors_with_status_2_and_no_traceback(smollm2: str, arguments: list[str], words: str) -> None:
    result = invoke("run", smollm2, "x", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.output


def test_lim01_a_prompt_beyond_the_context_names_both_lengths(smollm2: str) -> None:
    result = invoke("run", smollm2, "word " * 200, "--raw", "--max-context", "64", "--threads", "2")
    assert result.exit_code == 2
    assert "64" in result.stderr
    assert "larger max_context" in result.stderr


def test_the_installed_command_in_a_process_of_its_own(smollm2: str) -> None:
    command = [sys.executable, "-c", "from roofline.cli.main import main; main()"]
    good = subprocess.run(
        [*command, "run", smollm2, "1, 2, 3, 4, 5,", "--raw", "-n", "6", *SMALL],
        capture_output=True,
        text=True,
        check=False,
    )
    assert good.returncode == 0, good.stderr
    assert good.stdout.startswith(" 6, 7")
    bad = subprocess.run([*command, "run", "no-such-model", "x"], capture_output=True, text=True, check=False)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.startswith("error: no model 'no-such-model'")


# --- chat ----------------------------------------------------------------------------------------------------------------------------


def test_chat_keeps_the_history_until_reset(smollm2: str) -> None:
    greedy = ["--temperature", "0", "-n", "12", *SMALL]
    result = invoke(
        "chat",
        smollm2,
        *greedy,
        typed="My name is Ann.\nWhat did I say?\n/reset\nWhat did I say?\n/help\n/exit\nnever read\n",
    )
    assert result.exit_code == 0, result.stderr
    with LLM(smollm2, threads=2, max_context=256) as llm:
        params = SamplingParams(temperature=0, max_tokens=12, top_p=0.9)
        first = [{"role": "user", "content": "My name is Ann."}]
        answers = [llm.chat(first, params).text]
        question = {"role": "user", "content": "What did I say?"}
        answers.append(llm.chat([*first, {"role": "assistant", "content": answers[0]}, question], params).text)
        answers.append(llm.chat([question], params).text)
    assert all(answer in result.stdout for answer in answers)
    assert answers[1] != answers[2]


def test_chat_survives_an_overlong_question_and_ends_with_the_input(smollm2: str) -> None:
    result = invoke("chat", smollm2, "-n", "8", *SMALL, typed="word " * 400 + "\nHello\n")
    assert result.exit_code == 0
    assert "the context holds 256" in result.stderr.replace("\n", " ")
    assert result.stderr.count("tokens/s") == 2


def test_ctrl_c_stops_the_answer_and_not_the_chat(smollm2: str, monkeypatch: pytest.MonkeyPatch) -> None:
    echo, pieces = typer.echo, []

    def interrupting_echo(message: str = "", nl: bool = True, **rest: Any) -> None:
        echo(message, nl=nl, **rest)
        pieces.append(message)
        if len(pieces) == 3:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(typer, "echo", interrupting_echo)
    result = invoke(
        "chat", smollm2, "-n", "100", "--max-context", "512", typed="Tell me a long story about rain.\nHello\n"
    )
    assert result.exit_code == 0
    assert result.stderr.count("prefill") == 2
    assert len(pieces) > 4
    assert pieces[3] == ""  # the end of the first answer's line, right after the third piece


# --- bench ---------------------------------------------------------------------------------------------------------------------------


def test_bench_prints_one_object_a_line(smollm2: str) -> None:
    result = invoke("bench", smollm2, "--measure", "prefill64,decode_b2", "--repeat", "1", "--threads", "2", "--json")
    assert result.exit_code == 0, result.stderr
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert [record["measure"] for record in records] == ["prefill64", "decode_b2"]
    for record in records:
        assert list(record) == [
            "engine", "measure", "tokens_per_s", "median", "spread", "floor_tokens_per_s", "floor_share", "threads", "kernels", "context",
        ]  # fmt: skip
        assert record["tokens_per_s"] >= record["median"] > 0
        assert record["threads"] == 2
        assert record["floor_tokens_per_s"] is None
    assert [record["context"] for record in records] == [0, 128]


def test_streams_that_do_not_all_run_in_each_step_are_no_measure() -> None:
    """The rate would count tokens of streams that waited."""
    engine = fake_engine(max_tokens_per_step=1, max_context=16)
    with pytest.raises(RequestError, match="1 of 2 streams") as caught:
        decode_s(engine, [[65, 66], [67, 68]])
    assert "--max-tokens-per-step" in caught.value.hint
    assert not engine.has_work


def test_measures_are_checked_and_get_room() -> None:
    measures = parse_measures("prefill2048, decode_b32")
    assert measures == [Measure("prefill2048", True, 2048), Measure("decode_b32", False, 32)]
    room = room_for(measures)
    assert room["max_context"] == 2049
    assert room["max_sequences"] == 32
    assert room["num_blocks"] * 32 >= 32 * (128 + 64)
    for bad in ("", "prefill", "prefill0", "decode_b-1", "latency"):
        with pytest.raises(RequestError, match="there is no measure"):
            parse_measures(bad)
