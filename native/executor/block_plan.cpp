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

void split_home(BlockRange home, int64_t align, TailShape shape, BlockPlan* plan) {
  const int64_t len = home.end - home.begin;
  const int64_t owned = len < shape.least_len ? len : len * shape.owned_eighths / 8 / align * align;
  plan->own.push_back({home.begin, home.begin + owned});
  for (int64_t at = home.begin + owned; at < home.end; at += shape.chunk_len) {
    plan->tail.push_back({at, std::min(at + shape.chunk_len, home.end)});
  }
}

}  // namespace

BlockPlan plan_blocks(const std::vector<int64_t>& costs, int num_threads, int64_t align, TailShape tail) {
  std::vector<int64_t> running(costs.size());
  std::partial_sum(costs.begin(), costs.end(), running.begin());
  BlockPlan plan;
  int64_t begin = 0;
  for (int i = 0; i < num_threads; ++i) {
    const bool last = i + 1 == num_threads;
    const int64_t reached = last ? static_cast<int64_t>(costs.size()) : cut(running, double(i + 1) / num_threads, align);
    const int64_t end = std::max(begin, reached);
    plan.home.push_back({begin, end});
    split_home({begin, end}, align, tail, &plan);
    begin = end;
  }
  return plan;
}

}  // namespace roofline
