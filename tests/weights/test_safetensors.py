"""Hugging Face folders: equal to what the `safetensors` package wrote, and the user reports ST-01, ST-02 and ST-04."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from roofline.core.errors import ModelFormatError, ModelNotFoundError, RooflineError, UnsupportedModelError
from roofline.weights.checkpoint import open_checkpoint
from roofline.weights.safetensors import read_safetensors

INDEX_NAME = "model.safetensors.index.json"
SHARD_1, SHARD_2 = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
RNG = np.random.default_rng(0)
FIRST = {"embed": RNG.standard_normal((10, 6), np.float32), "norm": RNG.standard_normal(6).astype(np.float16)}
SECOND = {"head": RNG.standard_normal((10, 6), np.float32)}


def write_config(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 6}))


def write_index(folder: Path, weight_map: dict[str, Any]) -> None:
    (folder / INDEX_NAME).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))


@pytest.fixture
def single(tmp_path: Path) -> Path:
    write_config(tmp_path)
    save_file(FIRST | SECOND, tmp_path / "model.safetensors", metadata={"format": "pt"})
    return tmp_path


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    write_config(tmp_path)
    save_file(FIRST, tmp_path / SHARD_1)
    save_file(SECOND, tmp_path / SHARD_2)
    write_index(tmp_path, {"embed": SHARD_1, "norm": SHARD_1, "head": SHARD_2})
    return tmp_path


def assert_holds_clean_model(folder: Path) -> None:
    tensors = open_checkpoint(folder).tensors
    assert set(tensors) == {"embed", "norm", "head"}
    for name, expected in (FIRST | SECOND).items():
        assert tensors[name].shape == expected.shape
        np.testing.assert_array_equal(tensors[name].dequantized(), expected.astype(np.float32))


def raw_file(path: Path, header: dict[str, Any] | bytes, data: bytes = b"") -> Path:
    """A file from any header, sound or not."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def f32(begin: int, end: int, shape: list[Any]) -> dict[str, Any]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}


def test_single_file_folder(single: Path) -> None:
    assert_holds_clean_model(single)
    checkpoint = open_checkpoint(single)
    assert (checkpoint.path, checkpoint.format) == (single, "huggingface")
    assert checkpoint.metadata["model_type"] == "llama"
    assert checkpoint.nbytes == 60 * 4 + 6 * 2 + 60 * 4


def test_single_file_by_its_own_path(single: Path) -> None:
    checkpoint = open_checkpoint(single / "model.safetensors")
    assert checkpoint.path == single
    assert set(checkpoint.tensors) == {"embed", "norm", "head"}


def test_sharded_folder(sharded: Path) -> None:
    assert_holds_clean_model(sharded)


def test_bf16_matches_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_torch

    values = torch.randn(5, 7).to(torch.bfloat16)
    write_config(tmp_path)
    save_torch({"w": values}, tmp_path / "model.safetensors")
    ours = open_checkpoint(tmp_path).tensors["w"].dequantized()
    np.testing.assert_array_equal(ours, values.to(torch.float32).numpy())


def test_scalar_and_empty_tensors(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"scalar": np.array(2.5, np.float32), "empty": np.zeros((0, 4), np.float32)}, path)
    tensors = read_safetensors(path)
    assert tensors["scalar"].dequantized() == np.float32(2.5)
    assert tensors["empty"].dequantized().shape == (0, 4)


def test_st01_missing_shards_are_all_listed(sharded: Path) -> None:
    (sharded / SHARD_1).unlink()
    (sharded / SHARD_2).unlink()
    with pytest.raises(ModelNotFoundError, match=f"{SHARD_1}, {SHARD_2}"):
        open_checkpoint(sharded)


def test_st01_tensor_of_the_index_absent_from_its_shard(sharded: Path) -> None:
    save_file({"embed": FIRST["embed"]}, sharded / SHARD_1)
    with pytest.raises(ModelFormatError, match="'norm' of model-00001"):
        open_checkpoint(sharded)


@pytest.mark.parametrize("num_bytes_cut", [1, 100, 200])
def test_st02_cut_file_says_how_many_bytes_are_missing(single: Path, num_bytes_cut: int) -> None:
    path = single / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-num_bytes_cut])
    with pytest.raises(ModelFormatError, match=f"{num_bytes_cut} bytes are missing"):
        open_checkpoint(single)


