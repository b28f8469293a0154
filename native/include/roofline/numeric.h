// The numeric contract, native side: constants that every tier shares. Only constexpr integers may live here (no inline
// function may be compiled with two sets of flags).
//
// Linear, quantized weights. For output row n and token m, over groups g of the weight's group length G (16 or 32) in order:
//     acc = fma(float(sum_{k in g} code[n,k] * a[m,k]), scale[n,g] * d[m,g32], acc)
//     low = fma(min[n,g], d[m,g32] * float(sum_{k in g} a[m,k]), low)            (formats with a minimum only)
// result acc (+ low). The minima have their own chain so that a GEMM may take them as a second, smaller product.
// with code a signed integer, a the int8 activation, d its float32 scale per 32, and scale/min float32 (for k-quants the product
// d * sub_scale rounded once). The integer sums are exact, so every tier, thread count and M gives the same bits.
//
// Linear, float weights (f32, f16, bf16 widened to float32): two chains, acc[k % 2] = fma(w[n,k], x[m,k], acc[k % 2]) in k order;
// result acc[0] + acc[1].
//
// Row reductions (norms, softmax sums) run over sixteen lanes, lane i taking elements i, i+16, ...; lanes are then added as
// a tree: 8+8, 4+4, 2+2, 1+1. Elements past the end count as zero.
//
// Attention reduces over canonical chunks of kChunkLen tokens, counted from position 0 of the sequence; the partials (max, sum,
// output) of the chunks are merged in order. Masking and skipping are decided per row.
#pragma once

#include <cstdint>

namespace roofline {

inline constexpr int kRowBlock = 16;      // output rows in a packed tile = float lanes of a zmm
inline constexpr int kGroupLen = 32;      // elements of K that share one activation scale
inline constexpr int kSuperLen = 256;     // elements of K in a k-quant super-block
inline constexpr int kBlockLen = 32;      // tokens in a KV block
inline constexpr int kChunkLen = 256;     // tokens in a canonical attention chunk
inline constexpr int kLanes = 16;         // lanes of a canonical row reduction

}  // namespace roofline
