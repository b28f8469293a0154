// Who does which chunk of a phase. Threads take their own chunks in order, then those of others, so that a thread whose core was
// given away holds up at most the chunk it is in. Counters only ever rise: a step moves their limits, nothing is reset.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "executor/phase.h"

namespace roofline {

class ChunkQueue {
 public:
  explicit ChunkQueue(int num_threads);

  void open(const Homes& homes);                  // the caller's thread alone, before a step
  int64_t take(int thread);                       // a chunk, or -1 when none is left for this thread
  bool finish(int64_t num_chunks);                // true for the thread that reports the last ones

 private:
  struct alignas(64) Counter {
    std::atomic<int64_t> value{0};
  };
  int64_t take_from(int home);

  int num_threads_;
  std::unique_ptr<Counter[]> taken_;              // [threads], chunks of each home taken since the beginning
  std::vector<int64_t> limits_;                   // [threads], value of `taken_` at the end of this step
  const Homes* homes_ = nullptr;
  Counter done_;
  int64_t done_limit_ = 0;
};

}  // namespace roofline
