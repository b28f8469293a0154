// A persistent pool: num_threads - 1 workers and the caller. It is passed in, never global. Workers spin briefly, then park; a barrier
// that waits long yields, so a descheduled peer or an oversubscribed machine slows the step but never stalls it.
#pragma once

#include <cstdint>
#include <memory>

namespace roofline {

class ThreadPool;

// What one thread sees during ThreadPool::run.
class Worker {
 public:
  Worker(ThreadPool* pool, int index, int count) : index(index), count(count), pool_(pool) {}
  void barrier();                                       // all threads of the run meet
  const int index, count;
 private:
  ThreadPool* pool_;
};

// Half-open share of [0, size) for thread `index` of `count`, sizes differing by at most one.
struct Range { int64_t begin, end; };
Range share(int64_t size, int index, int count);

class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);                 // >= 1
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  int num_threads() const;
  void run(void (*task)(void* context, Worker& worker), void* context);   // returns when all threads have finished
 private:
  friend class Worker;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace roofline
