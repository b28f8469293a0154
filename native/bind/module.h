// Register functions of the binding, called once by module.cpp. Kernels know neither Python nor nanobind; only bind/ does.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "roofline/isa.h"

namespace roofline::bind {

// runtime.cpp: the tier of that name; std::invalid_argument when there is none or this machine can't run it. A tier is never quietly
// stepped down.
Isa usable_isa(const std::string& name);

// runtime.cpp: time this thread has run: what kernels cost, also on a machine whose cores are shared.
double thread_time_s();

void register_runtime(nanobind::module_& m);      // runtime.cpp: CPU features, thread pool
void register_sampling(nanobind::module_& m);     // sampling.cpp: sampler states and draws
void register_linear(nanobind::module_& m);       // linear.cpp: packing and products, for tests and micro-benchmarks
void register_pointwise(nanobind::module_& m);    // pointwise.cpp: row operations, for tests
void register_attention(nanobind::module_& m);    // attention.cpp: cache appends and tiles, for tests and micro-benchmarks
void register_executor(nanobind::module_& m);     // executor.cpp: whole steps of a model

}  // namespace roofline::bind
