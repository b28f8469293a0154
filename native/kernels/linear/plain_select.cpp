// Chooses the tier of the linear family: the highest that was built, up to the cap.
#include "kernels/linear/contract.h"

namespace roofline {

const LinearKernels& linear_kernels(Isa cap, Isa* chosen) {
#ifdef ROOFLINE_HAS_LINEAR_AMX
  if (cap >= Isa::amx) return *chosen = Isa::amx, amx::linear_kernels();
#endif
#ifdef ROOFLINE_HAS_LINEAR_AVX512
  if (cap >= Isa::avx512) return *chosen = Isa::avx512, avx512::linear_kernels();
#endif
#ifdef ROOFLINE_HAS_LINEAR_AVX2
  if (cap >= Isa::avx2) return *chosen = Isa::avx2, avx2::linear_kernels();
#endif
  (void)cap;
  *chosen = Isa::ref;
  return ref::linear_kernels();
}

}  // namespace roofline
