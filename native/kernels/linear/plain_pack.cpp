// File bytes to tiles. Each of the sixteen rows of a block is decoded four codes at a time into its own lane of the tile, so a tile
// is written while it sits in L1 and the file is read in sixteen sequential streams.
#include <algorithm>
#include <type_traits>

#include "kernels/linear/plain_schemes.h"

namespace roofline {
namespace {

// One row block of the file: its first row, and how many of its sixteen rows exist.
struct RowsOfBlock {
  const uint8_t* first;
  int64_t row_bytes;
  int num_rows;
};

void store_lane(uint8_t* line, int lane, uint32_t word) { std::memcpy(line + 4 * lane, &word, sizeof word); }

void put_nibbles(uint8_t* out, int lane, const Codes& codes) {
  for (int i = 0; i < 4; ++i) {
    store_lane(out + 64 * i, lane, (codes.word[2 * i] & kLowNibbles) | (codes.word[2 * i + 1] & kLowNibbles) << 4);
  }
}

void put_plane(uint8_t* out, int lane, const Codes& codes) {
  uint32_t plane = 0;
  for (int i = 0; i < 8; ++i) plane |= (codes.word[i] >> 4 & kLowBits) << i;
  store_lane(out, lane, plane);
}

void put_pairs(uint8_t* out, int lane, const Codes& codes, int shift) {
  for (int line = 0; line < 2; ++line) {
    uint32_t pairs = 0;
    for (int t = 0; t < 4; ++t) pairs |= (codes.word[4 * line + t] >> shift & kLowPairs) << 2 * t;
    store_lane(out + 64 * line, lane, pairs);
  }
}

template <Format F>
void put_codes(uint8_t* out, int lane, const Codes& codes) {
  if constexpr (F == Format::q8_0) {
    for (int i = 0; i < 8; ++i) store_lane(out + 64 * i, lane, codes.word[i]);
  } else if constexpr (F == Format::q2_k) {
    put_pairs(out, lane, codes, 0);
  } else {
    put_nibbles(out, lane, codes);
    if constexpr (F == Format::q6_k) put_pairs(out + kNibbleBytes, lane, codes, 4);
    if constexpr (code_bytes(F) == kNibbleBytes + kPlaneBytes) put_plane(out + kNibbleBytes, lane, codes);
  }
}

void copy_half(uint8_t* halves, int lane, const uint8_t* bytes) { std::memcpy(halves + 2 * lane, bytes, 2); }

template <class Scheme>
void pack_legacy_lane(const uint8_t* block, int group, int lane, uint8_t* tile) {
  constexpr Format format = Scheme::format;
  put_codes<format>(tile, lane, Scheme::codes(block, group));
  uint8_t* scales = tile + code_bytes(format);
  if constexpr (format == Format::q4_lut) {
    const float scale = Scheme::group_scale(block, group);
    std::memcpy(scales + 4 * lane, &scale, sizeof scale);
  } else {
    copy_half(scales, lane, block + Scheme::d_at);
    if constexpr (has_min(format)) copy_half(scales + kHalfRowBytes, lane, block + Scheme::min_at);
  }
}

template <class Scheme>
void pack_super_scales(const uint8_t* block, int lane, uint8_t* tile) {
  constexpr Format format = Scheme::format;
  copy_half(tile, lane, block + Scheme::d_at);
  if constexpr (has_min(format)) {
    const uint16_t negated = load<uint16_t>(block + Scheme::min_at) ^ 0x8000u;
    std::memcpy(tile + kHalfRowBytes + 2 * lane, &negated, sizeof negated);
  }
  const SubScales sub = Scheme::sub_scales(block);
  uint8_t* scales = tile + super_scales_offset(format) + lane;
  for (int i = 0; i < kSuperLen / scale_len(format); ++i) {
    scales[i * kRowBlock] = format == Format::q2_k ? uint8_t(sub.scale[i] | sub.min[i] << 4) : sub.scale[i];
    if constexpr (format == Format::q4_k || format == Format::q5_k) {
      scales[(i + kGroupsPerSuper) * kRowBlock] = sub.min[i];
    }
  }
}

template <class Scheme>
void pack_super_lane(const uint8_t* block, int lane, uint8_t* tile) {
  constexpr Format format = Scheme::format;
  pack_super_scales<Scheme>(block, lane, tile);
  uint8_t* codes = tile + super_codes_offset(format);
  for (int g = 0; g < kGroupsPerSuper; ++g) put_codes<format>(codes + g * code_bytes(format), lane, Scheme::codes(block, g));
}

template <class Scheme>
void pack_quantized_block(const RowsOfBlock& rows, int64_t row_len, uint8_t* tile) {
  constexpr Format format = Scheme::format;
  for (int64_t k = 0; k < row_len; k += tile_len(format), tile += tile_bytes(format)) {
    const int64_t block_at = k / Scheme::block_len * Scheme::block_bytes;
    const int group = int(k % Scheme::block_len) / kGroupLen;  // not 0 where a file block spans several tiles
    for (int lane = 0; lane < rows.num_rows; ++lane) {
      const uint8_t* block = rows.first + lane * rows.row_bytes + block_at;
      if constexpr (is_super(format)) {
        pack_super_lane<Scheme>(block, lane, tile);
      } else {
        pack_legacy_lane<Scheme>(block, group, lane, tile);
      }
    }
  }
}

// Sixteen pairs of a row at a time: a cache line or two is read whole, and the tiles that it scatters to stay in L1.
template <class Scheme>
void pack_float_block(const RowsOfBlock& rows, int64_t row_len, uint8_t* tiles) {
  constexpr int64_t size = Scheme::block_bytes, kChunk = 16, tile = tile_bytes(Scheme::format);
  const int64_t num_pairs = row_len / 2;
  for (int64_t first = 0; first < num_pairs; first += kChunk) {
    const int64_t count = std::min(kChunk, num_pairs - first);
    for (int lane = 0; lane < rows.num_rows; ++lane) {
      const uint8_t* from = rows.first + lane * rows.row_bytes + first * 2 * size;
      uint8_t* to = tiles + first * tile + lane * 2 * size;
      for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * tile, from + i * 2 * size, 2 * size);
    }
  }
  if (row_len % 2 == 0) return;
  std::memset(tiles + num_pairs * tile, 0, tile);
  for (int lane = 0; lane < rows.num_rows; ++lane) {
    std::memcpy(tiles + num_pairs * tile + lane * 2 * size, rows.first + lane * rows.row_bytes + num_pairs * 2 * size, size);
  }
}

template <class Scheme>
void pack_block(const RowsOfBlock& rows, int64_t row_len, uint8_t* tiles) {
  if (rows.num_rows < kRowBlock) std::memset(tiles, 0, size_t(packed_block_bytes(Scheme::format, row_len)));
  if constexpr (is_float(Scheme::format)) {
    pack_float_block<Scheme>(rows, row_len, tiles);
  } else {
    pack_quantized_block<Scheme>(rows, row_len, tiles);
  }
}

}  // namespace

