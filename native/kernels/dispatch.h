// Which kernel serves: the highest tier that the machine has and ROOFLINE_ISA allows, per family. The only place that knows all tiers.
#pragma once

#include "kernels/attention/contract.h"
#include "kernels/linear/contract.h"
#include "kernels/pointwise/contract.h"
#include "roofline/isa.h"

namespace roofline {

struct KernelTable {
  const LinearKernels* linear;
  const PointwiseKernels* pointwise;
  const AttentionKernels* attention;
  Isa linear_isa, pointwise_isa, attention_isa;
};

// Kernels of tier `isa` or the nearest below that exists. The caller has checked that the machine runs `isa`.
KernelTable kernel_table(Isa isa);

}  // namespace roofline
