"""Readers of the small text files below /proc and /sys. The probe calls them with a root, so tests can use fake trees.

A file that is absent or that this process may not read is None: the fact is unknown, and the caller says so. A file that is there
with a content nobody expects is an error that names it.
"""

from __future__ import annotations

import re
from pathlib import Path

from roofline.core.errors import ConfigError

_SIZE_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


def read_text(path: Path) -> str | None:
    """Content without surrounding white space, or None when the file is absent or not readable."""
    try:
        return path.read_text(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None


def read_int(path: Path) -> int | None:
    """A file with one integer."""
    text = read_text(path)
    return None if text is None else parse_int(text, path)


def parse_int(text: str, path: Path) -> int:
    """`text`, found in `path`, as an integer."""
    try:
        return int(text)
    except ValueError as error:
        raise ConfigError(f"{path}: not a number: {text!r}") from error


def read_cpu_list(path: Path) -> tuple[int, ...] | None:
    """A file like `0-3,8,10-11` as CPU numbers in order."""
    text = read_text(path)
    return None if text is None else parse_cpu_list(text, path)


def parse_cpu_list(text: str, path: Path) -> tuple[int, ...]:
    """`0-3,8` as (0, 1, 2, 3, 8); the empty text is no CPU."""
    cpus: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(parse_int(first, path), parse_int(last or first, path) + 1))
    return tuple(sorted(cpus))


def read_size(path: Path) -> int | None:
    """A file like `1280K` as bytes."""
    text = read_text(path)
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    if match is None:
        raise ConfigError(f"{path}: not a size: {text!r}")
    return int(match[1]) * _SIZE_UNITS[match[2]]


def read_fields(path: Path) -> dict[str, str]:
    """First occurrence of each `key: value` line (/proc/meminfo, /proc/cpuinfo, /proc/self/status); empty when unknown."""
    fields: dict[str, str] = {}
    for line in (read_text(path) or "").splitlines():
        key, separator, value = line.partition(":")
        if separator:
            fields.setdefault(key.strip(), value.strip())
    return fields


def parse_kib(text: str, path: Path) -> int:
    """`123 kB` as bytes."""
    return parse_int(text.removesuffix("kB").strip(), path) * 1024
