#include "kernels/dispatch.h"

namespace roofline {
namespace {

LinearKernels const* linear_for(Isa isa, Isa* chosen) {
#ifdef ROOFLINE_HAS_AMX
  if (isa >= Isa::amx) return *chosen = Isa::amx, &amx::linear_kernels();
#endif
#ifdef ROOFLINE_HAS_AVX512
  if (isa >= Isa::avx512) return *chosen = Isa::avx512, &avx512::linear_kernels();
#endif
#ifdef ROOFLINE_HAS_AVX2
  if (isa >= Isa::avx2) return *chosen = Isa::avx2, &avx2::linear_kernels();
#endif
  return *chosen = Isa::ref, &ref::linear_kernels();
}

PointwiseKernels const* pointwise_for(Isa isa, Isa* chosen) {
#ifdef ROOFLINE_HAS_AVX512
  if (isa >= Isa::avx512) return *chosen = Isa::avx512, &avx512::pointwise_kernels();
#endif
#ifdef ROOFLINE_HAS_AVX2
  if (isa >= Isa::avx2) return *chosen = Isa::avx2, &avx2::pointwise_kernels();
#endif
  return *chosen = Isa::ref, &ref::pointwise_kernels();
}

AttentionKernels const* attention_for(Isa isa, Isa* chosen) {
#ifdef ROOFLINE_HAS_AVX512
  if (isa >= Isa::avx512) return *chosen = Isa::avx512, &avx512::attention_kernels();
#endif
#ifdef ROOFLINE_HAS_AVX2
  if (isa >= Isa::avx2) return *chosen = Isa::avx2, &avx2::attention_kernels();
#endif
  return *chosen = Isa::ref, &ref::attention_kernels();
}

}  // namespace

KernelTable kernel_table(Isa isa) {
  KernelTable table{};
  table.linear = linear_for(isa, &table.linear_isa);
  table.pointwise = pointwise_for(isa, &table.pointwise_isa);
  table.attention = attention_for(isa, &table.attention_isa);
  return table;
}

}  // namespace roofline
