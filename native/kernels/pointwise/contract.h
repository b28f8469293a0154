// Contract of the pointwise family: everything between the matrix products, on float32 rows. A call handles one thread's rows.
// Reductions run over sixteen lanes as roofline/numeric.h says; exp, silu and gelu are one polynomial on every tier, so results
// are equal bit for bit between tiers.
#pragma once

#include <cstdint>

#include "roofline/isa.h"
#include "roofline/numeric.h"

namespace roofline {

enum class Activation : int { silu, gelu_tanh };
enum class RopeStyle : int { half, interleaved };   // pairs (i, i + R/2), or (2i, 2i + 1); R = rotary length <= D

struct PointwiseKernels {
  // y[i] = x[i] * (1 / sqrt(mean(x^2) + eps)) * weight[i], left to right; weight may be null. `num_groups` consecutive groups of `len` share weight[len].
  // y may alias x.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t num_groups, int64_t len, float* y);
  // One row -> int8, per-32 scales and per-16 sums (QuantizedRows); zeroes q past `len` up to a multiple of 64. len % 32 == 0.
  void (*quantize)(const float* x, int64_t len, int8_t* q, float* scale, int32_t* sum16);
  // In place on `num_heads` heads of `head_size`; cos/sin hold rotary_len/2 values for this row's position.
  void (*rope)(float* x, int64_t num_heads, int64_t head_size, int64_t rotary_len, const float* cos, const float* sin, RopeStyle style);
  // y[i] = act(gate[i]) * up[i]; y may alias either.
  void (*gated_act)(const float* gate, const float* up, Activation act, int64_t len, float* y);
  void (*add)(const float* a, const float* b, int64_t len, float* y);                    // y may alias
  void (*scale)(const float* x, float factor, int64_t len, float* y);                    // y may alias
  void (*scaled_add)(const float* x, float factor, int64_t len, float* y);               // y = fma(x, factor, y)
  void (*soft_cap)(float* x, float cap, int64_t len);                                    // x = cap * tanh(x / cap)
  void (*softmax)(float* x, int64_t len);                                                // in place, float32
  float (*sigmoid)(float x);
  float (*dot)(const float* a, const float* b, int64_t len);                             // canonical lanes
  int64_t (*argmax)(const float* x, int64_t len);                                        // lowest index of the largest; NaN -> -1
};

// plain_select.cpp: the highest tier up to `cap` that was built, and which one it is. The caller has checked the machine runs `cap`.
const PointwiseKernels& pointwise_kernels(Isa cap, Isa* chosen);

namespace ref { const PointwiseKernels& pointwise_kernels(); }
namespace avx2 { const PointwiseKernels& pointwise_kernels(); }
namespace avx512 { const PointwiseKernels& pointwise_kernels(); }

}  // namespace roofline
