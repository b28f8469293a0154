"""Damaged and hostile GGUF files: user reports GGUF-01, GGUF-02 and GGUF-03. Each must end in an error that says why."""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import pytest

from roofline.core.errors import ModelFormatError, UnsupportedModelError
from roofline.weights.checkpoint import open_checkpoint
from support.gguf_bytes import (
    ARRAY,
    BOOL,
    FLOAT32,
    STRING,
    TYPE_Q4_0,
    UINT8,
    UINT32,
    TensorInfo,
    array,
    gguf_bytes,
    key_value,
    string,
    uint32,
    uint64,
)

SOUND = gguf_bytes(
    tensors=[TensorInfo("a", (32,)), TensorInfo("b", (64, 2), TYPE_Q4_0, 128)],
    key_values=[key_value("general.architecture", STRING, string("llama")), key_value("n", UINT32, uint32(7))],
    data_bytes=128 + 72,
)


def assert_refused(content: bytes, message: str, folder: Path) -> None:
    """ModelFormatError with the file's name and `message`, in under a second and 4 MB."""
    path = folder / "x.gguf"
    path.write_bytes(content)
    assert_refused_at(path, message)


def assert_refused_at(path: Path, message: str) -> None:
    tracemalloc.start()
    start_s = time.process_time()
    with pytest.raises(ModelFormatError, match=message) as caught:
        open_checkpoint(path)
    elapsed_s = time.process_time() - start_s
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(path) in caught.value.message
    assert elapsed_s < 1
    assert peak_bytes < 4 << 20


