// Register functions of the binding, called once by module.cpp. Kernels know neither Python nor nanobind; only bind/ does.
#pragma once

#include <nanobind/nanobind.h>

namespace roofline::bind {

void register_runtime(nanobind::module_& m);      // runtime.cpp: CPU features, thread pool
void register_sampling(nanobind::module_& m);     // sampling.cpp: sampler states and draws
void register_linear(nanobind::module_& m);       // linear.cpp: packing and products, for tests and micro-benchmarks
void register_pointwise(nanobind::module_& m);    // pointwise.cpp: row operations, for tests
void register_attention(nanobind::module_& m);    // attention.cpp: cache appends and tiles, for tests and micro-benchmarks
void register_executor(nanobind::module_& m);     // executor.cpp: whole steps of a model

}  // namespace roofline::bind
