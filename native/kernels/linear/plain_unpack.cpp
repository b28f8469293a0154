// Back to float32: a row of tiles (unpack_row, the proof that packing loses nothing) and a row of file bytes (dequantize_row).
#include "kernels/linear/plain_schemes.h"
#include "kernels/linear/tile_read.h"

namespace roofline {
namespace {

struct Affine {
  float scale;
  float min;
};

template <class Scheme>
Affine super_affine(const uint8_t* block, const SubScales& sub, int index) {
  const int scale = Scheme::format == Format::q6_k ? int(int8_t(sub.scale[index])) : int(sub.scale[index]);
  const float d = load_half(block + Scheme::d_at);
  if constexpr (has_min(Scheme::format)) return {d * float(scale), -(load_half(block + Scheme::min_at) * float(sub.min[index]))};
  return {d * float(scale), 0.0f};
}

template <class Scheme>
Affine legacy_affine(const uint8_t* block, int group) {
  if constexpr (Scheme::format == Format::q4_lut) {
    return {Scheme::group_scale(block, group), 0.0f};
  } else if constexpr (has_min(Scheme::format)) {
    return {load_half(block + Scheme::d_at), load_half(block + Scheme::min_at)};
  } else {
    return {load_half(block + Scheme::d_at), 0.0f};
  }
}

template <class Scheme>
int signed_code(uint8_t stored) {
  if constexpr (Scheme::format == Format::q4_lut) {
    return Scheme::table[stored];
  } else {
    return int(stored) - code_offset(Scheme::format);
  }
}

// Elements [begin, begin + count) of a group; a scheme without minima must not add one, or -0 would become +0.
template <class Scheme>
void write_floats(const Codes& codes, int begin, int count, Affine affine, float* out) {
  for (int k = begin; k < begin + count; ++k) {
    const float value = affine.scale * float(signed_code<Scheme>(uint8_t(codes.word[k / 4] >> 8 * (k % 4))));
    out[k] = has_min(Scheme::format) ? value + affine.min : value;
  }
}

template <class Scheme>
void dequantize_block(const uint8_t* block, float* out) {
  constexpr Format format = Scheme::format;
  SubScales sub{};
  if constexpr (is_super(format)) sub = Scheme::sub_scales(block);
  for (int g = 0; g < Scheme::block_len / kGroupLen; ++g, out += kGroupLen) {
    const Codes codes = Scheme::codes(block, g);
    for (int k = 0; k < kGroupLen; k += scale_len(format)) {
      Affine affine;
      if constexpr (is_super(format)) {
        affine = super_affine<Scheme>(block, sub, (g * kGroupLen + k) / scale_len(format));
      } else {
        affine = legacy_affine<Scheme>(block, g);
      }
      write_floats<Scheme>(codes, k, scale_len(format), affine, out);
    }
  }
}

template <class Scheme>
float widen(const uint8_t* bytes) {
  if constexpr (Scheme::format == Format::f32) return load<float>(bytes);
  const uint16_t bits = load<uint16_t>(bytes);
  return Scheme::format == Format::f16 ? half_to_float(bits) : bf16_to_float(bits);
}

void unpack_quantized_row(const PackedWeight& weight, int64_t row, float* out) {
  for (int64_t g = 0; g < weight.row_len / kGroupLen; ++g, out += kGroupLen) {
    const RowGroup group = read_group(weight, row, g);
    for (int k = 0; k < kGroupLen; ++k) {
      const float value = group.scale[k / 16] * float(group.code[k]);
      out[k] = has_min(weight.format) ? value + group.min[k / 16] : value;
    }
  }
}

}  // namespace

void dequantize_row(const char* scheme, const uint8_t* row, int64_t row_len, float* out) {
  const int64_t row_bytes = scheme_row_bytes(scheme, row_len);
  with_scheme(scheme, [&](auto s) {
    using Scheme = decltype(s);
    for (int64_t at = 0; at < row_bytes; at += Scheme::block_bytes, out += Scheme::block_len) {
      if constexpr (is_float(Scheme::format)) {
        *out = widen<Scheme>(row + at);
      } else {
        dequantize_block<Scheme>(row + at, out);
      }
    }
  });
}

void unpack_row(const PackedWeight& weight, int64_t row, float* out) {
  if (!is_float(weight.format)) return unpack_quantized_row(weight, row, out);
  for (int64_t k = 0; k < weight.row_len; ++k) out[k] = read_float(weight, row, k);
}

}  // namespace roofline
