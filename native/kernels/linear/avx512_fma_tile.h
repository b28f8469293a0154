// The float32 outer product that the float formats and the minima share. Internal linkage; only avx512_*.cpp include it.
#pragma once

#include <immintrin.h>

#include "kernels/linear/contract.h"

namespace roofline {
namespace {

// sums[t][r] += panel[i][r] * x[t][i * Step] for i in order; `panel` and `sums` are zmm of sixteen rows, [.][R].
template <int R, int T, int Step>
__attribute__((noinline)) void multiply_floats(const float* panel, const float* const* x_of, int64_t count, float* sums) {
  const float* x[T];
  __m512 acc[T][R];
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t) {
    x[t] = x_of[t];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) acc[t][r] = _mm512_load_ps(sums + kRowBlock * (t * R + r));
  }
  for (int64_t i = 0; i < count; ++i, panel += R * kRowBlock) {
    __m512 w[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) w[r] = _mm512_load_ps(panel + kRowBlock * r);
#pragma GCC unroll 6
    for (int t = 0; t < T; ++t) {
      const __m512 a = _mm512_set1_ps(x[t][Step * i]);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) acc[t][r] = _mm512_fmadd_ps(w[r], a, acc[t][r]);
    }
  }
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) _mm512_store_ps(sums + kRowBlock * (t * R + r), acc[t][r]);
  }
}

}  // namespace
}  // namespace roofline
