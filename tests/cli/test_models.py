"""`roofline models`: the list, paths, and errors with their way out."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from roofline.cli.main import app
from roofline.weights import hub
from roofline.weights.catalog import CATALOG


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOFLINE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path / "models"


def test_the_list_says_what_is_here(cache: Path) -> None:
    cache.mkdir()
    (cache / CATALOG["gemma3-270m"].file_name).write_bytes(b"x")
    result = CliRunner().invoke(app, ["models"])
    assert result.exit_code == 0
    lines = {line.split()[0]: line for line in result.output.splitlines() if line.strip()}
    assert " yes " in lines["gemma3-270m"]
    assert " no " in lines["smollm2-135m"]
    assert "98 MB" in lines["smollm2-135m"]
    assert "Apache-2.0" in lines["smollm2-135m"]


def test_path_prints_the_file_or_how_to_get_it(cache: Path) -> None:
    missing = CliRunner().invoke(app, ["models", "path", "smollm2-135m"])
    assert missing.exit_code == 2
    assert "roofline models get smollm2-135m" in missing.stderr
    assert missing.stdout == ""
    cache.mkdir()
    (cache / CATALOG["smollm2-135m"].file_name).write_bytes(b"x")
    found = CliRunner().invoke(app, ["models", "path", "smollm2-135m"])
    assert found.stdout.strip() == str(cache / CATALOG["smollm2-135m"].file_name)


def test_get_of_an_unknown_name_lists_the_known_ones(cache: Path) -> None:
    result = CliRunner().invoke(app, ["models", "get", "gpt-5"])
    assert result.exit_code == 2
    assert "'gpt-5'" in result.stderr
    assert "qwen2.5-coder-1.5b" in result.stderr
    assert "Traceback" not in result.stderr


def test_get_prints_the_path_alone(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir()
    monkeypatch.setattr(hub, "_hub_file", lambda model, partial, progress: partial.write_bytes(b"model"))
    monkeypatch.setattr(hub, "_check_digest", lambda path, model, progress: progress("checking", 5, 5))
    result = CliRunner().invoke(app, ["models", "get", "smollm2-135m"])
    assert result.stdout.strip() == str(cache / CATALOG["smollm2-135m"].file_name)
    assert Path(result.stdout.strip()).read_bytes() == b"model"
    everything = CliRunner().invoke(app, ["models", "get", "all"])
    assert everything.stdout.split() == [str(cache / model.file_name) for model in CATALOG.values()]
