// Unaligned loads and the widening of 16-bit floats in plain C++. Internal linkage: tiers must not share compiled functions.
#pragma once

#include <cstdint>
#include <cstring>

namespace roofline {
namespace {

template <class T>
inline T load(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

inline float float_from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline float bf16_to_float(uint16_t bits) { return float_from_bits(uint32_t{bits} << 16); }

inline float half_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 31u, mantissa = bits & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24 is exact
    const float magnitude = float(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  const uint32_t wide_exponent = exponent == 31 ? 255u : exponent + 112u;
  return float_from_bits(sign | wide_exponent << 23 | mantissa << 13);
}

inline float load_half(const uint8_t* bytes) { return half_to_float(load<uint16_t>(bytes)); }

}  // namespace
}  // namespace roofline
