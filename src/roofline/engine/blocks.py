"""KV blocks as numbers: which are free and how many sequences hold each of the others. The scheduler allocates, back ends only read ids."""

from __future__ import annotations

from collections.abc import Iterable


class BlockPool:
    """`num_blocks` blocks of `block_len` tokens. A block may have several holders (a shared prefix); it is free when the last lets go.

    Freed blocks are handed out last in, first out: what was touched last is likeliest to be in a cache.
    """

    def __init__(self, num_blocks: int, block_len: int) -> None:
        if num_blocks < 1 or block_len < 1:
            raise ValueError(f"a pool needs blocks: num_blocks={num_blocks}, block_len={block_len}")
        self.num_blocks = num_blocks
        self.block_len = block_len
        self._free = list(range(num_blocks - 1, -1, -1))
        self._num_holders = [0] * num_blocks

    @property
    def num_free(self) -> int:
        return len(self._free)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that `num_tokens` tokens fill, the last one perhaps in part."""
        return -(-num_tokens // self.block_len)

    def allocate(self, num_blocks: int) -> list[int]:
        """Ids of `num_blocks` free blocks, each with one holder. The caller has looked at `num_free`."""
        if num_blocks > len(self._free):
            raise ValueError(f"{num_blocks} blocks wanted, {len(self._free)} free")
        taken = [self._free.pop() for _ in range(num_blocks)]
        for block in taken:
            self._num_holders[block] = 1
        return taken

    def share(self, blocks: Iterable[int]) -> None:
        """One more holder for each of `blocks`, which must be held already."""
        for block in blocks:
            if self._num_holders[block] < 1:
                raise ValueError(f"block {block} is free and can't be shared")
            self._num_holders[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """One holder fewer for each of `blocks`."""
        for block in blocks:
            if self._num_holders[block] < 1:
                raise ValueError(f"block {block} is released twice")
            self._num_holders[block] -= 1
            if self._num_holders[block] == 0:
                self._free.append(block)

    def check(self, held: Iterable[Iterable[int]]) -> None:
        """Raise AssertionError unless `held`, the block lists of all holders, explains every count, and all else is free once."""
        counts = [0] * self.num_blocks
        for blocks in held:
            for block in blocks:
                counts[block] += 1
        wrong = [block for block in range(self.num_blocks) if counts[block] != self._num_holders[block]]
        assert not wrong, f"blocks with another number of holders than counted: {wrong}"
        free = [block for block in range(self.num_blocks) if counts[block] == 0]
        assert sorted(self._free) == free, f"free list {sorted(self._free)} is not {free}"
