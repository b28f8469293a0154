// Byte layout of the packed tiles: sizes and offsets only, so that every tier may include it (docs/kernels/linear.md draws it).
// Within 32 k a "line" j is 64 bytes: lane r (row r), byte i holds k = 4j + i. Nibble line i holds line 2i in its low and line 2i+1
// in its high nibbles; bit j of plane byte b is the fifth bit of line j, byte b; pair line h holds line 4h+t in bits 2t, 2t+1.
#pragma once

#include "kernels/linear/contract.h"

namespace roofline {
namespace {

inline constexpr int kNibbleBytes = 256;  // 16 rows x 32 k of four bits
inline constexpr int kPlaneBytes = 64;    // of one bit
inline constexpr int kPairBytes = 128;    // of two bits
inline constexpr int kHalfRowBytes = 32;  // one f16 a row
inline constexpr int kGroupsPerSuper = kSuperLen / kGroupLen;

constexpr bool is_float(Format f) { return f == Format::f32 || f == Format::f16 || f == Format::bf16; }

constexpr bool is_super(Format f) {
  return f == Format::q2_k || f == Format::q4_k || f == Format::q5_k || f == Format::q6_k;
}

constexpr bool has_min(Format f) {
  return f == Format::q4_1 || f == Format::q5_1 || f == Format::q2_k || f == Format::q4_k || f == Format::q5_k;
}

// Elements of K under one weight scale.
constexpr int scale_len(Format f) { return f == Format::q2_k || f == Format::q6_k ? 16 : kGroupLen; }

// What is subtracted from the stored unsigned code (q4_lut: from the table entry made unsigned).
constexpr int code_offset(Format f) {
  switch (f) {
    case Format::q4_0: return 8;
    case Format::q5_0: return 16;
    case Format::q6_k: return 32;
    case Format::q8_0: case Format::q4_lut: return 128;
    default: return 0;
  }
}

// Bytes of the codes of 16 rows x 32 k.
constexpr int code_bytes(Format f) {
  switch (f) {
    case Format::q2_k: return kPairBytes;
    case Format::q5_0: case Format::q5_1: case Format::q5_k: return kNibbleBytes + kPlaneBytes;
    case Format::q6_k: return kNibbleBytes + kPairBytes;
    case Format::q8_0: return 512;
    default: return kNibbleBytes;
  }
}

// A super-tile starts with f16 d [16], f16 -dmin [16] (not q6_k), then its sub-scales, one line of 16 bytes a group, then sub-minima.
constexpr int super_scales_offset(Format f) { return f == Format::q6_k ? kHalfRowBytes : 2 * kHalfRowBytes; }
constexpr int super_minima_offset(Format f) { return super_scales_offset(f) + kRowBlock * kGroupsPerSuper; }  // q4_k, q5_k
constexpr int super_codes_offset(Format f) { return super_scales_offset(f) + 2 * kRowBlock * kGroupsPerSuper; }

// Bytes of one tile: 2 k of a float format, 32 k of a legacy format, 256 k of a k-quant.
constexpr int tile_bytes(Format f) {
  if (f == Format::f32) return 128;
  if (is_float(f)) return 64;
  if (is_super(f)) return super_codes_offset(f) + kGroupsPerSuper * code_bytes(f);
  if (f == Format::q4_lut) return kNibbleBytes + 4 * kRowBlock;
  return code_bytes(f) + kHalfRowBytes * (has_min(f) ? 2 : 1);
}

constexpr int tile_len(Format f) { return is_float(f) ? 2 : is_super(f) ? kSuperLen : kGroupLen; }

}  // namespace
}  // namespace roofline
