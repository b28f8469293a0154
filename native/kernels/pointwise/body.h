// The pointwise family, once for every tier: included by <tier>.cpp after simd/<tier>.h, whose lanes it is written over. All of
// it is in an unnamed namespace, so no tier's code can be linked into another.
#pragma once

#include "kernels/pointwise/contract.h"
#include "kernels/simd/elementary.h"

namespace roofline::ROOFLINE_TIER {
namespace {

void rms_norm_group(const float* x, const float* weight, float eps, int64_t len, float* y) {
  F32x16 squares = set1(0.0f);
  for_vectors(len, [&](int64_t i, auto part) {
    const F32x16 value = load(x + i, part);
    squares = fma(value, value, squares);
  });
  const F32x16 inverse = set1(1.0f / sqrtf(sum_lanes(squares) / static_cast<float>(len) + eps));
  for_vectors(len, [&](int64_t i, auto part) {
    const F32x16 unit = load(x + i, part) * inverse;
    store(y + i, weight != nullptr ? unit * load(weight + i, part) : unit, part);
  });
}

void rms_norm(const float* x, const float* weight, float eps, int64_t num_groups, int64_t len, float* y) {
  for (int64_t g = 0; g < num_groups; g++) rms_norm_group(x + g * len, weight, eps, len, y + g * len);
}

// Magnitudes compare as integers, so that inf and NaN win the maximum and reach the scale: a bad activation stays visible.
float largest_magnitude(F32x16 a, F32x16 b) {
  const I32x16 mask = set1_int(INT32_MAX);
  const int32_t bits = max_lanes(max(as_int(a) & mask, as_int(b) & mask));
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// A group below 127 / FLT_MAX has no finite inverse and is taken as zero; one with inf or NaN keeps zero codes and that scale.
void quantize_group(const float* x, int8_t* q, float* scale, int32_t* sum16) {
  const F32x16 a = load(x, All{}), b = load(x + 16, All{});
  const float largest = largest_magnitude(a, b);
  const float inverse = 127.0f / largest;
  if (inverse > 0.0f && inverse < INFINITY) {
    const I32x16 qa = round_to_int(a * set1(inverse)), qb = round_to_int(b * set1(inverse));
    store_int8(q, qa);
    store_int8(q + 16, qb);
    sum16[0] = sum_lanes(qa);
    sum16[1] = sum_lanes(qb);
    *scale = largest / 127.0f;
    return;
  }
  memset(q, 0, kGroupLen);
  sum16[0] = sum16[1] = 0;
  *scale = inverse == INFINITY ? 0.0f : largest / 127.0f;
}

void quantize(const float* x, int64_t len, int8_t* q, float* scale, int32_t* sum16) {
  const int64_t num_groups = len / kGroupLen;
  for (int64_t g = 0; g < num_groups; g++) quantize_group(x + g * kGroupLen, q + g * kGroupLen, scale + g, sum16 + 2 * g);
  if (num_groups % 2 != 0) memset(q + len, 0, kGroupLen);
}

void rope_head_half(float* x, int64_t half_len, const float* cos, const float* sin) {
  for_vectors(half_len, [&](int64_t i, auto part) {
    const F32x16 c = load(cos + i, part), s = load(sin + i, part);
    const F32x16 a = load(x + i, part), b = load(x + half_len + i, part);
    store(x + i, fma(a, c, negate(b * s)), part);
    store(x + half_len + i, fma(b, c, a * s), part);
  });
}

void rope_head_interleaved(float* x, int64_t half_len, const float* cos, const float* sin) {
  for (int64_t i = 0; i < half_len; i++) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = fmaf(a, cos[i], -(b * sin[i]));
    x[2 * i + 1] = fmaf(b, cos[i], a * sin[i]);
  }
}

void rope(float* x, int64_t num_heads, int64_t head_size, int64_t rotary_len, const float* cos, const float* sin, RopeStyle style) {
  const auto rope_head = style == RopeStyle::half ? rope_head_half : rope_head_interleaved;
  for (int64_t h = 0; h < num_heads; h++) rope_head(x + h * head_size, rotary_len / 2, cos, sin);
}

void gated_act(const float* gate, const float* up, Activation act, int64_t len, float* y) {
  if (act == Activation::silu) {
    for_vectors(len, [&](int64_t i, auto part) { store(y + i, silu(load(gate + i, part)) * load(up + i, part), part); });
  } else {
    for_vectors(len, [&](int64_t i, auto part) { store(y + i, gelu_tanh(load(gate + i, part)) * load(up + i, part), part); });
  }
}

void add(const float* a, const float* b, int64_t len, float* y) {
  for_vectors(len, [&](int64_t i, auto part) { store(y + i, load(a + i, part) + load(b + i, part), part); });
}

void scale(const float* x, float factor, int64_t len, float* y) {
  for_vectors(len, [&](int64_t i, auto part) { store(y + i, load(x + i, part) * set1(factor), part); });
}

void scaled_add(const float* x, float factor, int64_t len, float* y) {
  for_vectors(len, [&](int64_t i, auto part) { store(y + i, fma(load(x + i, part), set1(factor), load(y + i, part)), part); });
}

void soft_cap(float* x, float cap, int64_t len) {
  for_vectors(len, [&](int64_t i, auto part) { store(x + i, set1(cap) * tanh(load(x + i, part) / set1(cap)), part); });
}

float largest(const float* x, int64_t len) {
  F32x16 best = set1(-INFINITY);
  for_vectors(len, [&](int64_t i, auto part) { best = max(best, load(x + i, part, -INFINITY)); });
  return max_lanes(best);
}

void softmax(float* x, int64_t len) {
  const F32x16 top = set1(largest(x, len));
  F32x16 sums = set1(0.0f);
  for_vectors(len, [&](int64_t i, auto part) {
    const F32x16 value = exp_nonpositive(load(x + i, part, -INFINITY) - top);
    sums = sums + value;
    store(x + i, value, part);
  });
  const F32x16 sum = set1(sum_lanes(sums));
  for_vectors(len, [&](int64_t i, auto part) { store(x + i, load(x + i, part) / sum, part); });
}

float sigmoid_scalar(float x) { return first_lane(sigmoid(set1(x))); }

float dot(const float* a, const float* b, int64_t len) {
  F32x16 sums = set1(0.0f);
  for_vectors(len, [&](int64_t i, auto part) { sums = fma(load(a + i, part), load(b + i, part), sums); });
  return sum_lanes(sums);
}

bool has_nan(const float* x, int64_t len) {
  uint32_t found = 0;
  for_vectors(len, [&](int64_t i, auto part) { found |= mask_bits(is_nan(load(x + i, part))); });
  return found != 0;
}

int64_t argmax(const float* x, int64_t len) {
  if (has_nan(x, len)) return -1;
  const F32x16 top = set1(largest(x, len));
  for (int64_t i = 0; i < len; i += 16) {
    const F32x16 value = i + 16 <= len ? load(x + i, All{}) : load(x + i, First{len - i}, -INFINITY);
    const uint32_t hits = mask_bits(equal(value, top));
    if (hits != 0) return i + __builtin_ctz(hits);
  }
  return -1;
}

constexpr PointwiseKernels kPointwiseKernels{
    rms_norm, quantize, rope, gated_act, add, scale, scaled_add, soft_cap, softmax, sigmoid_scalar, dot, argmax,
};

}  // namespace

const PointwiseKernels& pointwise_kernels() { return kPointwiseKernels; }

}  // namespace roofline::ROOFLINE_TIER
