// The test-only entry of the amx tier: the same kernel over emulated tiles, for machines with avx512 and no AMX.
#pragma once

#include "kernels/linear/contract.h"

namespace roofline::amx {

const LinearKernels& emulated_linear_kernels();

}  // namespace roofline::amx
