// Sixteen float lanes as two ymm registers; simd/ref.h says what each operation means. Included by the avx2.cpp of a family.
#pragma once

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define ROOFLINE_TIER avx2
#define ROOFLINE_INLINE inline __attribute__((always_inline))

namespace roofline::avx2 {
namespace {

struct F32x16 { __m256 lo, hi; };
struct I32x16 { __m256i lo, hi; };
struct Mask16 { __m256 lo, hi; };        // all bits of a lane set or none

// 16 registers: six rows of two accumulators, a widened vector of K or V and a broadcast.
constexpr int kMaxBlockRows = 6;
constexpr int kBlockVectors = 6;

struct All {};
struct First { int64_t count; };

alignas(64) constexpr int32_t kFirstLanes[32] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                                                 0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0};
ROOFLINE_INLINE I32x16 first_mask(First part) {
  const int32_t* p = kFirstLanes + 16 - part.count;
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}

ROOFLINE_INLINE F32x16 set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
ROOFLINE_INLINE F32x16 load(const float* p, All) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
ROOFLINE_INLINE F32x16 load(const float* p, First part, float fill) {
  const I32x16 mask = first_mask(part);
  return {_mm256_blendv_ps(_mm256_set1_ps(fill), _mm256_maskload_ps(p, mask.lo), _mm256_castsi256_ps(mask.lo)),
          _mm256_blendv_ps(_mm256_set1_ps(fill), _mm256_maskload_ps(p + 8, mask.hi), _mm256_castsi256_ps(mask.hi))};
}
ROOFLINE_INLINE void store(float* p, F32x16 x, All) {
  _mm256_storeu_ps(p, x.lo);
  _mm256_storeu_ps(p + 8, x.hi);
}
ROOFLINE_INLINE void store(float* p, F32x16 x, First part) {
  const I32x16 mask = first_mask(part);
  _mm256_maskstore_ps(p, mask.lo, x.lo);
  _mm256_maskstore_ps(p + 8, mask.hi, x.hi);
}

ROOFLINE_INLINE F32x16 operator+(F32x16 a, F32x16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
ROOFLINE_INLINE F32x16 operator-(F32x16 a, F32x16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
ROOFLINE_INLINE F32x16 operator*(F32x16 a, F32x16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
ROOFLINE_INLINE F32x16 operator/(F32x16 a, F32x16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
ROOFLINE_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
ROOFLINE_INLINE F32x16 max(F32x16 a, F32x16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
ROOFLINE_INLINE F32x16 min(F32x16 a, F32x16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }

template <int kPredicate>
ROOFLINE_INLINE Mask16 compare(F32x16 a, F32x16 b) {
  return {_mm256_cmp_ps(a.lo, b.lo, kPredicate), _mm256_cmp_ps(a.hi, b.hi, kPredicate)};
}
ROOFLINE_INLINE Mask16 less(F32x16 a, F32x16 b) { return compare<_CMP_LT_OQ>(a, b); }
ROOFLINE_INLINE Mask16 equal(F32x16 a, F32x16 b) { return compare<_CMP_EQ_OQ>(a, b); }
ROOFLINE_INLINE Mask16 is_nan(F32x16 a) { return compare<_CMP_UNORD_Q>(a, a); }
ROOFLINE_INLINE Mask16 mask_from_bits(uint32_t bits) {
  const __m256i all = _mm256_set1_epi32(static_cast<int32_t>(bits));
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128), lane_hi = _mm256_slli_epi32(lane, 8);
  return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, lane), lane)),
          _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, lane_hi), lane_hi))};
}
ROOFLINE_INLINE uint32_t mask_bits(Mask16 m) {
  return static_cast<uint32_t>(_mm256_movemask_ps(m.lo)) | static_cast<uint32_t>(_mm256_movemask_ps(m.hi)) << 8;
}
ROOFLINE_INLINE F32x16 select(Mask16 m, F32x16 yes, F32x16 no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, m.lo), _mm256_blendv_ps(no.hi, yes.hi, m.hi)};
}

ROOFLINE_INLINE I32x16 set1_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
ROOFLINE_INLINE I32x16 as_int(F32x16 x) { return {_mm256_castps_si256(x.lo), _mm256_castps_si256(x.hi)}; }
ROOFLINE_INLINE F32x16 as_float(I32x16 x) { return {_mm256_castsi256_ps(x.lo), _mm256_castsi256_ps(x.hi)}; }
ROOFLINE_INLINE I32x16 operator+(I32x16 a, I32x16 b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
ROOFLINE_INLINE I32x16 operator&(I32x16 a, I32x16 b) { return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)}; }
ROOFLINE_INLINE I32x16 operator|(I32x16 a, I32x16 b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
ROOFLINE_INLINE I32x16 max(I32x16 a, I32x16 b) { return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)}; }
template <int kBits>
ROOFLINE_INLINE I32x16 shift_left(I32x16 a) { return {_mm256_slli_epi32(a.lo, kBits), _mm256_slli_epi32(a.hi, kBits)}; }
ROOFLINE_INLINE I32x16 round_to_int(F32x16 x) { return {_mm256_cvtps_epi32(x.lo), _mm256_cvtps_epi32(x.hi)}; }
ROOFLINE_INLINE void store_int8(int8_t* p, I32x16 x) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.lo, x.hi), 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

ROOFLINE_INLINE float first_lane(F32x16 x) { return _mm256_cvtss_f32(x.lo); }

// The tree of simd/ref.h from its second step on.
template <class Op>
ROOFLINE_INLINE float fold_lanes(__m256 x, Op op) {
  __m128 half = op(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = op(half, _mm_movehl_ps(half, half));
  half = op(half, _mm_movehdup_ps(half));
  return _mm_cvtss_f32(half);
}
ROOFLINE_INLINE float sum_lanes(F32x16 x) {
  return fold_lanes(_mm256_add_ps(x.lo, x.hi), [](__m128 a, __m128 b) { return _mm_add_ps(a, b); });
}
ROOFLINE_INLINE float max_lanes(F32x16 x) {
  return fold_lanes(_mm256_max_ps(x.lo, x.hi), [](__m128 a, __m128 b) { return _mm_max_ps(a, b); });
}
template <class Op>
ROOFLINE_INLINE int32_t fold_lanes(__m256i x, Op op) {
  __m128i half = op(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  half = op(half, _mm_shuffle_epi32(half, 0x4e));
  half = op(half, _mm_shuffle_epi32(half, 0xb1));
  return _mm_cvtsi128_si32(half);
}
ROOFLINE_INLINE int32_t sum_lanes(I32x16 x) {
  return fold_lanes(_mm256_add_epi32(x.lo, x.hi), [](__m128i a, __m128i b) { return _mm_add_epi32(a, b); });
}
ROOFLINE_INLINE int32_t max_lanes(I32x16 x) {
  return fold_lanes(_mm256_max_epi32(x.lo, x.hi), [](__m128i a, __m128i b) { return _mm_max_epi32(a, b); });
}

ROOFLINE_INLINE __m128i load_128(const uint16_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
ROOFLINE_INLINE F32x16 load_f16(const uint16_t* p) {
  return {_mm256_cvtph_ps(load_128(p)), _mm256_cvtph_ps(load_128(p + 8))};
}
ROOFLINE_INLINE F32x16 load_bf16(const uint16_t* p) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_128(p)), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_128(p + 8)), 16))};
}
ROOFLINE_INLINE void store_f16(uint16_t* p, F32x16 x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.lo, kNearest));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(x.hi, kNearest));
}
ROOFLINE_INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

}  // namespace
}  // namespace roofline::avx2
