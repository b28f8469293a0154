// Tiles to registers: eight zmm of unsigned codes (line j holds k 4j..4j+3 of sixteen rows) and the float32 scales of a group.
// Internal linkage; only avx512_*.cpp and amx_*.cpp include it.
#pragma once

#include <immintrin.h>

#include "kernels/linear/tile_layout.h"

namespace roofline {
namespace {

inline __m512i load_line(const uint8_t* p) { return _mm512_loadu_si512(p); }

inline __m512 load_halves(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

inline void split_nibbles(const uint8_t* p, __m512i u[8]) {
  const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i line = load_line(p + 64 * i);
    u[2 * i] = _mm512_and_si512(line, low);
    u[2 * i + 1] = _mm512_and_si512(_mm512_srli_epi16(line, 4), low);
  }
}

// Bit tests run on port 5, the shifts of the nibbles on port 0: together they balance.
inline void add_plane(const uint8_t* p, __m512i u[8]) {
  const __m512i plane = load_line(p), sixteen = _mm512_set1_epi8(16);
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    const __mmask64 bits = _mm512_test_epi8_mask(plane, _mm512_set1_epi8(char(1 << j)));
    u[j] = _mm512_mask_add_epi8(u[j], bits, u[j], sixteen);
  }
}

// Bits 2t, 2t+1 of each byte of `line` moved to bits 4, 5; the other bits are junk.
template <int t>
inline __m512i pair_to_bit_4(__m512i line) {
  if constexpr (t < 2) return _mm512_slli_epi16(line, 4 - 2 * t);
  if constexpr (t == 3) return _mm512_srli_epi16(line, 2);
  return line;
}

inline void add_pairs(const uint8_t* p, __m512i u[8]) {
  constexpr int kAndOr = 0xea;  // (a & b) | c
  const __m512i mask = _mm512_set1_epi8(0x30);
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const __m512i line = load_line(p + 64 * h);
    __m512i* out = u + 4 * h;
    out[0] = _mm512_ternarylogic_epi32(pair_to_bit_4<0>(line), mask, out[0], kAndOr);
    out[1] = _mm512_ternarylogic_epi32(pair_to_bit_4<1>(line), mask, out[1], kAndOr);
    out[2] = _mm512_ternarylogic_epi32(pair_to_bit_4<2>(line), mask, out[2], kAndOr);
    out[3] = _mm512_ternarylogic_epi32(pair_to_bit_4<3>(line), mask, out[3], kAndOr);
  }
}

inline void split_pairs(const uint8_t* p, __m512i u[8]) {
  const __m512i low = _mm512_set1_epi8(3);
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const __m512i line = load_line(p + 64 * h);
    u[4 * h] = _mm512_and_si512(line, low);
    u[4 * h + 1] = _mm512_and_si512(_mm512_srli_epi16(line, 2), low);
    u[4 * h + 2] = _mm512_and_si512(_mm512_srli_epi16(line, 4), low);
    u[4 * h + 3] = _mm512_and_si512(_mm512_srli_epi16(line, 6), low);
  }
}

// The table of q4_lut in every 128-bit lane, made unsigned (code_offset 128).
inline __m512i unsigned_table(const int8_t* lut) {
  if (!lut) return _mm512_setzero_si512();
  const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(lut));
  return _mm512_xor_si512(_mm512_broadcast_i32x4(table), _mm512_set1_epi8(char(0x80)));
}

template <Format F>
inline void unpack_codes(const uint8_t* p, __m512i table, __m512i u[8]) {
  if constexpr (F == Format::q8_0) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) u[j] = load_line(p + 64 * j);
  } else if constexpr (F == Format::q2_k) {
    split_pairs(p, u);
  } else {
    split_nibbles(p, u);
    if constexpr (F == Format::q6_k) add_pairs(p + kNibbleBytes, u);
    if constexpr (code_bytes(F) == kNibbleBytes + kPlaneBytes) add_plane(p + kNibbleBytes, u);
    if constexpr (F == Format::q4_lut) {
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) u[j] = _mm512_shuffle_epi8(table, u[j]);
    }
  }
}

// What a tile's sixteen rows share over all its k: scale and minimum, or the factors of a super-tile's sub-scales and sub-minima.
struct TileScales {
  __m512 scale;
  __m512 min;
};

template <Format F>
inline TileScales load_tile_scales(const uint8_t* tile) {
  const uint8_t* p = is_super(F) ? tile : tile + code_bytes(F);
  TileScales out;
  out.scale = F == Format::q4_lut ? _mm512_loadu_ps(p) : load_halves(p);
  out.min = has_min(F) ? load_halves(p + kHalfRowBytes) : _mm512_setzero_ps();
  return out;
}

inline __m128i load_sub_scales(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

// Scale number `index` of a tile (one per scale_len(F) elements).
template <Format F>
inline __m512 group_scale(const uint8_t* tile, const TileScales& shared, int index) {
  if constexpr (!is_super(F)) return shared.scale;
  const __m128i bytes = load_sub_scales(tile + super_scales_offset(F) + index * kRowBlock);
  __m512i wide = F == Format::q6_k ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
  if constexpr (F == Format::q2_k) wide = _mm512_and_si512(wide, _mm512_set1_epi32(15));
  return _mm512_mul_ps(shared.scale, _mm512_cvtepi32_ps(wide));
}

template <Format F>
inline __m512 group_min(const uint8_t* tile, const TileScales& shared, int index) {
  if constexpr (!is_super(F)) return shared.min;
  constexpr int at = F == Format::q2_k ? super_scales_offset(F) : super_minima_offset(F);
  __m512i wide = _mm512_cvtepu8_epi32(load_sub_scales(tile + at + index * kRowBlock));
  if constexpr (F == Format::q2_k) wide = _mm512_srli_epi32(wide, 4);
  return _mm512_mul_ps(shared.min, _mm512_cvtepi32_ps(wide));
}

// The codes of group `in_tile` (32 k) of a tile.
template <Format F>
inline const uint8_t* group_codes(const uint8_t* tile, int in_tile) {
  return tile + (is_super(F) ? super_codes_offset(F) + in_tile * code_bytes(F) : 0);
}

// y of one row block and one token: bias, then residual; no column past N is touched.
inline void store_block(const LinearArgs& args, int64_t token, int64_t block, __m512 acc) {
  const int64_t row = block * kRowBlock, left = args.weight->num_rows - row;
  const __mmask16 rows = left >= kRowBlock ? __mmask16(0xffff) : __mmask16((1u << left) - 1u);
  float* y = args.y + token * args.y_stride + row;
  if (args.bias) acc = _mm512_add_ps(acc, _mm512_maskz_loadu_ps(rows, args.bias + row));
  if (args.accumulate) acc = _mm512_add_ps(_mm512_maskz_loadu_ps(rows, y), acc);
  _mm512_mask_storeu_ps(y, rows, acc);
}

// The chains of the contract joined.
template <Format F>
inline __m512 join(__m512 acc, __m512 low) {
  return has_min(F) ? _mm512_add_ps(acc, low) : acc;
}

inline int64_t activation_row(const LinearArgs& args, int64_t token) { return args.row_ids ? args.row_ids[token] : token; }

}  // namespace
}  // namespace roofline
