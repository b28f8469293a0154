// Sixteen float lanes as one zmm register; simd/ref.h says what each operation means. Included by the avx512.cpp of a family.
#pragma once

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define ROOFLINE_TIER avx512
#define ROOFLINE_INLINE inline __attribute__((always_inline))

namespace roofline::avx512 {
namespace {

struct F32x16 { __m512 v; };
struct I32x16 { __m512i v; };
struct Mask16 { __mmask16 bits; };

// 32 registers: 28 accumulators, two widened vectors of K or V and a broadcast. Two vectors to a row halve the broadcast loads:
// MEASURED Ice Lake Xeon: one load per FMA runs at 0.6 of the FMA rate.
constexpr int kMaxBlockRows = 14;
constexpr int kBlockVectors = 28;

struct All {};
struct First { int64_t count; };

ROOFLINE_INLINE __mmask16 first_mask(First part) { return static_cast<__mmask16>((1u << part.count) - 1); }

ROOFLINE_INLINE F32x16 set1(float x) { return {_mm512_set1_ps(x)}; }
ROOFLINE_INLINE F32x16 load(const float* p, All) { return {_mm512_loadu_ps(p)}; }
ROOFLINE_INLINE F32x16 load(const float* p, First part, float fill) {
  return {_mm512_mask_loadu_ps(_mm512_set1_ps(fill), first_mask(part), p)};
}
ROOFLINE_INLINE void store(float* p, F32x16 x, All) { _mm512_storeu_ps(p, x.v); }
ROOFLINE_INLINE void store(float* p, F32x16 x, First part) { _mm512_mask_storeu_ps(p, first_mask(part), x.v); }

ROOFLINE_INLINE F32x16 operator+(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
ROOFLINE_INLINE F32x16 operator-(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
ROOFLINE_INLINE F32x16 operator*(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
ROOFLINE_INLINE F32x16 operator/(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
ROOFLINE_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
ROOFLINE_INLINE F32x16 max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
ROOFLINE_INLINE F32x16 min(F32x16 a, F32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }

ROOFLINE_INLINE Mask16 less(F32x16 a, F32x16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
ROOFLINE_INLINE Mask16 equal(F32x16 a, F32x16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)}; }
ROOFLINE_INLINE Mask16 is_nan(F32x16 a) { return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)}; }
ROOFLINE_INLINE Mask16 mask_from_bits(uint32_t bits) { return {static_cast<__mmask16>(bits)}; }
ROOFLINE_INLINE uint32_t mask_bits(Mask16 m) { return m.bits; }
ROOFLINE_INLINE F32x16 select(Mask16 m, F32x16 yes, F32x16 no) { return {_mm512_mask_blend_ps(m.bits, no.v, yes.v)}; }

ROOFLINE_INLINE I32x16 set1_int(int32_t x) { return {_mm512_set1_epi32(x)}; }
ROOFLINE_INLINE I32x16 as_int(F32x16 x) { return {_mm512_castps_si512(x.v)}; }
ROOFLINE_INLINE F32x16 as_float(I32x16 x) { return {_mm512_castsi512_ps(x.v)}; }
ROOFLINE_INLINE I32x16 operator+(I32x16 a, I32x16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
ROOFLINE_INLINE I32x16 operator&(I32x16 a, I32x16 b) { return {_mm512_and_si512(a.v, b.v)}; }
ROOFLINE_INLINE I32x16 operator|(I32x16 a, I32x16 b) { return {_mm512_or_si512(a.v, b.v)}; }
ROOFLINE_INLINE I32x16 max(I32x16 a, I32x16 b) { return {_mm512_max_epi32(a.v, b.v)}; }
template <int kBits>
ROOFLINE_INLINE I32x16 shift_left(I32x16 a) { return {_mm512_slli_epi32(a.v, kBits)}; }
ROOFLINE_INLINE I32x16 round_to_int(F32x16 x) { return {_mm512_cvtps_epi32(x.v)}; }
ROOFLINE_INLINE void store_int8(int8_t* p, I32x16 x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x.v));
}

ROOFLINE_INLINE float first_lane(F32x16 x) { return _mm512_cvtss_f32(x.v); }

// Lane 0 of each step is the tree of simd/ref.h: i with i+8, i+4, i+2, i+1.
template <class Op>
ROOFLINE_INLINE float fold_lanes(F32x16 x, Op op) {
  x = op(x, F32x16{_mm512_shuffle_f32x4(x.v, x.v, 0x4e)});
  x = op(x, F32x16{_mm512_shuffle_f32x4(x.v, x.v, 0xb1)});
  x = op(x, F32x16{_mm512_permute_ps(x.v, 0x4e)});
  x = op(x, F32x16{_mm512_permute_ps(x.v, 0xb1)});
  return _mm512_cvtss_f32(x.v);
}
ROOFLINE_INLINE float sum_lanes(F32x16 x) {
  return fold_lanes(x, [](F32x16 a, F32x16 b) { return a + b; });
}
ROOFLINE_INLINE float max_lanes(F32x16 x) {
  return fold_lanes(x, [](F32x16 a, F32x16 b) { return max(a, b); });
}
ROOFLINE_INLINE int32_t sum_lanes(I32x16 x) { return _mm512_reduce_add_epi32(x.v); }
ROOFLINE_INLINE int32_t max_lanes(I32x16 x) { return _mm512_reduce_max_epi32(x.v); }

ROOFLINE_INLINE F32x16 load_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
ROOFLINE_INLINE F32x16 load_bf16(const uint16_t* p) {
  const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16))};
}
ROOFLINE_INLINE void store_f16(uint16_t* p, F32x16 x) {
  const __m256i narrow = _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow);
}
ROOFLINE_INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

}  // namespace
}  // namespace roofline::avx512