@pytest.mark.parametrize("num_bytes_kept", [0, 1, 7, 8, 9, 50])
def test_st02_file_cut_inside_its_header(single: Path, num_bytes_kept: int) -> None:
    path = single / "model.safetensors"
    path.write_bytes(path.read_bytes()[:num_bytes_kept])
    with pytest.raises(ModelFormatError, match=r"missing|empty|can't hold"):
        open_checkpoint(single)


def test_st02_leftover_bytes_are_refused(single: Path) -> None:
    path = single / "model.safetensors"
    path.write_bytes(path.read_bytes() + b"\0\0\0")
    with pytest.raises(ModelFormatError, match="3 bytes are left over"):
        open_checkpoint(single)


HOSTILE_HEADERS: dict[str, tuple[dict[str, Any] | bytes, str]] = {
    "array": (b"[1]", "must be a JSON object, not list"),
    "broken": (b'{"a":', "not valid JSON"),
    "empty": (b"", "not valid JSON"),
    "not utf-8": (b'{"\xff": 1}', "not valid JSON"),
    "deep": (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    "long number": (b'{"a": ' + b"9" * 10_000 + b"}", "not valid JSON"),
    "twice": (b'{"a":1,"a":2}', "key 'a' occurs twice"),
    "field twice": (b'{"a":{"dtype":"F32","dtype":"F16"}}', "key 'dtype' occurs twice"),
    "overlap": ({"a": f32(0, 8, [2]), "b": f32(4, 16, [3])}, "'b' at offset 4 overlaps"),
    "same range": ({"a": f32(0, 16, [4]), "b": f32(0, 16, [4])}, "overlaps"),
    "gap": ({"a": f32(0, 4, [1]), "b": f32(8, 16, [2])}, "'b' at offset 8 leaves a gap"),
    "gap first": ({"a": f32(4, 16, [3])}, "leaves a gap"),
    "shape product": ({"a": f32(0, 16, [5])}, "is 20 bytes, data_offsets span 16"),
    "overflow": ({"a": f32(0, 16, [2**62, 2**62])}, "data_offsets span 16"),
    "reversed": ({"a": f32(16, 0, [4])}, "span -16"),
    "negative": ({"a": f32(0, 16, [-4])}, "whole numbers"),
    "bool": ({"a": f32(0, 4, [True])}, "whole numbers"),
    "float": ({"a": f32(0, 16, [4.0])}, "whole numbers"),
    "too many dims": ({"a": f32(0, 16, [1] * 8 + [4])}, "at most 8"),
    "huge offset": ({"a": f32(0, 2**64, [2**62])}, "data_offsets must be"),
    "three offsets": ({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 8, 16]}}, "data_offsets must be"),
    "no dtype": ({"a": {"shape": [4], "data_offsets": [0, 16]}}, "exactly dtype"),
    "extra field": ({"a": f32(0, 16, [4]) | {"order": "F"}}, "exactly dtype"),
    "not an entry": ({"a": 7}, "exactly dtype"),
    "metadata": ({"__metadata__": {"n": 1}, "a": f32(0, 16, [4])}, "__metadata__"),
}


@pytest.mark.parametrize("case", HOSTILE_HEADERS)
def test_st02_hostile_header_is_refused(case: str, tmp_path: Path) -> None:
    header, message = HOSTILE_HEADERS[case]
    path = raw_file(tmp_path / "model.safetensors", header, bytes(16))
    with pytest.raises(ModelFormatError, match=message):
        read_safetensors(path)


@pytest.mark.parametrize("length", [2**63, 2**64 - 1, 100_000_001, 17])
def test_st02_header_length_beyond_the_file(tmp_path: Path, length: int) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + b"{}" + bytes(14))
    with pytest.raises(ModelFormatError, match=r"over the limit|bytes are missing"):
        read_safetensors(path)


