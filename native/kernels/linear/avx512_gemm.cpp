// M >= 2 over quantized weights. Up to four row blocks of a slice of K are unpacked once into a panel in L1 that looks the same for
// all formats (unsigned codes, float32 scales and minima); then tiles of up to six tokens run over it. Four by six because a zmm
// load costs as much as two dot products here: 10 loads feed 24. The float32 sums stay in memory between groups and slices.
#include "kernels/linear/avx512_fma_tile.h"
#include "kernels/linear/avx512_panel.h"
#include "kernels/linear/avx512_parts.h"

namespace roofline::avx512 {
namespace {

inline constexpr int kMaxTokens = 6;  // in a tile

// What the tokens of a tile bring to a slice. `compensation` and `scaled_sum` are per token, a slot for every half of a group.
template <int T>
struct TileInput {
  const int8_t* q[T];
  const int8_t* next_q[T];  // of the next tile's tokens, to fetch meanwhile
  const float* scale[T];
  alignas(64) int32_t compensation[T][2 * kMaxGroups];
  alignas(64) float scaled_sum[T][2 * kMaxGroups];
};

inline void fetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

template <int T, int G, bool kMin>
void prepare_tile(const LinearArgs& args, const Slice& slice, int64_t token, TileInput<T>& in) {
  const QuantizedRows& x = args.quantized;
  for (int t = 0; t < T; ++t) {
    const int64_t row = activation_row(args, token + t);
    const int64_t next = token + T + t < args.num_tokens ? activation_row(args, token + T + t) : row;
    in.q[t] = x.q + row * x.q_stride + slice.begin * kGroupLen;
    in.next_q[t] = x.q + next * x.q_stride + slice.begin * kGroupLen;
    fetch(x.scale + next * x.scale_stride + slice.begin);
    fetch(x.sum16 + next * x.sum_stride + 2 * slice.begin);
    fetch(x.sum16 + next * x.sum_stride + 2 * slice.begin + 16);
    in.scale[t] = x.scale + row * x.scale_stride + slice.begin;
    const int32_t* sum16 = x.sum16 + row * x.sum_stride + 2 * slice.begin;
    prepare_sums<G, kMin>(sum16, in.scale[t], slice.end - slice.begin, code_offset(args.weight->format), in.compensation[t],
                          in.scaled_sum[t]);
  }
}

inline __m512i broadcast_four(const int8_t* q) {
  int32_t four;
  __builtin_memcpy(&four, q, 4);
  return _mm512_set1_epi32(four);
}

// sums[t][r] += the slice, group by group. `sums` is [T][R] zmm in memory.
template <int R, int T, int G>
__attribute__((noinline)) void multiply_codes(const uint8_t* panel, const TileInput<T>& in, int64_t num_groups, float* sums) {
  constexpr int kHalves = kGroupLen / G, kLines = 8 / kHalves;
  const int8_t* q[T];
#pragma GCC unroll 6
  for (int t = 0; t < T; ++t) q[t] = in.q[t];
  for (int64_t g = 0; g < num_groups; ++g, panel += record_bytes(R, G)) {
    // A line of 64 k is two groups: half the tokens fetch theirs now, half in the next group.
#pragma GCC unroll 3
    for (int t = 0; t + 1 < T; t += 2) fetch(in.next_q[t + (g & 1)] + g * kGroupLen);
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) {
      __m512i dot[T][R];
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) {
        const __m512i start = _mm512_set1_epi32(in.compensation[t][g * kHalves + h]);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) dot[t][r] = start;
      }
#pragma GCC unroll 8
      for (int j = h * kLines; j < (h + 1) * kLines; ++j) {
        __m512i w[R];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) w[r] = _mm512_load_si512(panel + 64 * (R * j + r));
#pragma GCC unroll 6
        for (int t = 0; t < T; ++t) {
          const __m512i a = broadcast_four(q[t] + g * kGroupLen + 4 * j);
#pragma GCC unroll 4
          for (int r = 0; r < R; ++r) dot[t][r] = _mm512_dpbusd_epi32(dot[t][r], w[r], a);
        }
      }
      const float* scales = reinterpret_cast<const float*>(panel) + kRowBlock * R * (8 + h);
      __m512 scale[R];
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) scale[r] = _mm512_load_ps(scales + kRowBlock * r);
#pragma GCC unroll 6
      for (int t = 0; t < T; ++t) {
        const __m512 d = _mm512_set1_ps(in.scale[t][g]);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          float* sum = sums + kRowBlock * (t * R + r);
          const __m512 product = _mm512_mul_ps(scale[r], d);
          _mm512_store_ps(sum, _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[t][r]), product, _mm512_load_ps(sum)));
        }
      }
      asm volatile("" ::: "memory");  // keeps the sums in one place; GCC 12 otherwise stores each twice
    }
  }
}

