#include "runtime/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#endif
#include <unistd.h>

namespace roofline {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kParkAfter = std::chrono::microseconds(50);          // between runs: then sleep, an idle pool uses no CPU
constexpr auto kBarrierParkAfter = std::chrono::microseconds(100);  // in a run: the peer was descheduled, give it this core

// How to wait before parking. `pause` when every thread can have a CPU; `yield` when threads outnumber CPUs, where the peer waited
// for may need this very CPU. MEASURED Ice Lake, 2 cores beside one busy process: pause keeps 0.50 of the rate, yielding after
// 20 us keeps 0.10, for the kernel then gives the busy process whole time slices.
enum class Spin { pause, yield };
constexpr int kPausesPerLook = 16;                             // pauses (40-140 cycles each) per look at the clock

void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

#if defined(__linux__)
void park(std::atomic<uint32_t>& word, uint32_t expected) {
  static_assert(sizeof(word) == sizeof(uint32_t));
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}
void unpark_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}
#else
void park(std::atomic<uint32_t>& word, uint32_t expected) { word.wait(expected); }
void unpark_all(std::atomic<uint32_t>& word) { word.notify_all(); }
#endif

// A counter that threads wait on: spin, then sleep. advance() pays a system call only when someone sleeps.
// No wake-up is lost: a sleeper announces itself before the kernel compares `value`, advance() changes `value` before it looks
// for sleepers, and all four steps are sequentially consistent.
struct alignas(64) Gate {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> num_parked{0};

  void advance() {
    value.fetch_add(1);
    if (num_parked.load() > 0) unpark_all(value);
  }

  void wait_past(uint32_t seen, Spin spin, Clock::duration park_after) {
    if (spin_past(seen, spin, park_after)) return;
    num_parked.fetch_add(1);
    while (value.load() == seen) park(value, seen);
    num_parked.fetch_sub(1);
  }

 private:
  bool spin_past(uint32_t seen, Spin spin, Clock::duration park_after) {
    const auto start = Clock::now();
    do {
      for (int i = 0; i < kPausesPerLook; ++i) {
        if (value.load(std::memory_order_acquire) != seen) return true;
        cpu_pause();
      }
      if (spin == Spin::yield) std::this_thread::yield();
    } while (Clock::now() - start < park_after);
    return false;
  }
};

int num_usable_cpus() {
#if defined(__linux__)
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) return CPU_COUNT(&mask);
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

struct ThreadPool::State {
  const int num_threads;
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

  explicit State(int num_threads)
      : num_threads(num_threads),
        owner(getpid()),
        spin(num_threads > num_usable_cpus() ? Spin::yield : Spin::pause) {}

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

Range share(int64_t size, int index, int count) {
  const int64_t base = size / count, extra = size % count;
  const int64_t begin = index * base + std::min<int64_t>(index, extra);
  return {begin, begin + base + (index < extra ? 1 : 0)};
}

ThreadPool::ThreadPool(int num_threads) {
  if (num_threads < 1) throw std::invalid_argument("num_threads must be at least 1, got " + std::to_string(num_threads));
  state_ = std::make_unique<State>(num_threads);
  state_->spawn(this);
}

ThreadPool::~ThreadPool() {
  if (state_->owner != getpid()) state_.release();   // the threads to join exist in the parent only
}

int ThreadPool::num_threads() const { return state_->num_threads; }

void ThreadPool::run(void (*task)(void* context, Worker& worker), void* context) {
  if (state_->owner != getpid()) {                   // locks and counters froze at the fork in any state: start afresh
    const int num_threads = state_.release()->num_threads;
    state_ = std::make_unique<State>(num_threads);
    state_->spawn(this);
  }
  const std::lock_guard<std::mutex> lock(state_->turn);
  state_->run(this, task, context);
}

}  // namespace roofline
