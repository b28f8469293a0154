// Chooses the tier of the attention family: the highest that was built, up to the cap. The amx tier has no kernels of its own here:
// the avx512 ones serve it.
#include "kernels/attention/contract.h"

namespace roofline {

const AttentionKernels& attention_kernels(Isa cap, Isa* chosen) {
#ifdef ROOFLINE_HAS_ATTENTION_AVX512
  if (cap >= Isa::avx512) return *chosen = Isa::avx512, avx512::attention_kernels();
#endif
#ifdef ROOFLINE_HAS_ATTENTION_AVX2
  if (cap >= Isa::avx2) return *chosen = Isa::avx2, avx2::attention_kernels();
#endif
  (void)cap;
  *chosen = Isa::ref;
  return ref::attention_kernels();
}

}  // namespace roofline
