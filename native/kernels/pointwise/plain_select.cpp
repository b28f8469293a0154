// Chooses the tier of the pointwise family: the highest that was built, up to the cap. The amx tier has no kernels of its own here:
// the avx512 ones serve it.
#include "kernels/pointwise/contract.h"

namespace roofline {

const PointwiseKernels& pointwise_kernels(Isa cap, Isa* chosen) {
#ifdef ROOFLINE_HAS_POINTWISE_AVX512
  if (cap >= Isa::avx512) return *chosen = Isa::avx512, avx512::pointwise_kernels();
#endif
#ifdef ROOFLINE_HAS_POINTWISE_AVX2
  if (cap >= Isa::avx2) return *chosen = Isa::avx2, avx2::pointwise_kernels();
#endif
  (void)cap;
  *chosen = Isa::ref;
  return ref::pointwise_kernels();
}

}  // namespace roofline
