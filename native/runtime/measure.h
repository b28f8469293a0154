// Ceilings of this machine, measured with the probe kernels on a given pool: memory rate, arithmetic peak, cost of a barrier and of
// waking the pool. Each function returns one value a trial; the best is the ceiling, the spread says how quiet the machine was.
#pragma once

#include <cstdint>
#include <vector>

#include "roofline/isa.h"
#include "runtime/thread_pool.h"

namespace roofline {

enum class MacKind : int { int8, fp32 };

// The tier must have a probe (std::invalid_argument otherwise). `duration_s` is the time for all trials together, about.
std::vector<double> measure_read_bytes_per_s(ThreadPool& pool, Isa isa, int64_t working_set_bytes, double duration_s);
std::vector<double> measure_macs_per_s(ThreadPool& pool, Isa isa, MacKind kind, double duration_s);
std::vector<double> measure_barrier_s(ThreadPool& pool, int num_trials);
std::vector<double> measure_wake_s(ThreadPool& pool, int num_trials);   // run() to the last thread's start, all workers parked

}  // namespace roofline
