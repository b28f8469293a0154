"""Where Roofline keeps files of its own: ROOFLINE_CACHE_DIR, or ~/.cache/roofline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from roofline.core.errors import ConfigError


def cache_dir(environ: Mapping[str, str]) -> Path:
    """The folder for measurements and models; not created here."""
    if "ROOFLINE_CACHE_DIR" not in environ:
        return Path.home() / ".cache" / "roofline"
    path = Path(environ["ROOFLINE_CACHE_DIR"]).expanduser()
    if not environ["ROOFLINE_CACHE_DIR"] or (path.exists() and not path.is_dir()):
        raise ConfigError(f"ROOFLINE_CACHE_DIR={environ['ROOFLINE_CACHE_DIR']!r} is not a folder")
    return path


def cannot_write(path: Path, error: OSError) -> ConfigError:
    """The error to raise when a file of the cache can't be written: no permission, a full disk, no such folder."""
    return ConfigError(
        f"{path} can't be written: {error.strerror or error}",
        hint="make room, or name another folder: ROOFLINE_CACHE_DIR=FOLDER keeps models and measurements",
    )
