// A counter that threads wait on: spin, then sleep. The pool's runs and barriers and the executor's phases are all this one wait.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace roofline {

// How to wait before parking. `pause` when every thread can have a CPU; `yield` when threads outnumber CPUs, where the peer waited
// for may need this very CPU. MEASURED Ice Lake, 2 cores beside one busy process: pause keeps 0.50 of the rate, yielding after
// 20 us keeps 0.10, for the kernel then gives the busy process whole time slices.
enum class Spin { pause, yield };

// advance() pays a system call only when someone sleeps. No wake-up is lost: a sleeper announces itself before the kernel compares
// `value`, advance() changes `value` before it looks for sleepers, and all four steps are sequentially consistent.
struct alignas(64) Gate {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> num_parked{0};

  void advance();
  void wait_past(uint32_t seen, Spin spin, std::chrono::steady_clock::duration park_after);

 private:
  bool spin_past(uint32_t seen, Spin spin, std::chrono::steady_clock::duration park_after) const;
  bool poll(uint32_t seen) const;
};

}  // namespace roofline