def test_sound_file_of_the_builder_opens(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(SOUND)
    checkpoint = open_checkpoint(path)
    assert checkpoint.metadata == {"general.architecture": "llama", "n": 7}
    assert {name: tensor.shape for name, tensor in checkpoint.tensors.items()} == {"a": (32,), "b": (2, 64)}


BAD_SHAPES = {
    "2^42+1": (TensorInfo(dims=(2**42 + 1,)), "bytes are missing"),
    "2^63 by 2": (TensorInfo(dims=(2**63, 2)), "product under 2\\^63"),
    "wraps to a small size": (TensorInfo(dims=(2**32, 2**32)), "product under 2\\^63"),
    "wraps to a small size in bytes": (TensorInfo(dims=(2**31, 2**31)), "bytes are missing"),
    "-1 as unsigned": (TensorInfo(dims=(2**64 - 1, 2, 1, 1)), "product under 2\\^63"),
    "-2^63 as unsigned": (TensorInfo(dims=(2**63,)), "product under 2\\^63"),
    "zero": (TensorInfo(dims=(0,)), "at least 1"),
    "zero hides a huge one": (TensorInfo(dims=(2**63, 0)), "at least 1"),
    "no dimension": (TensorInfo(dims=()), "has 0 dimensions"),
    "5 dimensions": (TensorInfo(dims=(1,) * 5), "has 5 dimensions"),
    "9 dimensions": (TensorInfo(dims=(1,) * 9), "has 9 dimensions"),
    "2^32-1 dimensions": (TensorInfo(num_dims=2**32 - 1), "has 4294967295 dimensions"),
    "part of a block": (TensorInfo(dims=(33,), type_id=TYPE_Q4_0), "rows of 33 aren't a multiple of 32"),
}


@pytest.mark.parametrize("case", BAD_SHAPES)
def test_gguf01_bad_dimensions(case: str, tmp_path: Path) -> None:
    info, message = BAD_SHAPES[case]
    assert_refused(gguf_bytes(tensors=[info]), message, tmp_path)


NESTED_1000 = key_value("k", ARRAY, array(ARRAY, 1) * 999 + array(UINT8, 0))
BAD_METADATA = {
    "empty key": (key_value("", UINT32, uint32(1)), "key 0 has 0 characters"),
    "key of 70 000": (key_value("k" * 70_000, UINT32, uint32(1)), "key 0 has 70000 characters"),
    "key not utf-8": (key_value(b"\xff\xfe", UINT32, uint32(1)), "key 0 is not UTF-8"),
    "string of 2^63": (key_value("k", STRING, string("", length=2**63)), "bytes are missing"),
    "string of 2^64-1": (key_value("k", STRING, string("", length=2**64 - 1)), "bytes are missing"),
    "string not utf-8": (key_value("k", STRING, string(b"ab\xff")), "'k' is not UTF-8: .* at its byte 2"),
    "array of 2^62": (key_value("k", ARRAY, array(FLOAT32, 2**62)), "a header may hold"),
    "array of 2^24": (key_value("k", ARRAY, array(UINT8, 2**24)), "bytes are missing"),
    "arrays of 2^24 in all": (key_value("k", ARRAY, array(ARRAY, 2, array(UINT8, 2**24 - 1))), "a header may hold"),
    "strings past the end": (key_value("k", ARRAY, array(STRING, 99)), "claims 99 items"),
    "string array cut": (key_value("k", ARRAY, array(STRING, 3, string("a") * 2 + uint64(999))), "past the end"),
    "string array not utf-8": (key_value("k", ARRAY, array(STRING, 2, string("a") + string(b"\xc3"))), r"'k'\[1\]"),
    "arrays past the end": (key_value("k", ARRAY, array(ARRAY, 99)), "claims 99 items"),
    "nested 1000 deep": (NESTED_1000, "nested more than 4 deep"),
    "type 99": (key_value("k", 99, uint32(1)), "'k' has value type 99"),
    "array of type 99": (key_value("k", ARRAY, array(99, 1, uint32(1))), "'k' has value type 99"),
    "bool of 2": (key_value("k", BOOL, b"\2"), "neither 0 nor 1"),
    "twice": (key_value("k", UINT32, uint32(1)) + key_value("k", UINT32, uint32(1)), "'k' occurs twice"),
}


@pytest.mark.parametrize("case", BAD_METADATA)
def test_gguf02_bad_metadata(case: str, tmp_path: Path) -> None:
    raw, message = BAD_METADATA[case]
    num_key_values = 2 if case == "twice" else 1
    assert_refused(gguf_bytes(key_values=[raw], num_key_values=num_key_values), message, tmp_path)


def test_gguf02_header_as_long_as_a_large_file(tmp_path: Path) -> None:
    """Every byte that the string claims exists, but no header is that long: it must not be copied."""
    path = tmp_path / "large.gguf"
    path.write_bytes(gguf_bytes(key_values=[key_value("k", STRING, string("", length=2**28))]))
    os.truncate(path, 2**28 + 4096)  # sparse: takes no room on the disk
    assert_refused_at(path, "'k' needs 268435456 bytes .* a header may have 268435456")


@pytest.mark.parametrize("alignment", [0, 1, 3, 24, 2**17, 2**31, 2**32 - 1])
def test_gguf02_bad_alignment(alignment: int, tmp_path: Path) -> None:
    raw = key_value("general.alignment", UINT32, uint32(alignment))
    assert_refused(gguf_bytes(key_values=[raw]), f"general.alignment is {alignment}", tmp_path)


@pytest.mark.parametrize(("type_id", "value"), [(STRING, string("32")), (FLOAT32, uint32(0x42000000)), (BOOL, b"\1")])
def test_gguf02_alignment_of_another_type(type_id: int, value: bytes, tmp_path: Path) -> None:
    raw = key_value("general.alignment", type_id, value)
    assert_refused(gguf_bytes(key_values=[raw]), "general.alignment is", tmp_path)


def test_alignment_of_64_is_honoured(tmp_path: Path) -> None:
    raw = key_value("general.alignment", UINT32, uint32(64))
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_bytes(key_values=[raw], tensors=[TensorInfo()], alignment=64))
    assert open_checkpoint(path).tensors["a"].source_offset % 64 == 0


PRELUDES = {
    "2^62 tensors": (gguf_bytes(num_tensors=2**62), "tensor count claims"),
    "2^62 keys": (gguf_bytes(num_key_values=2**62), "metadata count claims"),
    "version 0": (gguf_bytes(version=uint32(0)), "version 0 is not supported"),
    "version 1": (gguf_bytes(version=uint32(1)), "version 1 is not supported"),
    "version 99": (gguf_bytes(version=uint32(99)), "version 99 is not supported"),
    "big-endian version": (gguf_bytes(version=b"\0\0\0\3"), "big-endian"),
    "big-endian magic": (gguf_bytes(magic=b"FUGG"), "big-endian"),
    "another magic": (gguf_bytes(magic=b"ggml"), "not a GGUF file"),
    "an error page": (b"<!DOCTYPE html><html>not found</html>", "not a GGUF file"),
    "empty": (b"", "is empty"),
}


