#include "runtime/gate.h"

#include <thread>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace roofline {
namespace {

using Clock = std::chrono::steady_clock;

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

}  // namespace

void Gate::advance() {
  value.fetch_add(1);
  if (num_parked.load() > 0) unpark_all(value);
}

void Gate::wait_past(uint32_t seen, Spin spin, Clock::duration park_after) {
  if (spin_past(seen, spin, park_after)) return;
  num_parked.fetch_add(1);
  while (value.load() == seen) park(value, seen);
  num_parked.fetch_sub(1);
}

bool Gate::spin_past(uint32_t seen, Spin spin, Clock::duration park_after) const {
  if (poll(seen)) return true;             // most waits end here: reading the clock would cost a fifth of a barrier
  const auto deadline = Clock::now() + park_after;
  do {
    if (spin == Spin::yield) std::this_thread::yield();
    if (poll(seen)) return true;
  } while (Clock::now() < deadline);
  return false;
}

bool Gate::poll(uint32_t seen) const {
  for (int i = 0; i < kPausesPerLook; ++i) {
    if (value.load(std::memory_order_acquire) != seen) return true;
    cpu_pause();
  }
  return false;
}

}  // namespace roofline
