// Tiles to ymm registers, eight rows at a time (`half` 0: rows 0..7, 1: rows 8..15): codes, scales, minima, and the store of y.
// Internal linkage; only avx2_*.cpp include it.
#pragma once

#include <immintrin.h>

#include "kernels/linear/tile_layout.h"

namespace roofline {
namespace {

inline constexpr int kHalfLine = 32;  // bytes of eight rows in a line

inline __m256i load_bytes(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

inline __m256 load_halves(const uint8_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }

// Codes of 8 bits would overflow the 16-bit sums of vpmaddubsw; they are taken signed, with the sign moved to the activation.
constexpr bool has_signed_codes(Format f) { return f == Format::q8_0 || f == Format::q4_lut; }

inline void split_nibbles(const uint8_t* p, __m256i u[8]) {
  const __m256i low = _mm256_set1_epi8(15);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m256i line = load_bytes(p + 64 * i);
    u[2 * i] = _mm256_and_si256(line, low);
    u[2 * i + 1] = _mm256_and_si256(_mm256_srli_epi16(line, 4), low);
  }
}

// Shifts every byte left by `bits` (right when negative); bits that cross a byte are for the caller to mask.
inline __m256i shift(__m256i x, int bits) { return bits >= 0 ? _mm256_slli_epi16(x, bits) : _mm256_srli_epi16(x, -bits); }

inline void add_plane(const uint8_t* p, __m256i u[8]) {
  const __m256i plane = load_bytes(p), fifth = _mm256_set1_epi8(16);
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) u[j] = _mm256_or_si256(u[j], _mm256_and_si256(shift(plane, 4 - j), fifth));
}

inline void add_pairs(const uint8_t* p, __m256i u[8]) {
  const __m256i mask = _mm256_set1_epi8(0x30);
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    const __m256i line = load_bytes(p + j / 4 * 64);
    u[j] = _mm256_or_si256(u[j], _mm256_and_si256(shift(line, 4 - 2 * (j % 4)), mask));
  }
}

inline void split_pairs(const uint8_t* p, __m256i u[8]) {
  const __m256i low = _mm256_set1_epi8(3);
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) u[j] = _mm256_and_si256(shift(load_bytes(p + j / 4 * 64), -2 * (j % 4)), low);
}

// `p`: the codes of a group, moved to the wanted half. Unsigned codes, or signed ones where has_signed_codes(F).
template <Format F>
inline void unpack_codes(const uint8_t* p, const int8_t* lut, __m256i u[8]) {
  if constexpr (F == Format::q8_0) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) u[j] = _mm256_xor_si256(load_bytes(p + 64 * j), _mm256_set1_epi8(char(0x80)));
  } else if constexpr (F == Format::q2_k) {
    split_pairs(p, u);
  } else {
    split_nibbles(p, u);
    if constexpr (F == Format::q6_k) add_pairs(p + kNibbleBytes, u);
    if constexpr (code_bytes(F) == kNibbleBytes + kPlaneBytes) add_plane(p + kNibbleBytes, u);
    if constexpr (F == Format::q4_lut) {
      const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(lut)));
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) u[j] = _mm256_shuffle_epi8(table, u[j]);
    }
  }
}

template <Format F>
inline __m256 group_scale(const uint8_t* tile, int half, int index) {
  if constexpr (F == Format::q4_lut) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(tile + code_bytes(F)) + 8 * half);
  } else if constexpr (!is_super(F)) {
    return load_halves(tile + code_bytes(F) + 16 * half);
  } else {
    const uint8_t* p = tile + super_scales_offset(F) + index * kRowBlock + 8 * half;
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    __m256i wide = F == Format::q6_k ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes);
    if constexpr (F == Format::q2_k) wide = _mm256_and_si256(wide, _mm256_set1_epi32(15));
    return _mm256_mul_ps(load_halves(tile + 16 * half), _mm256_cvtepi32_ps(wide));
  }
}

template <Format F>
inline __m256 group_min(const uint8_t* tile, int half, int index) {
  if constexpr (!is_super(F)) {
    return load_halves(tile + code_bytes(F) + kHalfRowBytes + 16 * half);
  } else {
    constexpr int at = F == Format::q2_k ? super_scales_offset(F) : super_minima_offset(F);
    const uint8_t* p = tile + at + index * kRowBlock + 8 * half;
    __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    if constexpr (F == Format::q2_k) wide = _mm256_srli_epi32(wide, 4);
    return _mm256_mul_ps(load_halves(tile + kHalfRowBytes + 16 * half), _mm256_cvtepi32_ps(wide));
  }
}

// y of eight rows and one token: bias, then residual; no column past N is touched.
inline void store_rows(const LinearArgs& args, int64_t token, int64_t block, int half, __m256 acc) {
  const int64_t row = block * kRowBlock + 8 * half, left = args.weight->num_rows - row;
  if (left <= 0) return;
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i rows = _mm256_cmpgt_epi32(_mm256_set1_epi32(left < 8 ? int(left) : 8), lanes);
  float* y = args.y + token * args.y_stride + row;
  if (args.bias) acc = _mm256_add_ps(acc, _mm256_maskload_ps(args.bias + row, rows));
  if (args.accumulate) acc = _mm256_add_ps(_mm256_maskload_ps(y, rows), acc);
  _mm256_maskstore_ps(y, rows, acc);
}

inline int64_t activation_row(const LinearArgs& args, int64_t token) { return args.row_ids ? args.row_ids[token] : token; }

}  // namespace
}  // namespace roofline
