"""A file mapped read-only: the bytes that all tensors of a checkpoint are views of, and how their pages are given back.

Sizes are checked once, when the file is opened. A file that is cut short *afterwards*, while it is mapped, ends the
process with SIGBUS at the next touch, as with any memory map: replace model files by renaming, never by overwriting.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from roofline.core.errors import ModelFormatError, ModelNotFoundError


class MappedFile:
    """Read-only view of a whole file; the mapping lives as long as any view of `data` does."""

    def __init__(self, path: Path) -> None:
        """Raises ModelNotFoundError if `path` can't be opened, ModelFormatError if it is empty."""
        if not path.is_file():  # also keeps a pipe or a device from blocking open()
            raise ModelNotFoundError(f"{path} is not a file")
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_size == 0:
                    raise ModelFormatError(f"{path} is empty", hint="download it again")
                self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise ModelNotFoundError(f"{path} can't be opened: {error.strerror}") from error
        self.path = path
        self.data: NDArray[np.uint8] = np.frombuffer(self.map, np.uint8)

    @property
    def nbytes(self) -> int:
        return len(self.map)

    def view(self, start: int, num_bytes: int) -> NDArray[np.uint8]:
        """u8 [num_bytes] from byte `start`, not copied. The caller has checked the range."""
        return self.data[start : start + num_bytes]

    def prefetch(self, start: int, num_bytes: int) -> None:
        """Start to read the range from the disk, in large requests and not page fault by page fault."""
        first_page = start // mmap.PAGESIZE * mmap.PAGESIZE
        if num_bytes > 0:
            self.map.madvise(mmap.MADV_WILLNEED, first_page, start + num_bytes - first_page)

    def release(self, start: int, num_bytes: int) -> None:
        """Drop from memory the whole pages inside the range; touching them later reads the file again."""
        first_page = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        end_page = (start + num_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if end_page > first_page:
            self.map.madvise(mmap.MADV_DONTNEED, first_page, end_page - first_page)
