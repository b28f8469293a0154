// Stress program for the thread pool, built and run by test_thread_pool.py. Usage: pool_stress correct|rates|idle|fork
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "runtime/thread_pool.h"

using namespace roofline;
using Clock = std::chrono::steady_clock;

namespace {

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Each phase, thread i adds its neighbour's value of the phase before: wrong as soon as one barrier lets a thread through early.
struct Ring {
  int num_phases;
  std::vector<int64_t> values[2];
};

void ring_task(void* context, Worker& worker) {
  Ring& ring = *static_cast<Ring*>(context);
  for (int phase = 0; phase < ring.num_phases; ++phase) {
    const std::vector<int64_t>& from = ring.values[phase % 2];
    ring.values[(phase + 1) % 2][worker.index] = from[worker.index] + from[(worker.index + 1) % worker.count];
    worker.barrier();
  }
}

bool ring_holds(int num_threads, int num_runs, int num_phases) {
  ThreadPool pool(num_threads);
  for (int run = 0; run < num_runs; ++run) {
    Ring ring{num_phases, {std::vector<int64_t>(num_threads, 1), std::vector<int64_t>(num_threads, 0)}};
    pool.run(&ring_task, &ring);
    for (int64_t value : ring.values[num_phases % 2])
      if (value != int64_t{1} << num_phases) return false;
  }
  return true;
}

bool shares_cover() {
  for (int64_t size : {0, 1, 5, 16, 1001})
    for (int count : {1, 2, 3, 7}) {
      int64_t next = 0, smallest = size, largest = 0;
      for (int index = 0; index < count; ++index) {
        const Range range = share(size, index, count);
        if (range.begin != next) return false;
        next = range.end;
        smallest = std::min(smallest, range.end - range.begin);
        largest = std::max(largest, range.end - range.begin);
      }
      if (next != size || largest - smallest > 1) return false;
    }
  return true;
}

bool callers_take_turns() {
  ThreadPool pool(3);
  int64_t total = 0;                       // unguarded: ThreadSanitizer sees it if two runs overlap
  auto call = [&] {
    for (int i = 0; i < 200; ++i)
      pool.run([](void* context, Worker& worker) { if (worker.index == 0) ++*static_cast<int64_t*>(context); }, &total);
  };
  std::thread other(call);
  call();
  other.join();
  return total == 400;
}

bool workers_stay_on_their_cpus() {
  ThreadPool pool(3, {0});
  std::atomic<int> strays{0};
  pool.run([](void* context, Worker& worker) {
    if (worker.index > 0 && sched_getcpu() != 0) ++*static_cast<std::atomic<int>*>(context);
  }, &strays);
  try {
    ThreadPool outside(2, {100000});
    return false;
  } catch (const std::invalid_argument&) {
    return strays == 0;
  }
}

int correct() {
  for (int num_threads : {1, 2, 3, 8})
    if (!ring_holds(num_threads, 100, 20)) return 1;
  if (!ring_holds(4, 2, 20)) return 2;
  if (!shares_cover() || !callers_take_turns()) return 3;
  cpu_set_t mask;                          // the first CPU may be outside this process's mask
  const bool has_cpu_0 = sched_getaffinity(0, sizeof mask, &mask) == 0 && CPU_ISSET(0, &mask);
  return !has_cpu_0 || workers_stay_on_their_cpus() ? 0 : 4;
}

// A decode-like step: 50 phases with `work` units of arithmetic shared by all threads.
struct Step { int64_t work; std::atomic<int64_t> sink; };

void step_task(void* context, Worker& worker) {
  Step& step = *static_cast<Step*>(context);
  for (int phase = 0; phase < 50; ++phase) {
    const Range range = share(step.work, worker.index, worker.count);
    volatile double value = 1;
    for (int64_t i = range.begin; i < range.end; ++i) value = value * 1.0000001;
    step.sink.fetch_add(value > 0, std::memory_order_relaxed);
    worker.barrier();
  }
}

double steps_per_s(int num_threads, double duration_s) {
  ThreadPool pool(num_threads);
  Step step{20000, 0};
  const auto start = Clock::now();
  int num_steps = 0;
  for (; seconds_since(start) < duration_s; ++num_steps) pool.run(&step_task, &step);
  return num_steps / seconds_since(start);
}

double with_competitor(int num_threads, double duration_s) {
  std::atomic<bool> stop{false};
  std::thread busy([&] { while (!stop.load(std::memory_order_relaxed)) {} });
  const double rate = steps_per_s(num_threads, duration_s);
  stop = true;
  busy.join();
  return rate;
}

// Prints: rate with one thread a core, ratio at three times as many, ratio beside a busy thread. Best of three, interleaved.
int rates() {
  const int cores = std::max(2u, std::thread::hardware_concurrency());
  double plain = 0, oversubscribed = 0, contended = 0;
  for (int trial = 0; trial < 3; ++trial) {
    plain = std::max(plain, steps_per_s(cores, 0.2));
    oversubscribed = std::max(oversubscribed, steps_per_s(3 * cores, 0.2));
    contended = std::max(contended, with_competitor(cores, 0.2));
  }
  std::printf("%.1f %.3f %.3f\n", plain, oversubscribed / plain, contended / plain);
  return 0;
}

double cpu_time_s() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto in_s = [](timeval t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  return in_s(usage.ru_utime) + in_s(usage.ru_stime);
}

// Prints the CPU seconds that an idle pool of eight used during one second, after work.
int idle() {
  ThreadPool pool(8);
  Step step{1000, 0};
  pool.run(&step_task, &step);
  const double before = cpu_time_s();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  std::printf("%.4f\n", cpu_time_s() - before);
  return 0;
}

int run_in_fork() {
  ThreadPool pool(3);
  Step step{100, 0};
  pool.run(&step_task, &step);
  const pid_t child = fork();
  pool.run(&step_task, &step);             // both sides go on
  if (child == 0) return 0;
  int status = 1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "";
  if (!std::strcmp(mode, "correct")) return correct();
  if (!std::strcmp(mode, "rates")) return rates();
  if (!std::strcmp(mode, "idle")) return idle();
  if (!std::strcmp(mode, "fork")) return run_in_fork();
  return 64;
}