template <int R, int T, int G, bool kMin>
void run_tile(const LinearArgs& args, const Slice& slice, int64_t token, const Sums& sums) {
  TileInput<T> in;
  prepare_tile<T, G, kMin>(args, slice, token, in);
  const int64_t num_groups = slice.end - slice.begin;
  multiply_codes<R, T, G>(args.scratch, in, num_groups, sums.acc);
  if constexpr (kMin) {
    const float* scaled_sum[T];
    for (int t = 0; t < T; ++t) scaled_sum[t] = in.scaled_sum[t];
    const float* minima = reinterpret_cast<const float*>(args.scratch + kMinimaAt);
    multiply_floats<R, T, 1>(minima, scaled_sum, num_groups * (kGroupLen / G), sums.low);
  }
}

// Tiles of nearly equal size, at most six: a last tile of one or two tokens would starve on loads.
inline int64_t next_tile(int64_t left) {
  const int64_t num_tiles = (left + kMaxTokens - 1) / kMaxTokens;
  return (left + num_tiles - 1) / num_tiles;
}

template <int R, int G, bool kMin>
void multiply_chunk(const LinearArgs& args, const Slice& slice, int64_t token, int64_t end, Sums sums) {
  for (int64_t size; token < end; token += size) {
    size = next_tile(end - token);
    switch (size) {
      case 1: run_tile<R, 1, G, kMin>(args, slice, token, sums); break;
      case 2: run_tile<R, 2, G, kMin>(args, slice, token, sums); break;
      case 3: run_tile<R, 3, G, kMin>(args, slice, token, sums); break;
      case 4: run_tile<R, 4, G, kMin>(args, slice, token, sums); break;
      case 5: run_tile<R, 5, G, kMin>(args, slice, token, sums); break;
      default: run_tile<R, 6, G, kMin>(args, slice, token, sums); break;
    }
    sums.acc += size * R * kRowBlock;
    sums.low += size * R * kRowBlock;
  }
}

// R row blocks, all tokens. The slices are of nearly equal length.
template <Format F, int R>
void gemm_blocks(const LinearArgs& args, int64_t first_block) {
  constexpr int64_t kSlice = slice_groups(scale_len(F)), kChunk = chunk_tokens(has_min(F));
  float* minima = reinterpret_cast<float*>(args.scratch + kMinimaAt);
  float* acc = reinterpret_cast<float*>(args.scratch + kSumsAt);
  const int64_t num_groups = args.weight->row_len / kGroupLen, num_slices = (num_groups + kSlice - 1) / kSlice;
  for (int64_t token = 0; token < args.num_tokens; token += kChunk) {
    const int64_t end = token + kChunk < args.num_tokens ? token + kChunk : args.num_tokens;
    const int64_t num_sums = (end - token) * R * kRowBlock;
    const Sums sums{acc, acc + num_sums};
    __builtin_memset(acc, 0, size_t(num_sums) * sizeof(float) * (has_min(F) ? 2 : 1));
    for (int64_t s = 0; s < num_slices; ++s) {
      const Slice slice{num_groups * s / num_slices, num_groups * (s + 1) / num_slices, first_block};
      unpack_panel<F, R>(*args.weight, slice, args.scratch, minima);
      multiply_chunk<R, scale_len(F), has_min(F)>(args, slice, token, end, sums);
    }
    store_chunk<F, R>(args, first_block, token, end, sums);
  }
}

template <Format F>
void gemm(const LinearArgs& args) {
  int64_t block = args.block_begin;
  for (; block + 4 <= args.block_end; block += 4) gemm_blocks<F, 4>(args, block);
  if (block + 2 <= args.block_end) gemm_blocks<F, 2>(args, block), block += 2;
  if (block < args.block_end) gemm_blocks<F, 1>(args, block);
}

}  // namespace

void gemm_quantized(const LinearArgs& args) {
  switch (args.weight->format) {
    case Format::q4_0: return gemm<Format::q4_0>(args);
    case Format::q4_1: return gemm<Format::q4_1>(args);
    case Format::q5_0: return gemm<Format::q5_0>(args);
    case Format::q5_1: return gemm<Format::q5_1>(args);
    case Format::q8_0: return gemm<Format::q8_0>(args);
    case Format::q2_k: return gemm<Format::q2_k>(args);
    case Format::q4_k: return gemm<Format::q4_k>(args);
    case Format::q5_k: return gemm<Format::q5_k>(args);
    case Format::q6_k: return gemm<Format::q6_k>(args);
    case Format::q4_lut: return gemm<Format::q4_lut>(args);
    default: return;  // float formats have their own entry
  }
}

}  // namespace roofline::avx512