@pytest.mark.parametrize("case", PRELUDES)
def test_gguf02_bad_prelude(case: str, tmp_path: Path) -> None:
    content, message = PRELUDES[case]
    assert_refused(content, message, tmp_path)


DIRECTORIES = {
    "one name twice": ([TensorInfo("a"), TensorInfo("a", offset=128)], "tensor 'a' occurs twice"),
    "no name": ([TensorInfo("")], "name of tensor 0 has 0 characters"),
    "same offset": ([TensorInfo("a"), TensorInfo("b")], "'a' and 'b' overlap"),
    "overlap": ([TensorInfo("a"), TensorInfo("b", offset=96)], "'a' and 'b' overlap at offset 96"),
    "misaligned": ([TensorInfo("a", offset=4)], "offset 4 isn't a multiple of 32"),
    "past the end": ([TensorInfo("a", offset=2**40)], "bytes are missing"),
    "offset near 2^64": ([TensorInfo("a", offset=2**64 - 32)], "bytes are missing"),
}


@pytest.mark.parametrize("case", DIRECTORIES)
def test_gguf02_bad_directory(case: str, tmp_path: Path) -> None:
    tensors, message = DIRECTORIES[case]
    assert_refused(gguf_bytes(tensors=tensors, data_bytes=256), message, tmp_path)


@pytest.mark.parametrize(("type_id", "name"), [(200, "unknown"), (16, "IQ2_XXS"), (26, "I32"), (4, "unknown")])
def test_gguf02_other_tensor_types_are_named(type_id: int, name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_bytes(tensors=[TensorInfo("blk.0.w", type_id=type_id)]))
    with pytest.raises(UnsupportedModelError, match=rf"'blk.0.w' has type {type_id} \({name}\)") as caught:
        open_checkpoint(path)
    assert "Q4_K" in caught.value.hint


@pytest.mark.parametrize("num_bytes", [len(SOUND) - 1, *(len(SOUND) * percent // 100 for percent in (90, 50, 10, 1))])
def test_gguf03_truncated(num_bytes: int, tmp_path: Path) -> None:
    assert_refused(SOUND[:num_bytes], r"missing|left", tmp_path)


def test_gguf03_message_has_expected_and_actual_size(tmp_path: Path) -> None:
    message = f"ends at byte {len(SOUND)}, but the file has {len(SOUND) - 50} bytes: 50 bytes are missing"
    assert_refused(SOUND[:-50], message, tmp_path)


def test_gguf03_header_alone(tmp_path: Path) -> None:
    """Cut where the data begins: the header is whole, so only the sizes tell."""
    assert_refused(SOUND[: len(SOUND) - 200], "200 bytes are missing", tmp_path)


def test_gguf03_every_truncation_is_refused(tmp_path: Path) -> None:
    for num_bytes in range(len(SOUND)):
        assert_refused(SOUND[:num_bytes], ".", tmp_path)


@pytest.mark.parametrize("key", ["split.count", "split.no", "split.tensors.count"])
def test_split_numbers_of_another_type(key: str, tmp_path: Path) -> None:
    values = {"split.count": uint32(2), "split.no": uint32(0), "split.tensors.count": uint32(0)}
    key_values = [key_value(name, UINT32, value) for name, value in values.items() if name != key]
    path = tmp_path / "m-00001-of-00002.gguf"
    path.write_bytes(gguf_bytes(key_values=[*key_values, key_value(key, STRING, string("2"))]))
    second = [key_value("split.count", UINT32, uint32(2)), key_value("split.no", UINT32, uint32(1))]
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(gguf_bytes(key_values=second))
    with pytest.raises(ModelFormatError, match=f"{key} is '2'"):
        open_checkpoint(path)


def test_split_file_with_another_name(tmp_path: Path) -> None:
    content = gguf_bytes(key_values=[key_value("split.count", UINT32, uint32(3))])
    assert_refused(content, "is part 1 of 3, but its name doesn't say so", tmp_path)
