// The entry points of the avx512 tier's translation units, for avx512.cpp and amx.cpp.
#pragma once

#include "kernels/linear/contract.h"

namespace roofline::avx512 {

void gemv_quantized(const LinearArgs& args);  // M = 1
void small_quantized(const LinearArgs& args); // M >= 2, best for a few
void gemm_quantized(const LinearArgs& args);  // M >= 2
void gemv_float(const LinearArgs& args);      // M = 1
void gemm_float(const LinearArgs& args);      // M >= 2

}  // namespace roofline::avx512
