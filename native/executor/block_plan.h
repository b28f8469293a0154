// How the row blocks of a linear phase are cut into chunks. Each thread is at home in a contiguous range, cut by bytes, which it reads
// step after step (first touch, streams). Which thread computes a row never shows in the row.
#pragma once

#include <cstdint>
#include <vector>

#include "executor/phase.h"

namespace roofline {

struct BlockRange {
  int64_t begin, end;
};

struct BlockPlan {
  std::vector<BlockRange> ranges;  // [threads]: the blocks of each home
  std::vector<BlockRange> chunks;
  Homes homes;                     // in `chunks`
};

struct ChunkShape {
  int64_t least_len;               // blocks in a chunk, unless a home is shorter
  int64_t most_len;
  int64_t chunks_per_home;         // aimed at
};

// `costs`: relative cost of every block. Chunks start at multiples of `align`.
BlockPlan plan_blocks(const std::vector<int64_t>& costs, int num_threads, int64_t align, ChunkShape shape);

}  // namespace roofline
