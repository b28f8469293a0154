// How the row blocks of a linear phase are shared out. Each thread owns a contiguous range, cut by bytes, which it reads step after
// step (first touch, streams); the tail of every range is chunks that whoever is free takes, so that a core slowed by a neighbour
// costs its share only. Which thread computes a row never shows in the row.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace roofline {

struct BlockRange {
  int64_t begin, end;
};

struct BlockPlan {
  std::vector<BlockRange> home;    // [threads]: all blocks of a thread, as packed and first touched
  std::vector<BlockRange> own;     // [threads]: its start, which nobody else takes
  std::vector<BlockRange> tail;    // chunks of the rest
};

struct TailShape {
  int64_t least_len;      // homes shorter than this have no tail
  int64_t chunk_len;      // blocks in a chunk
  int64_t owned_eighths;  // share of a home that is owned
};

// `costs`: relative cost of every block. Ranges start at multiples of `align`.
BlockPlan plan_blocks(const std::vector<int64_t>& costs, int num_threads, int64_t align, TailShape tail);

}  // namespace roofline