Format packed_format(const char* scheme) {
  return with_scheme(scheme, [](auto s) { return decltype(s)::format; });
}

const int8_t* packed_lut(const char* scheme) {
  return with_scheme(scheme, [](auto s) -> const int8_t* {
    if constexpr (decltype(s)::format == Format::q4_lut) {
      return decltype(s)::table;
    } else {
      return nullptr;
    }
  });
}

int64_t scheme_row_bytes(const char* scheme, int64_t row_len) {
  return with_scheme(scheme, [&](auto s) {
    using Scheme = decltype(s);
    if (row_len <= 0 || row_len % Scheme::block_len != 0) {
      throw std::invalid_argument("row length " + std::to_string(row_len) + " is not a positive multiple of " +
                                  std::to_string(Scheme::block_len) + ", the block of scheme " + scheme);
    }
    return row_len / Scheme::block_len * Scheme::block_bytes;
  });
}

int64_t packed_block_bytes(Format format, int64_t row_len) {
  return (row_len + tile_len(format) - 1) / tile_len(format) * tile_bytes(format);
}

void pack_row_blocks(const char* scheme, const uint8_t* rows, int64_t num_rows, int64_t row_len, int64_t block_begin,
                     int64_t block_end, uint8_t* tiles) {
  const int64_t row_bytes = scheme_row_bytes(scheme, row_len);
  if (row_len > kMaxRowLen) {
    throw std::invalid_argument("rows of " + std::to_string(row_len) + " elements; the kernels take at most " +
                                std::to_string(kMaxRowLen));
  }
  with_scheme(scheme, [&](auto s) {
    using Scheme = decltype(s);
    const int64_t stride = packed_block_bytes(Scheme::format, row_len);
    for (int64_t b = block_begin; b < block_end; ++b) {
      const int64_t row = b * kRowBlock;
      const int count = int(std::min<int64_t>(kRowBlock, num_rows - row));
      pack_block<Scheme>({rows + row * row_bytes, row_bytes, count}, row_len, tiles + b * stride);
    }
  });
}

}  // namespace roofline
