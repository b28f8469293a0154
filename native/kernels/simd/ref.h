// Sixteen float lanes in plain C++: what every tier's vector operations mean. max and min return the second operand when either
// is NaN and when both are zeros, as the x86 instructions do. Included by the ref.cpp of a family and by nothing else.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#define ROOFLINE_TIER ref
#define ROOFLINE_INLINE inline

namespace roofline::ref {
namespace {

struct F32x16 { float v[16]; };
struct I32x16 { int32_t v[16]; };
struct Mask16 { uint32_t bits; };        // bit i is lane i

// Rows and vectors that a register block of the attention kernels holds.
constexpr int kMaxBlockRows = 4;
constexpr int kBlockVectors = 8;

struct All {};                           // every lane takes part
struct First { int64_t count; };         // lanes 0..count-1 take part; memory of the others is not touched

template <class Fn>
inline F32x16 lanes(Fn fn) {
  F32x16 out;
  for (int i = 0; i < 16; i++) out.v[i] = fn(i);
  return out;
}

template <class Fn>
inline I32x16 int_lanes(Fn fn) {
  I32x16 out;
  for (int i = 0; i < 16; i++) out.v[i] = fn(i);
  return out;
}

template <class Fn>
inline Mask16 mask_lanes(Fn fn) {
  uint32_t bits = 0;
  for (int i = 0; i < 16; i++) bits |= static_cast<uint32_t>(fn(i)) << i;
  return {bits};
}

inline F32x16 set1(float x) { return lanes([=](int) { return x; }); }
inline F32x16 load(const float* p, All) { return lanes([=](int i) { return p[i]; }); }
inline F32x16 load(const float* p, First part, float fill) {
  return lanes([=](int i) { return i < part.count ? p[i] : fill; });
}
inline void store(float* p, F32x16 x, All) { memcpy(p, x.v, sizeof x.v); }
inline void store(float* p, F32x16 x, First part) { memcpy(p, x.v, static_cast<size_t>(part.count) * sizeof(float)); }

inline F32x16 operator+(F32x16 a, F32x16 b) { return lanes([&](int i) { return a.v[i] + b.v[i]; }); }
inline F32x16 operator-(F32x16 a, F32x16 b) { return lanes([&](int i) { return a.v[i] - b.v[i]; }); }
inline F32x16 operator*(F32x16 a, F32x16 b) { return lanes([&](int i) { return a.v[i] * b.v[i]; }); }
inline F32x16 operator/(F32x16 a, F32x16 b) { return lanes([&](int i) { return a.v[i] / b.v[i]; }); }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return lanes([&](int i) { return fmaf(a.v[i], b.v[i], c.v[i]); }); }
inline F32x16 max(F32x16 a, F32x16 b) { return lanes([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; }); }
inline F32x16 min(F32x16 a, F32x16 b) { return lanes([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; }); }

inline Mask16 less(F32x16 a, F32x16 b) { return mask_lanes([&](int i) { return a.v[i] < b.v[i]; }); }
inline Mask16 equal(F32x16 a, F32x16 b) { return mask_lanes([&](int i) { return a.v[i] == b.v[i]; }); }
inline Mask16 is_nan(F32x16 a) { return mask_lanes([&](int i) { return a.v[i] != a.v[i]; }); }
inline Mask16 mask_from_bits(uint32_t bits) { return {bits}; }
inline uint32_t mask_bits(Mask16 m) { return m.bits; }
inline F32x16 select(Mask16 m, F32x16 yes, F32x16 no) {
  return lanes([&](int i) { return (m.bits >> i & 1) != 0 ? yes.v[i] : no.v[i]; });
}

inline I32x16 set1_int(int32_t x) { return int_lanes([=](int) { return x; }); }
inline I32x16 as_int(F32x16 x) { I32x16 out; memcpy(&out, &x, sizeof out); return out; }
inline F32x16 as_float(I32x16 x) { F32x16 out; memcpy(&out, &x, sizeof out); return out; }
inline I32x16 operator+(I32x16 a, I32x16 b) {
  return int_lanes([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) + static_cast<uint32_t>(b.v[i])); });
}
inline I32x16 operator&(I32x16 a, I32x16 b) { return int_lanes([&](int i) { return a.v[i] & b.v[i]; }); }
inline I32x16 operator|(I32x16 a, I32x16 b) { return int_lanes([&](int i) { return a.v[i] | b.v[i]; }); }
inline I32x16 max(I32x16 a, I32x16 b) { return int_lanes([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; }); }
template <int kBits>
inline I32x16 shift_left(I32x16 a) {
  return int_lanes([&](int i) { return static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) << kBits); });
}
// Half to even; |x| < 2^31.
inline I32x16 round_to_int(F32x16 x) { return int_lanes([&](int i) { return static_cast<int32_t>(lrintf(x.v[i])); }); }
inline void store_int8(int8_t* p, I32x16 x) {      // |x| <= 127
  for (int i = 0; i < 16; i++) p[i] = static_cast<int8_t>(x.v[i]);
}

inline float first_lane(F32x16 x) { return x.v[0]; }

// Tree 8+8, 4+4, 2+2, 1+1.
inline float sum_lanes(F32x16 x) {
  for (int width = 8; width >= 1; width /= 2) {
    for (int i = 0; i < width; i++) x.v[i] = x.v[i] + x.v[i + width];
  }
  return x.v[0];
}
inline float max_lanes(F32x16 x) {
  for (int width = 8; width >= 1; width /= 2) {
    for (int i = 0; i < width; i++) x.v[i] = x.v[i] > x.v[i + width] ? x.v[i] : x.v[i + width];
  }
  return x.v[0];
}
inline int32_t sum_lanes(I32x16 x) {
  int32_t sum = 0;
  for (int i = 0; i < 16; i++) sum += x.v[i];
  return sum;
}
inline int32_t max_lanes(I32x16 x) {
  int32_t best = x.v[0];
  for (int i = 1; i < 16; i++) best = x.v[i] > best ? x.v[i] : best;
  return best;
}

inline float from_bits(uint32_t bits) { float x; memcpy(&x, &bits, sizeof x); return x; }
inline uint32_t to_bits(float x) { uint32_t bits; memcpy(&bits, &x, sizeof bits); return bits; }

inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = half >> 10 & 0x1f, mantissa = half & 0x3ff;
  if (exponent == 0x1f) return from_bits(sign | 0x7f800000 | mantissa << 13 | (mantissa != 0 ? 0x400000 : 0));
  if (exponent != 0) return from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return from_bits(sign | to_bits(magnitude));
}

// Nearest, ties to even. Below 2^-14 the target steps by 2^-24, as floats in [0.5, 1) do: adding 0.5 rounds to that step.
inline uint16_t float_to_half(float x) {
  const uint32_t bits = to_bits(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x1ff));
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < 0x38800000) return static_cast<uint16_t>(sign | (to_bits(from_bits(magnitude) + 0.5f) - to_bits(0.5f)));
  return static_cast<uint16_t>(sign | (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13);
}

inline F32x16 load_f16(const uint16_t* p) { return lanes([=](int i) { return half_to_float(p[i]); }); }
inline F32x16 load_bf16(const uint16_t* p) { return lanes([=](int i) { return from_bits(static_cast<uint32_t>(p[i]) << 16); }); }
inline void store_f16(uint16_t* p, F32x16 x) {
  for (int i = 0; i < 16; i++) p[i] = float_to_half(x.v[i]);
}
inline void prefetch(const void* p) { __builtin_prefetch(p); }

}  // namespace
}  // namespace roofline::ref
