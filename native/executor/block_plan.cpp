#include "executor/block_plan.h"

#include <algorithm>
#include <numeric>


namespace roofline {
namespace {

// First block at which the running cost reaches `share` of the total, on the `align` grid.
int64_t cut(const std::vector<int64_t>& running, double share, int64_t align) {
  const int64_t num_blocks = static_cast<int64_t>(running.size());
  const double target = share * static_cast<double>(running.back());
  const auto at = std::lower_bound(running.begin(), running.end(), static_cast<int64_t>(target + 0.5));
  const int64_t block = at - running.begin() + 1;
  return std::min(num_blocks, (block + align / 2) / align * align);
}

// Equal chunks, the rest shared out, so that no chunk is much shorter than its siblings.
void cut_home(BlockRange home, int64_t align, ChunkShape shape, std::vector<BlockRange>* chunks) {
  const int64_t len = home.end - home.begin;
  if (len == 0) return;
  const int64_t wanted = std::clamp(len / shape.chunks_per_home, shape.least_len, shape.most_len);
  const int64_t num_chunks = std::max<int64_t>(1, len / wanted);
  const int64_t units = (len + align - 1) / align;
  for (int64_t i = 0; i < num_chunks; ++i) {
    const int64_t begin = home.begin + units * i / num_chunks * align;
    const int64_t end = std::min(home.end, home.begin + units * (i + 1) / num_chunks * align);
    if (begin < end) chunks->push_back({begin, end});
  }
}

}  // namespace

BlockPlan plan_blocks(const std::vector<int64_t>& costs, int num_threads, int64_t align, ChunkShape shape) {
  std::vector<int64_t> running(costs.size());
  std::partial_sum(costs.begin(), costs.end(), running.begin());
  BlockPlan plan;
  plan.homes.push_back(0);
  int64_t begin = 0;
  for (int i = 0; i < num_threads; ++i) {
    const bool last = i + 1 == num_threads;
    const int64_t reached = last ? static_cast<int64_t>(costs.size()) : cut(running, double(i + 1) / num_threads, align);
    const int64_t end = std::max(begin, reached);
    plan.ranges.push_back({begin, end});
    cut_home({begin, end}, align, shape, &plan.chunks);
    plan.homes.push_back(static_cast<int32_t>(plan.chunks.size()));
    begin = end;
  }
  return plan;
}

}  // namespace roofline