@pytest.mark.parametrize("dtype", ["I64", "F8_E4M3", "nonsense", ["F32"], None])
def test_other_dtypes_are_named(tmp_path: Path, dtype: object) -> None:
    header = {"a": {"dtype": dtype, "shape": [2], "data_offsets": [0, 16]}}
    path = raw_file(tmp_path / "model.safetensors", header, bytes(16))
    with pytest.raises(UnsupportedModelError, match=r"tensor 'a': dtype .* isn't supported"):
        read_safetensors(path)


def test_st04_stray_file_and_stale_copy_change_nothing(sharded: Path) -> None:
    save_file({name: np.zeros_like(value) for name, value in (FIRST | SECOND).items()}, sharded / "model.safetensors")
    save_file(SECOND | {"embed": np.zeros((10, 6), np.float32)}, sharded / SHARD_2)
    assert_holds_clean_model(sharded)


def test_st04_two_files_without_an_index_are_ambiguous(sharded: Path) -> None:
    (sharded / INDEX_NAME).unlink()
    with pytest.raises(ModelFormatError, match="2 safetensors files"):
        open_checkpoint(sharded)


def test_st04_stray_file_beside_the_single_one_is_not_read(single: Path) -> None:
    save_file({"embed": np.zeros((10, 6), np.float32)}, single / "consolidated.safetensors")
    assert_holds_clean_model(single)


def test_one_shard_alone_is_refused(sharded: Path) -> None:
    with pytest.raises(ModelFormatError, match="give the folder"):
        open_checkpoint(sharded / SHARD_1)


BAD_SHARD_NAMES = [
    *("../out.safetensors", "/etc/a.safetensors", "sub/a.safetensors", "a\\b.safetensors", "a\0.safetensors"),
    *("..", "", "a.bin", 7, "x" * 5000 + ".safetensors", "\ud800.safetensors"),
]


@pytest.mark.parametrize("shard", BAD_SHARD_NAMES)
def test_shard_names_can_not_leave_the_folder(sharded: Path, shard: object) -> None:
    write_index(sharded, {"embed": shard})
    with pytest.raises(ModelFormatError, match=r"must be a \.safetensors file name"):
        open_checkpoint(sharded)


BROKEN_INDEXES = ['{"weight_map": {}}', "{}", '{"weight_map": []}', "[]", '{"weight_map": {"a": 1, "a": 2}}']


@pytest.mark.parametrize("text", BROKEN_INDEXES)
def test_broken_index_is_refused(sharded: Path, text: str) -> None:
    (sharded / INDEX_NAME).write_text(text)
    with pytest.raises(ModelFormatError, match=INDEX_NAME):
        open_checkpoint(sharded)


def test_config_is_required(single: Path) -> None:
    (single / "config.json").unlink()
    with pytest.raises(ModelNotFoundError, match=r"no config\.json"):
        open_checkpoint(single)


@pytest.mark.parametrize("text", ["[]", "{", '{"a": 1, "a": 2}'])
def test_broken_config_is_refused(single: Path, text: str) -> None:
    (single / "config.json").write_text(text)
    with pytest.raises(ModelFormatError, match=r"config\.json"):
        open_checkpoint(single)


def no_such_path(folder: Path) -> Path:
    return folder / "nothing"


def empty_folder(folder: Path) -> Path:
    return folder


def folder_of_gguf(folder: Path) -> Path:
    (folder / "model.Q4_K_M.gguf").touch()
    return folder


def folder_of_pickles(folder: Path) -> Path:
    (folder / "pytorch_model.bin").touch()
    return folder


def text_file(folder: Path) -> Path:
    (folder / "notes.txt").write_text("hello")
    return folder / "notes.txt"


def overlong_name(folder: Path) -> Path:
    return folder / ("x" * 300)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (no_such_path, "no such file"),
        (empty_folder, "no model in this folder"),
        (folder_of_gguf, r"model\.Q4_K_M\.gguf"),
        (folder_of_pickles, "convert to safetensors"),
        (text_file, "neither a GGUF nor"),
        (overlong_name, "can't be opened"),
    ],
)
def test_path_that_holds_no_model(make: Callable[[Path], Path], message: str, tmp_path: Path) -> None:
    with pytest.raises(RooflineError, match=message) as caught:
        open_checkpoint(make(tmp_path))
    assert caught.value.hint
