// The entry points of the avx2 tier's translation units, for avx2.cpp.
#pragma once

#include "kernels/linear/contract.h"

namespace roofline::avx2 {

void linear_quantized(const LinearArgs& args);
void linear_float(const LinearArgs& args);

}  // namespace roofline::avx2
