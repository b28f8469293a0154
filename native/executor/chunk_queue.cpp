#include "executor/chunk_queue.h"

#include <algorithm>

namespace roofline {
namespace {

constexpr int kMostVictims = 8;                   // looking at another thread's counter costs a cache miss

}  // namespace

ChunkQueue::ChunkQueue(int num_threads)
    : num_threads_(num_threads), taken_(new Counter[static_cast<size_t>(num_threads)]), limits_(static_cast<size_t>(num_threads)) {}

void ChunkQueue::open(const Homes& homes) {
  homes_ = &homes;
  for (int t = 0; t < num_threads_; ++t) limits_[t] += homes[t + 1] - homes[t];
  done_limit_ += homes.back();
}

int64_t ChunkQueue::take(int thread) {
  for (int i = 0; i <= std::min(kMostVictims, num_threads_ - 1); ++i) {
    const int64_t chunk = take_from((thread + i) % num_threads_);
    if (chunk >= 0) return chunk;
  }
  return -1;
}

int64_t ChunkQueue::take_from(int home) {
  std::atomic<int64_t>& taken = taken_[home].value;
  int64_t value = taken.load(std::memory_order_relaxed);
  while (value < limits_[home]) {
    if (taken.compare_exchange_weak(value, value + 1, std::memory_order_relaxed)) return (*homes_)[home + 1] - (limits_[home] - value);
  }
  return -1;
}

bool ChunkQueue::finish(int64_t num_chunks) {
  return done_.value.fetch_add(num_chunks, std::memory_order_acq_rel) + num_chunks == done_limit_;
}

}  // namespace roofline
