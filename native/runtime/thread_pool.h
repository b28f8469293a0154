// A persistent pool: num_threads - 1 workers and the caller. It is passed in, never global. Workers spin briefly, then park; a barrier
// that waits long yields, so a descheduled peer or an oversubscribed machine slows the step but never stalls it. No thread is pinned
// to one CPU. docs/kernels/runtime.md has the times and the fork story.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/gate.h"

namespace roofline {

class ThreadPool;

// What one thread sees during ThreadPool::run.
class Worker {
 public:
  Worker(ThreadPool* pool, int index, int count) : index(index), count(count), pool_(pool) {}
  void barrier();                                       // all threads of the run meet
  void wait_past(Gate& gate, uint32_t seen);            // until gate.value is no longer `seen`, spinning as in a barrier
  const int index, count;
 private:
  ThreadPool* pool_;
};

// Half-open share of [0, size) for thread `index` of `count`, sizes differing by at most one.
struct Range { int64_t begin, end; };
Range share(int64_t size, int index, int count);

class ThreadPool {
 public:
  // num_threads >= 1. Workers stay on `cpus` (empty: on the affinity mask of the thread that makes the pool); the caller's own thread
  // is left as it is. std::invalid_argument for a CPU outside the mask.
  explicit ThreadPool(int num_threads, const std::vector<int>& cpus = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  int num_threads() const;
  // Runs `task` once per thread, index 0 on the caller, and returns when all have finished. `task` must not throw or call run().
  // Calls from several threads take turns. In a forked child the first run starts new workers.
  void run(void (*task)(void* context, Worker& worker), void* context);
 private:
  friend class Worker;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace roofline
