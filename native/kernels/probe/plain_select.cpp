// Finds the probe of one tier. Unlike the other families there is no step down: a ceiling belongs to its tier.
#include "kernels/probe/contract.h"

namespace roofline {

const ProbeKernels* probe_kernels(Isa isa) {
  if (isa == Isa::ref) return &ref::probe_kernels();
#ifdef ROOFLINE_HAS_PROBE_AVX2
  if (isa == Isa::avx2) return &avx2::probe_kernels();
#endif
#ifdef ROOFLINE_HAS_PROBE_AVX512
  if (isa == Isa::avx512) return &avx512::probe_kernels();
#endif
  return nullptr;
}

}  // namespace roofline
