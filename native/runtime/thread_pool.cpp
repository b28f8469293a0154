#include "runtime/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif
#include <unistd.h>

namespace roofline {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kParkAfter = std::chrono::microseconds(50);          // between runs: then sleep, an idle pool uses no CPU
constexpr auto kBarrierParkAfter = std::chrono::microseconds(100);  // in a run: the peer was descheduled, give it this core

#if defined(__linux__)
struct CpuMask {
  cpu_set_t words[8];                      // 8192 CPUs: one cpu_set_t is too small for the largest machines

  int count() const { return CPU_COUNT_S(sizeof words, words); }
  bool has(int cpu) const { return cpu >= 0 && CPU_ISSET_S(static_cast<size_t>(cpu), sizeof words, words); }
  void add(int cpu) { CPU_SET_S(static_cast<size_t>(cpu), sizeof words, words); }
  // The kernel keeps a thread inside its cpuset, so a set that shrank since costs speed, not correctness.
  void confine_this_thread() const { sched_setaffinity(0, sizeof words, words); }
};

CpuMask this_threads_mask() {
  CpuMask mask{};
  if (sched_getaffinity(0, sizeof mask.words, mask.words) != 0)
    throw std::system_error(errno, std::generic_category(), "sched_getaffinity");
  return mask;
}
#else
struct CpuMask {                           // no affinity here: the set only counts
  std::vector<int> cpus;

  int count() const { return static_cast<int>(cpus.size()); }
  bool has(int cpu) const { return std::find(cpus.begin(), cpus.end(), cpu) != cpus.end(); }
  void add(int cpu) { cpus.push_back(cpu); }
  void confine_this_thread() const {}
};

CpuMask this_threads_mask() {
  CpuMask mask;
  for (unsigned cpu = 0; cpu < std::max(1u, std::thread::hardware_concurrency()); ++cpu) mask.add(static_cast<int>(cpu));
  return mask;
}
#endif

CpuMask worker_mask(const std::vector<int>& cpus) {
  const CpuMask allowed = this_threads_mask();
  if (cpus.empty()) return allowed;
  CpuMask mask{};
  for (int cpu : cpus) {
    if (!allowed.has(cpu)) throw std::invalid_argument("CPU outside the affinity mask: " + std::to_string(cpu));
    mask.add(cpu);
  }
  return mask;
}

}  // namespace

struct ThreadPool::State {
  const int num_threads;
  const CpuMask mask;
  const pid_t owner;                       // a forked child has this memory, but none of the workers
  const Spin spin;
  std::mutex turn;
  std::vector<std::thread> workers;
  void (*task)(void*, Worker&) = nullptr;
  void* context = nullptr;
  bool stopping = false;
  Gate start;                              // advanced once per run; publishes task, context and stopping
  Gate finish;                             // advanced once per run, by the last worker out
  Gate phase;                              // advanced by the last thread to reach a barrier
  alignas(64) std::atomic<int> num_running{0};
  alignas(64) std::atomic<int> num_arrived{0};

  State(int num_threads, const CpuMask& mask)
      : num_threads(num_threads),
        mask(mask),
        owner(getpid()),
        spin(num_threads > mask.count() ? Spin::yield : Spin::pause) {}

  void spawn(ThreadPool* pool) {
    workers.reserve(static_cast<size_t>(num_threads - 1));
    for (int index = 1; index < num_threads; ++index)
      workers.emplace_back([this, pool, index] { serve(pool, index); });
  }

  ~State() {
    stopping = true;
    start.advance();
    for (std::thread& worker : workers) worker.join();
  }

  void serve(ThreadPool* pool, int index) {
    mask.confine_this_thread();
    for (uint32_t seen = 0;; ++seen) {
      start.wait_past(seen, spin, kParkAfter);
      if (stopping) return;
      Worker worker(pool, index, num_threads);
      task(context, worker);
      if (num_running.fetch_sub(1) == 1) finish.advance();
    }
  }

  void run(ThreadPool* pool, void (*new_task)(void*, Worker&), void* new_context) {
    task = new_task;
    context = new_context;
    num_running.store(num_threads - 1);
    const uint32_t finished = finish.value.load();
    if (num_threads > 1) start.advance();
    Worker worker(pool, 0, num_threads);
    new_task(new_context, worker);
    if (num_threads > 1) finish.wait_past(finished, spin, kBarrierParkAfter);
  }

  void barrier() {
    const uint32_t seen = phase.value.load();
    if (num_arrived.fetch_add(1) + 1 < num_threads) {
      phase.wait_past(seen, spin, kBarrierParkAfter);
      return;
    }
    num_arrived.store(0);                  // nobody can arrive again before the phase advances
    phase.advance();
  }
};

void Worker::barrier() {
  if (count > 1) pool_->state_->barrier();
}

void Worker::wait_past(Gate& gate, uint32_t seen) { gate.wait_past(seen, pool_->state_->spin, kBarrierParkAfter); }

Range share(int64_t size, int index, int count) {
  const int64_t base = size / count, extra = size % count;
  const int64_t begin = index * base + std::min<int64_t>(index, extra);
  return {begin, begin + base + (index < extra ? 1 : 0)};
}

ThreadPool::ThreadPool(int num_threads, const std::vector<int>& cpus) {
  if (num_threads < 1) throw std::invalid_argument("num_threads must be at least 1, got " + std::to_string(num_threads));
  state_ = std::make_unique<State>(num_threads, worker_mask(cpus));
  state_->spawn(this);
}

ThreadPool::~ThreadPool() {
  if (state_->owner != getpid()) state_.release();   // the threads to join exist in the parent only
}

int ThreadPool::num_threads() const { return state_->num_threads; }

void ThreadPool::run(void (*task)(void* context, Worker& worker), void* context) {
  if (state_->owner != getpid()) {                   // locks and counters froze at the fork in any state: start afresh
    const State& parent = *state_.release();
    state_ = std::make_unique<State>(parent.num_threads, parent.mask);
    state_->spawn(this);
  }
  const std::lock_guard<std::mutex> lock(state_->turn);
  state_->run(this, task, context);
}

}  // namespace roofline
