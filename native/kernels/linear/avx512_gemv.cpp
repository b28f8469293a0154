// M = 1 and 2 over quantized weights: a stream of memory. Eight row blocks advance together, each prefetching its own future, because the
// hardware prefetcher follows one stream per page and stops at its end (docs/kernels/linear.md has the measurements). The
// activations' broadcasts are shared by the streams: zmm loads are scarcer than dot products.
#include "kernels/linear/avx512_parts.h"
#include "kernels/linear/avx512_unpack.h"

namespace roofline::avx512 {
namespace {

inline constexpr int kPrefetchBytes = 1280;

// One group of 32 activations, broadcast.
template <Format F>
struct GroupInput {
  static constexpr int kHalves = kGroupLen / scale_len(F);
  __m512i a[8];
  __m512i compensation[kHalves];  // - code offset * sum of the activations
  __m512 scale;
  __m512 scaled_sum[kHalves];     // d * sum, for the minima

  GroupInput(const QuantizedRows& x, int64_t row, int64_t group) {
    const int8_t* q = x.q + row * x.q_stride + group * kGroupLen;
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      int32_t four;
      __builtin_memcpy(&four, q + 4 * j, 4);
      a[j] = _mm512_set1_epi32(four);
    }
    const int32_t* sum16 = x.sum16 + row * x.sum_stride + 2 * group;
    const float d = x.scale[row * x.scale_stride + group];
    scale = _mm512_set1_ps(d);
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) {
      const int32_t sum = kHalves == 2 ? sum16[h] : sum16[0] + sum16[1];
      compensation[h] = _mm512_set1_epi32(-code_offset(F) * sum);
      if constexpr (has_min(F)) scaled_sum[h] = _mm512_set1_ps(d * float(sum));
    }
  }
};

// The two chains of the contract for one row block.
struct Chains {
  __m512 acc, low;
};

template <Format F>
inline void add_codes(const __m512i (&u)[8], const uint8_t* tile, int in_tile, const TileScales& shared, const GroupInput<F>& x,
                      Chains& sum) {
  constexpr int kHalves = GroupInput<F>::kHalves;
#pragma GCC unroll 2
  for (int h = 0; h < kHalves; ++h) {
    __m512i even = x.compensation[h], odd = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int j = h * 4; j < (h + 1) * 8 / kHalves; j += 2) {
      even = _mm512_dpbusd_epi32(even, u[j], x.a[j]);
      odd = _mm512_dpbusd_epi32(odd, u[j + 1], x.a[j + 1]);
    }
    const __m512 dot = _mm512_cvtepi32_ps(_mm512_add_epi32(even, odd));
    const int index = in_tile * kHalves + h;
    sum.acc = _mm512_fmadd_ps(dot, _mm512_mul_ps(group_scale<F>(tile, shared, index), x.scale), sum.acc);
    if constexpr (has_min(F)) sum.low = _mm512_fmadd_ps(group_min<F>(tile, shared, index), x.scaled_sum[h], sum.low);
  }
}

// One group of a row block for T tokens, from one unpacking.
template <Format F, int T>
inline void add_group(const uint8_t* tile, int in_tile, const TileScales& shared, __m512i table, const GroupInput<F> (&x)[T],
                      Chains (&sum)[T]) {
  __m512i u[8];
  unpack_codes<F>(group_codes<F>(tile, in_tile), table, u);
#pragma GCC unroll 2
  for (int t = 0; t < T; ++t) add_codes<F>(u, tile, in_tile, shared, x[t], sum[t]);
}

template <Format F>
inline void prefetch_group(const uint8_t* tile, int in_tile) {
  constexpr int kShare = tile_bytes(F) / (tile_len(F) / kGroupLen);
  const uint8_t* ahead = tile + in_tile * kShare + kPrefetchBytes;
#pragma GCC unroll 16
  for (int at = 0; at < kShare; at += 64) _mm_prefetch(reinterpret_cast<const char*>(ahead + at), _MM_HINT_T0);
}

// The activations of one group, of one or two tokens.
template <Format F, int T>
struct TokenInputs {
  GroupInput<F> x[T];
};

template <Format F, int T>
inline TokenInputs<F, T> token_inputs(const LinearArgs& args, int64_t group) {
  if constexpr (T == 1) {
    return {{{args.quantized, activation_row(args, 0), group}}};
  } else {
    return {{{args.quantized, activation_row(args, 0), group}, {args.quantized, activation_row(args, 1), group}}};
  }
}

// Row blocks first, first + step, ... (S of them) by T tokens, all of K.
template <Format F, int S, int T>
void run_streams(const LinearArgs& args, int64_t first, int64_t step) {
  constexpr int kGroups = tile_len(F) / kGroupLen;
  const PackedWeight& weight = *args.weight;
  const __m512i table = unsigned_table(F == Format::q4_lut ? weight.lut : nullptr);
  const uint8_t* tile = weight.tiles + first * weight.block_stride_bytes;
  const int64_t stream_bytes = step * weight.block_stride_bytes;
  Chains sum[S][T];
#pragma GCC unroll 16
  for (int i = 0; i < S * T; ++i) sum[i / T][i % T].acc = sum[i / T][i % T].low = _mm512_setzero_ps();
  for (int64_t group = 0; group < weight.row_len / kGroupLen; group += kGroups, tile += tile_bytes(F)) {
    TileScales shared[S];
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) shared[s] = load_tile_scales<F>(tile + s * stream_bytes);
    for (int g = 0; g < kGroups; ++g) {
      const TokenInputs<F, T> in = token_inputs<F, T>(args, group + g);
#pragma GCC unroll 8
      for (int s = 0; s < S; ++s) {
        prefetch_group<F>(tile + s * stream_bytes, g);
        add_group<F, T>(tile + s * stream_bytes, g, shared[s], table, in.x, sum[s]);
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < S * T; ++i) {
    const Chains& chains = sum[i / T][i % T];
    store_block(args, i % T, first + i / T * step, join<F>(chains.acc, chains.low));
  }
}

// Cuts the range in S equal parts and walks them side by side; what remains goes to fewer streams.
template <Format F, int S, int T>
void gemv_range(const LinearArgs& args, int64_t begin, int64_t end) {
  const int64_t step = (end - begin) / S;
  for (int64_t i = 0; i < step; ++i) run_streams<F, S, T>(args, begin + i, step);
  if constexpr (S > 1) {
    gemv_range<F, S / 2, T>(args, begin + step * S, end);
  }
}

template <Format F>
void gemv(const LinearArgs& args) {
  const auto run = args.num_tokens == 1 ? gemv_range<F, 8, 1> : gemv_range<F, 8, 2>;
  run(args, args.block_begin, args.block_end);
}

}  // namespace

void gemv_quantized(const LinearArgs& args) {
  switch (args.weight->format) {
    case Format::q4_0: return gemv<Format::q4_0>(args);
    case Format::q4_1: return gemv<Format::q4_1>(args);
    case Format::q5_0: return gemv<Format::q5_0>(args);
    case Format::q5_1: return gemv<Format::q5_1>(args);
    case Format::q8_0: return gemv<Format::q8_0>(args);
    case Format::q2_k: return gemv<Format::q2_k>(args);
    case Format::q4_k: return gemv<Format::q4_k>(args);
    case Format::q5_k: return gemv<Format::q5_k>(args);
    case Format::q6_k: return gemv<Format::q6_k>(args);
    case Format::q4_lut: return gemv<Format::q4_lut>(args);
    default: return;  // float formats have their own entry
  }
}

}  // namespace roofline::avx512
