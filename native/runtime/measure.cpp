#include "runtime/measure.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "kernels/probe/contract.h"
#include "runtime/cpu_features.h"

namespace roofline {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kNumTrials = 31;        // short trials: on a shared machine some of them run undisturbed
constexpr int64_t kMinShareBytes = 3 * kProbeStreams * kProbeChunkBytes;

double seconds(Clock::duration elapsed) { return std::chrono::duration<double>(elapsed).count(); }

const ProbeKernels& require_probe(Isa isa) {
  const ProbeKernels* kernels = probe_kernels(isa);
  if (kernels == nullptr) throw std::invalid_argument(std::string("no probe was built for tier ") + isa_name(isa));
  return *kernels;
}

// Anonymous memory in huge pages where the kernel grants them. Not touched: each thread touches its own share first.
class Region {
 public:
  explicit Region(int64_t size_bytes) : size_(static_cast<size_t>(size_bytes)) {
    void* mapped = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<uint8_t*>(mapped);
#ifdef MADV_HUGEPAGE
    madvise(data_, size_, MADV_HUGEPAGE);   // refused by kernels without it: the rate is then that of small pages
#endif
  }
  ~Region() { munmap(data_, size_); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  uint8_t* data() const { return data_; }

 private:
  uint8_t* data_;
  size_t size_;
};

// One thread's part of a measurement: do the work `num_passes` times and return how much it was.
struct Work {
  virtual int64_t operator()(int thread, int64_t num_passes) const = 0;
  virtual void prepare(int) const {}

 protected:
  ~Work() = default;
};

// What one thread did, and when. A thread may be descheduled anywhere, so only its own clock tells its own time.
struct Part { int64_t done; Clock::time_point start, end; };

struct Trial {
  const Work* work;
  int64_t num_passes;
  std::vector<Part> parts;      // by thread

  double elapsed_s() const {
    const auto by_start = [](const Part& a, const Part& b) { return a.start < b.start; };
    const auto by_end = [](const Part& a, const Part& b) { return a.end < b.end; };
    return seconds(std::max_element(parts.begin(), parts.end(), by_end)->end -
                   std::min_element(parts.begin(), parts.end(), by_start)->start);
  }
  double rate() const {
    int64_t total = 0;
    for (const Part& part : parts) total += part.done;
    return static_cast<double>(total) / elapsed_s();
  }
};

void run_trial(void* context, Worker& worker) {
  Trial& trial = *static_cast<Trial*>(context);
  Part& part = trial.parts[static_cast<size_t>(worker.index)];
  worker.barrier();
  part.start = Clock::now();
  part.done = (*trial.work)(worker.index, trial.num_passes);
  part.end = Clock::now();
}

void run_prepare(void* context, Worker& worker) { static_cast<Trial*>(context)->work->prepare(worker.index); }

// Doubles the passes until a trial is long enough for the clock, then measures.
std::vector<double> rates(ThreadPool& pool, const Work& work, double duration_s) {
  Trial trial{&work, 1, std::vector<Part>(static_cast<size_t>(pool.num_threads()))};
  pool.run(&run_prepare, &trial);
  const double trial_s = duration_s / (kNumTrials + 1);
  for (pool.run(&run_trial, &trial); trial.elapsed_s() < trial_s / 2; pool.run(&run_trial, &trial)) trial.num_passes *= 2;
  std::vector<double> result;
  for (int i = 0; i < kNumTrials; ++i) {
    pool.run(&run_trial, &trial);
    result.push_back(trial.rate());
  }
  return result;
}

struct ReadWork final : Work {
  const ProbeKernels& kernels;
  int64_t share_bytes;
  Region region;

  ReadWork(const ProbeKernels& kernels, int64_t share_bytes, int num_threads)
      : kernels(kernels), share_bytes(share_bytes), region(share_bytes * num_threads + kProbePrefetchBytes) {}
  uint8_t* part(int thread) const { return region.data() + thread * share_bytes; }
  void prepare(int thread) const override { std::memset(part(thread), thread + 1, static_cast<size_t>(share_bytes)); }
  int64_t operator()(int thread, int64_t num_passes) const override {
    int64_t done = 0;
    volatile uint64_t keep;
    for (int64_t pass = 0; pass < num_passes; ++pass) {
      uint64_t sink;
      done += kernels.read(part(thread), share_bytes, &sink);
      keep = sink;
    }
    (void)keep;
    return done;
  }
};

struct MacWork final : Work {
  int64_t (*macs)(int64_t, uint64_t*);

  explicit MacWork(int64_t (*macs)(int64_t, uint64_t*)) : macs(macs) {}
  int64_t operator()(int, int64_t num_passes) const override {
    uint64_t sink;
    const int64_t done = macs(num_passes * 1000, &sink);
    volatile uint64_t keep = sink;
    (void)keep;
    return done;
  }
};

constexpr int kBarriersPerTrial = 200;

void run_barriers(void* context, Worker& worker) {
  worker.barrier();
  const auto start = Clock::now();
  for (int i = 0; i < kBarriersPerTrial; ++i) worker.barrier();
  if (worker.index == 0) *static_cast<double*>(context) = seconds(Clock::now() - start);
}

void record_start(void* context, Worker& worker) {
  (*static_cast<std::vector<Clock::time_point>*>(context))[static_cast<size_t>(worker.index)] = Clock::now();
}

}  // namespace

std::vector<double> measure_read_bytes_per_s(ThreadPool& pool, Isa isa, int64_t working_set_bytes, double duration_s) {
  const int64_t share_bytes = working_set_bytes / pool.num_threads() / 4096 * 4096;
  if (share_bytes < kMinShareBytes)
    throw std::invalid_argument("working set too small: " + std::to_string(working_set_bytes) + " bytes");
  return rates(pool, ReadWork(require_probe(isa), share_bytes, pool.num_threads()), duration_s);
}

std::vector<double> measure_macs_per_s(ThreadPool& pool, Isa isa, MacKind kind, double duration_s) {
  const ProbeKernels& kernels = require_probe(isa);
  return rates(pool, MacWork(kind == MacKind::int8 ? kernels.int8_macs : kernels.fp32_macs), duration_s);
}

std::vector<double> measure_barrier_s(ThreadPool& pool, int num_trials) {
  std::vector<double> result;
  for (int i = 0; i < num_trials; ++i) {
    double elapsed_s = 0;
    pool.run(&run_barriers, &elapsed_s);
    result.push_back(elapsed_s / kBarriersPerTrial);
  }
  return result;
}

std::vector<double> measure_wake_s(ThreadPool& pool, int num_trials) {
  std::vector<double> result;
  std::vector<Clock::time_point> started(static_cast<size_t>(pool.num_threads()));
  for (int i = 0; i < num_trials; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));   // long past the spin: every worker is parked
    const auto start = Clock::now();
    pool.run(&record_start, &started);
    result.push_back(seconds(*std::max_element(started.begin(), started.end()) - start));
  }
  return result;
}

}  // namespace roofline
