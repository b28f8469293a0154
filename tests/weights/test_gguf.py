"""GGUF files that the `gguf` package writes are read back equal: metadata, shapes, bytes, split files, real models."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from roofline.core.errors import ModelFormatError, ModelNotFoundError
from roofline.weights.checkpoint import open_checkpoint
from roofline.weights.schemes import SCHEMES
from support.gguf_bytes import ARRAY, STRING, array, gguf_bytes, key_value, string
from support.random_blocks import random_blocks

METADATA = {
    "u8": (gguf.GGUFValueType.UINT8, 200),
    "i8": (gguf.GGUFValueType.INT8, -100),
    "u16": (gguf.GGUFValueType.UINT16, 65535),
    "i16": (gguf.GGUFValueType.INT16, -32768),
    "u32": (gguf.GGUFValueType.UINT32, 4294967295),
    "i32": (gguf.GGUFValueType.INT32, -7),
    "u64": (gguf.GGUFValueType.UINT64, 2**64 - 1),
    "i64": (gguf.GGUFValueType.INT64, -(2**63)),
    "f32": (gguf.GGUFValueType.FLOAT32, 0.5),
    "f64": (gguf.GGUFValueType.FLOAT64, 0.1),
    "yes": (gguf.GGUFValueType.BOOL, True),
    "no": (gguf.GGUFValueType.BOOL, False),
    "text": (gguf.GGUFValueType.STRING, "héllo 世界 😊"),
}


def write_gguf(path: Path, tensors: dict[str, tuple[str, np.ndarray]], **arrays: list[object]) -> Path:
    """`tensors` maps a name to its scheme name and its u8 rows."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, (kind, value) in METADATA.items():
        writer.add_key_value(key, value, kind)
    for key, values in arrays.items():
        writer.add_array(key, values)
    for name, (scheme_name, raw) in tensors.items():
        writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[scheme_name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_vocabulary_of_262144_reads_in_under_a_second(tmp_path: Path) -> None:
    tokens = b"".join(string(f"token{index}") for index in range(262144))
    path = tmp_path / "a.gguf"
    path.write_bytes(gguf_bytes(key_values=[key_value("tokens", ARRAY, array(STRING, 262144, tokens))]))
    start_s = time.process_time()
    metadata = open_checkpoint(path).metadata
    assert time.process_time() - start_s < 1
    assert metadata["tokens"][::65536] == ["token0", "token65536", "token131072", "token196608"]


def one_tensor_of_each_scheme() -> dict[str, tuple[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return {f"{name}.weight": (name, random_blocks(name, 3, 512, rng)) for name in SCHEMES}


def test_metadata_and_arrays_read_back_as_plain_python(tmp_path: Path) -> None:
    tokens = ["<s>", "", "Ġthe", "世", "a" * 300]
    arrays = {"tokens": tokens, "scores": [0.0, -1.5, 3.25], "types": [1, -2, 3], "flags": [True, False]}
    metadata = open_checkpoint(write_gguf(tmp_path / "a.gguf", {}, **arrays)).metadata
    for key, (_, value) in METADATA.items():
        assert metadata[key] == value
        assert type(metadata[key]) is type(value)
    assert {key: metadata[key] for key in arrays} == arrays
    assert metadata["general.architecture"] == "llama"


def test_tensors_of_every_scheme_match_gguf_package(tmp_path: Path) -> None:
    tensors = one_tensor_of_each_scheme()
    path = write_gguf(tmp_path / "a.gguf", tensors)
    checkpoint = open_checkpoint(path)
    assert list(checkpoint.tensors) == list(tensors)
    assert (checkpoint.path, checkpoint.format) == (path, "gguf")
    assert checkpoint.nbytes == sum(raw.nbytes for _, raw in tensors.values())
    for theirs in gguf.GGUFReader(path).tensors:
        ours = checkpoint.tensors[theirs.name]
        assert ours.shape == tuple(theirs.shape[::-1].tolist()) == (3, 512)
        assert ours.data.tobytes() == theirs.data.tobytes() == tensors[theirs.name][1].tobytes()
        expected = gguf.quants.dequantize(theirs.data, theirs.tensor_type)
        np.testing.assert_array_equal(ours.dequantized(), expected)


def test_three_dimensional_expert_tensor_keeps_its_order(tmp_path: Path) -> None:
    experts = np.arange(4 * 6 * 32, dtype=np.float32).reshape(4, 6, 32)
    path = tmp_path / "a.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("blk.0.ffn_gate_exps.weight", experts)
    writer.add_tensor("blk.0.norm.weight", experts[0, 0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tensors = open_checkpoint(path).tensors
    np.testing.assert_array_equal(tensors["blk.0.ffn_gate_exps.weight"].dequantized(), experts)
    assert tensors["blk.0.norm.weight"].shape == (32,)
    np.testing.assert_array_equal(tensors["blk.0.norm.weight"].dequantized(), experts[0, 0])


def test_tensor_data_is_a_read_only_view_and_survives_release(tmp_path: Path) -> None:
    raw = random_blocks("F32", 64, 4096, np.random.default_rng(2))  # 1 MiB: whole pages inside
    tensor = open_checkpoint(write_gguf(tmp_path / "a.gguf", {"w": ("F32", raw)})).tensors["w"]
    assert tensor.data.base is not None
    assert not tensor.data.flags.writeable
    before = tensor.dequantized()
    tensor.release()
    np.testing.assert_array_equal(tensor.dequantized(), before)


def resident_bytes_of_file_pages() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssFile:")[1].split()[0]) * 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see resident pages")
def test_mem01_release_gives_the_pages_back(tmp_path: Path) -> None:
    raw = np.zeros((64, 1 << 20), np.uint8)
    tensor = open_checkpoint(write_gguf(tmp_path / "a.gguf", {"w": ("F32", raw)})).tensors["w"]
    assert int(tensor.data.sum()) == 0  # touches every page
    touched = resident_bytes_of_file_pages()
    tensor.release()
    assert resident_bytes_of_file_pages() <= touched - 0.9 * raw.nbytes


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see resident pages")
def test_mem01_rows_are_released_part_by_part(tmp_path: Path) -> None:
    raw = np.zeros((64, 1 << 20), np.uint8)
    tensor = open_checkpoint(write_gguf(tmp_path / "a.gguf", {"w": ("F32", raw)})).tensors["w"]
    assert int(tensor.data.sum()) == 0
    touched = resident_bytes_of_file_pages()
    tensor.release(16, 48)
    left = resident_bytes_of_file_pages()
    assert touched - 0.6 * raw.nbytes < left < touched - 0.4 * raw.nbytes


def test_mem02_prefetch_changes_no_byte(tmp_path: Path) -> None:
    """Tensors start and end inside pages, and the last one ends with the file."""
    raw = random_blocks("F32", 3, 4097, np.random.default_rng(3))
    tensors = open_checkpoint(write_gguf(tmp_path / "a.gguf", {"v": ("F32", raw), "w": ("F32", raw)})).tensors
    for tensor in tensors.values():
        tensor.prefetch()
        np.testing.assert_array_equal(tensor.data, raw.reshape(-1))


def test_any_file_name_is_gguf_by_its_magic(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "sha256-0badcafe", one_tensor_of_each_scheme())
    assert open_checkpoint(path).format == "gguf"


def split_gguf(folder: Path) -> list[Path]:
    """Three parts of two tensors each."""
    rows = random_blocks("Q8_0", 8, 64, np.random.default_rng(4))
    writer = gguf.GGUFWriter(folder / "m.gguf", "llama", split_max_tensors=2)
    for index in range(6):
        writer.add_tensor(f"t{index}", rows + np.uint8(0), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.glob("m-*.gguf"))


def test_split_file_is_opened_by_its_first_part(tmp_path: Path) -> None:
    parts = split_gguf(tmp_path)
    assert len(parts) == 3
    checkpoint = open_checkpoint(parts[0])
    assert sorted(checkpoint.tensors) == [f"t{index}" for index in range(6)]


def test_split_file_names_absent_parts(tmp_path: Path) -> None:
    parts = split_gguf(tmp_path)
    parts[1].unlink()
    parts[2].unlink()
    with pytest.raises(ModelNotFoundError, match=r"m-00002-of-00003\.gguf, m-00003-of-00003\.gguf"):
        open_checkpoint(parts[0])


def test_later_part_of_a_split_file_is_refused(tmp_path: Path) -> None:
    parts = split_gguf(tmp_path)
    with pytest.raises(ModelFormatError, match=r"open m-00001-of-00003\.gguf"):
        open_checkpoint(parts[1])


def test_swapped_parts_of_a_split_file_are_refused(tmp_path: Path) -> None:
    parts = split_gguf(tmp_path)
    parts[2].write_bytes(parts[1].read_bytes())
    with pytest.raises(ModelFormatError, match="is part 2 of 3, not 3 of 3"):
        open_checkpoint(parts[0])


REAL_MODELS = [
    "smollm2-135m",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("gemma3-270m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")
    ),
]


@pytest.mark.model
@pytest.mark.parametrize("name", REAL_MODELS)
def test_real_model_matches_gguf_package(name: str, model_path: Callable[[str], Path]) -> None:
    path = model_path(name)
    checkpoint = open_checkpoint(path)
    reader = gguf.GGUFReader(path)
    assert len(reader.tensors) == len(checkpoint.tensors)
    for theirs in reader.tensors:
        ours = checkpoint.tensors[theirs.name]
        assert ours.shape == tuple(theirs.shape[::-1].tolist())
        assert ours.scheme.name == theirs.tensor_type.name
        assert ours.source_offset == theirs.data_offset
        assert ours.nbytes == theirs.n_bytes
    layer = next(tensor for tensor in reader.tensors if tensor.name.endswith("ffn_down.weight"))
    expected = gguf.quants.dequantize(layer.data, layer.tensor_type)
    np.testing.assert_array_equal(checkpoint.tensors[layer.name].dequantized(), expected)


@pytest.mark.model
@pytest.mark.slow
def test_real_vocabulary_matches_gguf_package(model_path: Callable[[str], Path]) -> None:
    path = model_path("gemma3-270m")
    metadata = open_checkpoint(path).metadata
    fields = gguf.GGUFReader(path).fields
    for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type"):
        assert len(metadata[key]) == 262144
        assert metadata[key][::97] == fields[key].contents(slice(None, None, 97))
