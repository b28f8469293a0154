// The GGUF block formats as types, for plain_pack.cpp and plain_unpack.cpp: sizes, the codes of 32 elements, the scales. A group of
// codes is eight 32-bit words of four unsigned bytes in k order, so that the decoding works on four elements at a time.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "kernels/linear/scalar_float.h"
#include "kernels/linear/tile_layout.h"

namespace roofline {
namespace {

struct Codes {
  uint32_t word[8];
};

// Sub-scales of a super-block, one per `scale_len` elements. Minima count downwards: w = d * scale * code - dmin * min.
struct SubScales {
  uint8_t scale[16];
  uint8_t min[16];
};

inline constexpr uint32_t kLowNibbles = 0x0f0f0f0fu, kLowPairs = 0x03030303u, kLowBits = 0x01010101u;

// Sixteen bytes of nibbles: elements 0..15 in the low halves, 16..31 in the high halves.
inline Codes split_nibbles(const uint8_t* bytes) {
  Codes codes;
  for (int i = 0; i < 4; ++i) {
    const uint32_t word = load<uint32_t>(bytes + 4 * i);
    codes.word[i] = word & kLowNibbles;
    codes.word[i + 4] = word >> 4 & kLowNibbles;
  }
  return codes;
}

// Four bits to four bytes, then to the fifth bit of each.
inline uint32_t spread_fifth_bits(uint32_t four_bits) { return (four_bits * 0x00204081u & kLowBits) << 4; }

inline void add_fifth_bits(Codes& codes, uint32_t bits) {
  for (int i = 0; i < 8; ++i) codes.word[i] |= spread_fifth_bits(bits >> 4 * i & 15u);
}

struct Q4_0 {
  static constexpr const char* name = "Q4_0";
  static constexpr Format format = Format::q4_0;
  static constexpr int block_len = 32, block_bytes = 18, d_at = 0, min_at = -1;
  static Codes codes(const uint8_t* block, int) { return split_nibbles(block + 2); }
};

struct Q4_1 {
  static constexpr const char* name = "Q4_1";
  static constexpr Format format = Format::q4_1;
  static constexpr int block_len = 32, block_bytes = 20, d_at = 0, min_at = 2;
  static Codes codes(const uint8_t* block, int) { return split_nibbles(block + 4); }
};

struct Q5_0 {
  static constexpr const char* name = "Q5_0";
  static constexpr Format format = Format::q5_0;
  static constexpr int block_len = 32, block_bytes = 22, d_at = 0, min_at = -1;
  static Codes codes(const uint8_t* block, int) {
    Codes codes = split_nibbles(block + 6);
    add_fifth_bits(codes, load<uint32_t>(block + 2));
    return codes;
  }
};

struct Q5_1 {
  static constexpr const char* name = "Q5_1";
  static constexpr Format format = Format::q5_1;
  static constexpr int block_len = 32, block_bytes = 24, d_at = 0, min_at = 2;
  static Codes codes(const uint8_t* block, int) {
    Codes codes = split_nibbles(block + 8);
    add_fifth_bits(codes, load<uint32_t>(block + 4));
    return codes;
  }
};

struct Q8_0 {
  static constexpr const char* name = "Q8_0";
  static constexpr Format format = Format::q8_0;
  static constexpr int block_len = 32, block_bytes = 34, d_at = 0, min_at = -1;
  static Codes codes(const uint8_t* block, int) {
    Codes codes;
    for (int i = 0; i < 8; ++i) codes.word[i] = load<uint32_t>(block + 2 + 4 * i) ^ 0x80808080u;
    return codes;
  }
};

// Entries of IQ4_NL and IQ4_XS, and twice the values of FP4 E2M1.
inline constexpr int8_t kIq4Table[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
inline constexpr int8_t kFp4Table[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

struct IQ4_NL {
  static constexpr const char* name = "IQ4_NL";
  static constexpr Format format = Format::q4_lut;
  static constexpr int block_len = 32, block_bytes = 18;
  static constexpr const int8_t* table = kIq4Table;
  static Codes codes(const uint8_t* block, int) { return split_nibbles(block + 2); }
  static float group_scale(const uint8_t* block, int) { return load_half(block); }
};

struct IQ4_XS {
  static constexpr const char* name = "IQ4_XS";
  static constexpr Format format = Format::q4_lut;
  static constexpr int block_len = 256, block_bytes = 136;
  static constexpr const int8_t* table = kIq4Table;
  static Codes codes(const uint8_t* block, int group) { return split_nibbles(block + 8 + 16 * group); }
  static float group_scale(const uint8_t* block, int group) {
    const int low = block[4 + group / 2] >> (4 * (group % 2)) & 15;
    const int high = load<uint16_t>(block + 2) >> (2 * group) & 3;
    return load_half(block) * float((low | high << 4) - 32);
  }
};

struct MXFP4 {
  static constexpr const char* name = "MXFP4";
  static constexpr Format format = Format::q4_lut;
  static constexpr int block_len = 32, block_bytes = 17;
  static constexpr const int8_t* table = kFp4Table;
  static Codes codes(const uint8_t* block, int) { return split_nibbles(block + 1); }
  // Half of the block's power of two, since the table is doubled.
  static float group_scale(const uint8_t* block, int) {
    const uint32_t exponent = block[0];
    return float_from_bits(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
  }
};

// Two bits of 32 elements out of a 64-byte field: 128 elements share 32 bytes, group s of them at bits 2s.
inline uint32_t pair_word(const uint8_t* field, int group, int i) {
  return load<uint32_t>(field + group / 4 * 32 + 4 * i) >> (2 * (group % 4)) & kLowPairs;
}

struct Q2_K {
  static constexpr const char* name = "Q2_K";
  static constexpr Format format = Format::q2_k;
  static constexpr int block_len = 256, block_bytes = 84, d_at = 80, min_at = 82;
  static Codes codes(const uint8_t* block, int group) {
    Codes codes;
    for (int i = 0; i < 8; ++i) codes.word[i] = pair_word(block + 16, group, i);
    return codes;
  }
  static SubScales sub_scales(const uint8_t* block) {
    SubScales out;
    for (int i = 0; i < 16; ++i) out.scale[i] = block[i] & 15, out.min[i] = block[i] >> 4;
    return out;
  }
};

// Codes of three bits less 4 become codes of six bits less 32: the same integer, in the tile of Q6_K.
struct Q3_K {
  static constexpr const char* name = "Q3_K";
  static constexpr Format format = Format::q6_k;
  static constexpr int block_len = 256, block_bytes = 110, d_at = 108, min_at = -1;
  static Codes codes(const uint8_t* block, int group) {
    Codes codes;
    for (int i = 0; i < 8; ++i) {
      const uint32_t high = load<uint32_t>(block + 4 * i) >> group & kLowBits;
      codes.word[i] = (pair_word(block + 32, group, i) | high << 2) + 0x1c1c1c1cu;
    }
    return codes;
  }
  static SubScales sub_scales(const uint8_t* block) {
    SubScales out{};
    const uint8_t* packed = block + 96;
    for (int i = 0; i < 16; ++i) {
      const int low = packed[i % 8] >> (4 * (i / 8)) & 15;
      const int high = packed[8 + i % 4] >> (2 * (i / 4)) & 3;
      out.scale[i] = uint8_t((low | high << 4) - 32);
    }
    return out;
  }
};

// The twelve bytes that hold eight scales and eight minima of six bits.
inline SubScales six_bit_scales(const uint8_t* packed) {
  SubScales out{};
  for (int i = 0; i < 4; ++i) {
    out.scale[i] = packed[i] & 63;
    out.min[i] = packed[i + 4] & 63;
    out.scale[i + 4] = (packed[i + 8] & 15) | (packed[i] >> 6) << 4;
    out.min[i + 4] = (packed[i + 8] >> 4) | (packed[i + 4] >> 6) << 4;
  }
  return out;
}

// 64 elements share 32 bytes: the even group has the low nibbles, the odd group the high ones.
inline uint32_t nibble_word(const uint8_t* field, int group, int i) {
  return load<uint32_t>(field + group / 2 * 32 + 4 * i) >> (4 * (group % 2)) & kLowNibbles;
}

struct Q4_K {
  static constexpr const char* name = "Q4_K";
  static constexpr Format format = Format::q4_k;
  static constexpr int block_len = 256, block_bytes = 144, d_at = 0, min_at = 2;
  static Codes codes(const uint8_t* block, int group) {
    Codes codes;
    for (int i = 0; i < 8; ++i) codes.word[i] = nibble_word(block + 16, group, i);
    return codes;
  }
  static SubScales sub_scales(const uint8_t* block) { return six_bit_scales(block + 4); }
};

struct Q5_K {
  static constexpr const char* name = "Q5_K";
  static constexpr Format format = Format::q5_k;
  static constexpr int block_len = 256, block_bytes = 176, d_at = 0, min_at = 2;
  static Codes codes(const uint8_t* block, int group) {
    Codes codes;
    for (int i = 0; i < 8; ++i) {
      const uint32_t high = load<uint32_t>(block + 16 + 4 * i) >> group & kLowBits;
      codes.word[i] = nibble_word(block + 48, group, i) | high << 4;
    }
    return codes;
  }
  static SubScales sub_scales(const uint8_t* block) { return six_bit_scales(block + 4); }
};

struct Q6_K {
  static constexpr const char* name = "Q6_K";
  static constexpr Format format = Format::q6_k;
  static constexpr int block_len = 256, block_bytes = 210, d_at = 208, min_at = -1;
  // 128 elements share 64 bytes of nibbles: groups 0 and 1 are the low halves of their 32 bytes each, 2 and 3 the high halves.
  static Codes codes(const uint8_t* block, int group) {
    const uint8_t* low = block + group / 4 * 64 + group % 2 * 32;
    const int shift = 4 * (group % 4 / 2);
    Codes codes;
    for (int i = 0; i < 8; ++i) {
      codes.word[i] = (load<uint32_t>(low + 4 * i) >> shift & kLowNibbles) | pair_word(block + 128, group, i) << 4;
    }
    return codes;
  }
  static SubScales sub_scales(const uint8_t* block) {
    SubScales out{};
    std::memcpy(out.scale, block + 192, 16);
    return out;
  }
};

struct F32 {
  static constexpr const char* name = "F32";
  static constexpr Format format = Format::f32;
  static constexpr int block_len = 1, block_bytes = 4;
};

struct F16 {
  static constexpr const char* name = "F16";
  static constexpr Format format = Format::f16;
  static constexpr int block_len = 1, block_bytes = 2;
};

struct BF16 {
  static constexpr const char* name = "BF16";
  static constexpr Format format = Format::bf16;
  static constexpr int block_len = 1, block_bytes = 2;
};

// Calls f with the type of the scheme named `scheme`; throws std::invalid_argument naming it when there is none.
template <class Function>
auto with_quantized_scheme(std::string_view scheme, Function f) {
  if (scheme == Q4_0::name) return f(Q4_0{});
  if (scheme == Q4_1::name) return f(Q4_1{});
  if (scheme == Q5_0::name) return f(Q5_0{});
  if (scheme == Q5_1::name) return f(Q5_1{});
  if (scheme == Q8_0::name) return f(Q8_0{});
  if (scheme == Q2_K::name) return f(Q2_K{});
  if (scheme == Q3_K::name) return f(Q3_K{});
  if (scheme == Q4_K::name) return f(Q4_K{});
  if (scheme == Q5_K::name) return f(Q5_K{});
  if (scheme == Q6_K::name) return f(Q6_K{});
  if (scheme == IQ4_NL::name) return f(IQ4_NL{});
  if (scheme == IQ4_XS::name) return f(IQ4_XS{});
  if (scheme == MXFP4::name) return f(MXFP4{});
  throw std::invalid_argument("no packed format for scheme " + std::string(scheme) +
                              "; supported: F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4");
}

template <class Function>
auto with_scheme(std::string_view scheme, Function f) {
  if (scheme == F32::name) return f(F32{});
  if (scheme == F16::name) return f(F16{});
  if (scheme == BF16::name) return f(BF16{});
  return with_quantized_scheme(scheme, f);
}

}  // namespace
}  // namespace roofline
