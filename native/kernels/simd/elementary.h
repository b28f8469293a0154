// Loops over rows and the elementary functions, once for every tier: written over the sixteen lanes of simd/<tier>.h, which is
// included before. Polynomials are our own fits of the relative error; an fma happens only where it is written.
#pragma once

namespace roofline::ROOFLINE_TIER {
namespace {

ROOFLINE_INLINE F32x16 load(const float* p, All all, float) { return load(p, all); }
ROOFLINE_INLINE F32x16 load(const float* p, First part) { return load(p, part, 0.0f); }

// fn(i, part) for each sixteen elements of a row; the last part may be narrower.
template <class Fn>
ROOFLINE_INLINE void for_vectors(int64_t len, Fn fn) {
  int64_t i = 0;
  for (; i + 16 <= len; i += 16) fn(i, All{});
  if (i < len) fn(i, First{len - i});
}

// exp(x) = fraction * 2^n with exponent = n << 23.
struct ExpParts {
  F32x16 fraction;      // within [0.70, 1.42]
  I32x16 exponent;
};

// n = round(x / ln 2) by adding 1.5 * 2^23: the low bits of the sum are n. The polynomial's own error is 4e-9.
ROOFLINE_INLINE ExpParts exp_parts(F32x16 x) {
  const F32x16 shift = set1(12582912.0f);
  const F32x16 shifted = fma(x, set1(1.44269504f), shift);
  const F32x16 n = shifted - shift;
  const F32x16 r = fma(n, set1(1.90465430e-9f), fma(n, set1(-0.693147182f), x));
  F32x16 y = fma(set1(1.3814467e-3f), r, set1(8.368780836e-3f));
  y = fma(y, r, set1(4.166839272e-2f));
  y = fma(y, r, set1(1.666651964e-1f));
  y = fma(y, r, set1(4.999999404e-1f));
  y = fma(y, r, set1(1.0f));
  y = fma(y, r, set1(1.0f));
  return {y, shift_left<23>(as_int(shifted))};
}

// Below ln 2^-126 the result is taken as zero: subnormals would slow every product they meet.
constexpr float kExpLowest = -87.3365402f;
constexpr float kExpHighest = 88.7228317f;

ROOFLINE_INLINE F32x16 exp(F32x16 x) {
  const ExpParts parts = exp_parts(x);
  F32x16 y = as_float(as_int(parts.fraction) + parts.exponent);
  y = select(less(x, set1(kExpLowest)), set1(0.0f), y);
  y = select(less(set1(kExpHighest), x), set1(INFINITY), y);
  return select(is_nan(x), x, y);
}

// exp for x <= 0, with the same bits as exp; NaN stays NaN because the power of two is multiplied in.
ROOFLINE_INLINE F32x16 exp_nonpositive(F32x16 x) {
  const ExpParts parts = exp_parts(x);
  const F32x16 power = as_float(parts.exponent + set1_int(0x3f800000));
  return select(less(x, set1(kExpLowest)), set1(0.0f), parts.fraction * power);
}

ROOFLINE_INLINE F32x16 negate(F32x16 x) { return set1(-0.0f) - x; }

ROOFLINE_INLINE F32x16 sigmoid(F32x16 x) { return set1(1.0f) / (set1(1.0f) + exp(negate(x))); }
ROOFLINE_INLINE F32x16 silu(F32x16 x) { return x / (set1(1.0f) + exp(negate(x))); }

// 0.5 x (1 + tanh u) = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3): no cancellation for negative x.
ROOFLINE_INLINE F32x16 gelu_tanh(F32x16 x) {
  const F32x16 inner = fma(x * x, set1(-2.0f * 0.797884561f * 0.044715f), set1(-2.0f * 0.797884561f));
  return x / (set1(1.0f) + exp(inner * x));
}

// A polynomial near zero, where 1 - 2 / (exp(2|x|) + 1) would cancel.
ROOFLINE_INLINE F32x16 tanh(F32x16 x) {
  const I32x16 sign = as_int(x) & set1_int(INT32_MIN);
  const F32x16 magnitude = as_float(as_int(x) & set1_int(INT32_MAX));
  const F32x16 z = x * x;
  F32x16 small = fma(set1(-5.666974001e-3f), z, set1(2.06061732e-2f));
  small = fma(small, z, set1(-5.373000726e-2f));
  small = fma(small, z, set1(1.333133131e-1f));
  small = fma(small, z, set1(-3.33332777e-1f));
  small = fma(small * z, x, x);
  const F32x16 large = set1(1.0f) - set1(2.0f) / (exp(magnitude + magnitude) + set1(1.0f));
  return select(less(magnitude, set1(0.625f)), small, as_float(as_int(large) | sign));
}

}  // namespace
}  // namespace roofline::ROOFLINE_TIER
