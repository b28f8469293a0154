// Scalar reading of packed tiles, for `ref` and for unpack_row. Internal linkage: compiled once per user.
#pragma once

#include "kernels/linear/scalar_float.h"
#include "kernels/linear/tile_layout.h"

namespace roofline {
namespace {

// 32 k of one row: signed codes, and the scale and minimum of each 16 k (equal for formats whose group is 32).
struct RowGroup {
  int8_t code[kGroupLen];
  float scale[2];
  float min[2];
};

inline const uint8_t* row_block(const PackedWeight& weight, int64_t row) {
  return weight.tiles + row / kRowBlock * weight.block_stride_bytes;
}

// Unsigned stored code of element k of row `lane`; `codes` are the bytes of one group of 32 k.
inline int stored_code(Format format, const uint8_t* codes, int lane, int k) {
  const int line = k / 4, byte = lane * 4 + k % 4;
  if (format == Format::q8_0) return codes[line * 64 + byte];
  if (format == Format::q2_k) return codes[line / 4 * 64 + byte] >> (line % 4 * 2) & 3;
  const int nibble = codes[line / 2 * 64 + byte] >> (line % 2 * 4) & 15;
  const uint8_t* high = codes + kNibbleBytes;
  if (format == Format::q6_k) return nibble | (high[line / 4 * 64 + byte] >> (line % 4 * 2) & 3) << 4;
  const bool has_plane = code_bytes(format) == kNibbleBytes + kPlaneBytes;
  return has_plane ? nibble | (high[byte] >> line & 1) << 4 : nibble;
}

inline void read_super_scales(Format format, const uint8_t* tile, int group, int lane, RowGroup& out) {
  const float d = load_half(tile + 2 * lane);
  const float dmin = has_min(format) ? load_half(tile + kHalfRowBytes + 2 * lane) : 0.0f;
  const uint8_t* scales = tile + super_scales_offset(format);
  for (int half = 0; half < 2; ++half) {
    const int index = scale_len(format) == 16 ? group * 2 + half : group;
    const uint8_t scale = scales[index * kRowBlock + lane];
    if (format == Format::q6_k) {
      out.scale[half] = d * float(int8_t(scale));
    } else if (format == Format::q2_k) {
      out.scale[half] = d * float(scale & 15);
      out.min[half] = dmin * float(scale >> 4);
    } else {
      out.scale[half] = d * float(scale);
      out.min[half] = dmin * float(tile[super_minima_offset(format) + index * kRowBlock + lane]);
    }
  }
}

inline void read_legacy_scales(Format format, const uint8_t* tile, int lane, RowGroup& out) {
  const uint8_t* scales = tile + code_bytes(format);
  out.scale[0] = out.scale[1] = format == Format::q4_lut ? load<float>(scales + 4 * lane) : load_half(scales + 2 * lane);
  if (has_min(format)) out.min[0] = out.min[1] = load_half(scales + kHalfRowBytes + 2 * lane);
}

// Group `group` (32 k) of row `row`; quantized formats only.
inline RowGroup read_group(const PackedWeight& weight, int64_t row, int64_t group) {
  const Format format = weight.format;
  const int lane = int(row % kRowBlock);
  const int groups_per_tile = tile_len(format) / kGroupLen;
  const uint8_t* tile = row_block(weight, row) + group / groups_per_tile * tile_bytes(format);
  const int in_tile = int(group % groups_per_tile);
  RowGroup out{};
  const uint8_t* codes = tile + in_tile * code_bytes(format);
  if (is_super(format)) {
    codes += super_codes_offset(format);
    read_super_scales(format, tile, in_tile, lane, out);
  } else {
    read_legacy_scales(format, tile, lane, out);
  }
  for (int k = 0; k < kGroupLen; ++k) {
    const int stored = stored_code(format, codes, lane, k);
    out.code[k] = format == Format::q4_lut ? weight.lut[stored] : int8_t(stored - code_offset(format));
  }
  return out;
}

// Element k of row `row`; float formats only.
inline float read_float(const PackedWeight& weight, int64_t row, int64_t k) {
  const int64_t element = k / 2 * (2 * kRowBlock) + row % kRowBlock * 2 + k % 2;
  const uint8_t* block = row_block(weight, row);
  if (weight.format == Format::f32) return load<float>(block + 4 * element);
  const uint16_t bits = load<uint16_t>(block + 2 * element);
  return weight.format == Format::f16 ? half_to_float(bits) : bf16_to_float(bits);
}

}  // namespace
}  // namespace roofline
