// A few tokens over quantized weights: two row blocks are unpacked into registers, sixteen zmm of codes, and each broadcast of
// activations feeds both. Up to four tokens share an unpacking; more tokens come back for the same two row blocks, then in L2, and
// the last of these passes fetches the next two. The two blocks walk separate halves of the range, so that each is one stream.
#include "kernels/linear/avx512_parts.h"
#include "kernels/linear/avx512_unpack.h"

namespace roofline::avx512 {
namespace {

inline constexpr int kPrefetchBytes = 1536;
inline constexpr int kMaxTokens = 4;

// What the tokens of a tile bring: the sums are prepared once for all row blocks. Slots: one per scale_len elements of K.
template <int T>
struct TileInput {
  const int8_t* q[T];
  const float* scale[T];
  const int32_t* compensation[T];
  const float* scaled_sum[T];
};

// Per token: compensation [K / scale_len], then d * sum likewise. Both for all tokens of the call, in scratch.
template <Format F>
int64_t input_bytes(int64_t row_len) {
  return (row_len / scale_len(F) * 4 + 63) / 64 * 64;
}

template <Format F>
void prepare_token(const LinearArgs& args, int64_t token, uint8_t* at) {
  constexpr int kHalves = kGroupLen / scale_len(F);
  const QuantizedRows& x = args.quantized;
  const int64_t row = activation_row(args, token), slots = args.weight->row_len / scale_len(F);
  const int32_t* sum16 = x.sum16 + row * x.sum_stride;
  const float* scale = x.scale + row * x.scale_stride;
  int32_t* compensation = reinterpret_cast<int32_t*>(at);
  float* scaled_sum = reinterpret_cast<float*>(at + input_bytes<F>(args.weight->row_len));
  for (int64_t i = 0; i < slots; ++i) {
    const int32_t sum = kHalves == 2 ? sum16[i] : sum16[2 * i] + sum16[2 * i + 1];
    compensation[i] = -code_offset(F) * sum;
    if constexpr (has_min(F)) scaled_sum[i] = scale[i / kHalves] * float(sum);
  }
}

template <Format F, int T>
TileInput<T> tile_input(const LinearArgs& args, int64_t token, int64_t first_token) {
  const int64_t bytes = input_bytes<F>(args.weight->row_len);
  TileInput<T> in;
  for (int t = 0; t < T; ++t) {
    const int64_t row = activation_row(args, token + t);
    const uint8_t* at = args.scratch + (token + t - first_token) * 2 * bytes;
    in.q[t] = args.quantized.q + row * args.quantized.q_stride;
    in.scale[t] = args.quantized.scale + row * args.quantized.scale_stride;
    in.compensation[t] = reinterpret_cast<const int32_t*>(at);
    in.scaled_sum[t] = reinterpret_cast<const float*>(at + bytes);
  }
  return in;
}

inline __m512i broadcast_four(const int8_t* q) {
  int32_t four;
  __builtin_memcpy(&four, q, 4);
  return _mm512_set1_epi32(four);
}

// R row blocks `step` apart, and where to prefetch: so many bytes ahead.
struct BlockSet {
  int64_t first, step, prefetch_bytes;
};

// Sums of R row blocks and T tokens, in registers: the two chains of the contract.
template <int R, int T>
struct Accumulators {
  __m512 acc[T][R], low[T][R];
};

#define ROOFLINE_INLINE inline __attribute__((always_inline))  // accumulators passed by reference must not reach memory

// Slot number `slot` of K (scale_len elements), half `h` of its group: codes u, lines of this half.
template <Format F, int R, int T>
ROOFLINE_INLINE void add_slot(const __m512i (&u)[R][8], int h, int64_t g, const TileInput<T>& in, const __m512 (&scale)[R],
                              const __m512 (&min)[R], Accumulators<R, T>& sums) {
  constexpr int kHalves = kGroupLen / scale_len(F), kLines = 8 / kHalves;
  const int64_t slot = g * kHalves + h;
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) {
    __m512i dot[R];
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r) dot[r] = _mm512_set1_epi32(in.compensation[t][slot]);
#pragma GCC unroll 8
    for (int j = h * kLines; j < (h + 1) * kLines; ++j) {
      const __m512i a = broadcast_four(in.q[t] + g * kGroupLen + 4 * j);
#pragma GCC unroll 2
      for (int r = 0; r < R; ++r) dot[r] = _mm512_dpbusd_epi32(dot[r], u[r][j], a);
    }
    const __m512 d = _mm512_set1_ps(in.scale[t][g]);
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r) {
      sums.acc[t][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r]), _mm512_mul_ps(scale[r], d), sums.acc[t][r]);
      if constexpr (has_min(F)) {
        sums.low[t][r] = _mm512_fmadd_ps(min[r], _mm512_set1_ps(in.scaled_sum[t][slot]), sums.low[t][r]);
      }
    }
  }
}

// Group g, number `in_tile` of the tiles at tile + r * stride.
template <Format F, int R, int T>
ROOFLINE_INLINE void add_group(const uint8_t* tile, int64_t stride, int64_t prefetch_bytes, int in_tile, int64_t g, __m512i table,
                               const TileScales (&shared)[R], const TileInput<T>& in, Accumulators<R, T>& sums) {
  constexpr int kHalves = kGroupLen / scale_len(F), kShare = tile_bytes(F) / (tile_len(F) / kGroupLen);
  __m512i u[R][8];
#pragma GCC unroll 2
  for (int r = 0; r < R; ++r) {
    const uint8_t* p = tile + r * stride;
#pragma GCC unroll 16
    for (int at = 0; at < kShare; at += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(p + in_tile * kShare + prefetch_bytes + at), _MM_HINT_T0);
    }
    unpack_codes<F>(group_codes<F>(p, in_tile), table, u[r]);
  }
#pragma GCC unroll 2
  for (int h = 0; h < kHalves; ++h) {
    __m512 scale[R], min[R];
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r) {
      scale[r] = group_scale<F>(tile + r * stride, shared[r], in_tile * kHalves + h);
      if constexpr (has_min(F)) min[r] = group_min<F>(tile + r * stride, shared[r], in_tile * kHalves + h);
    }
    add_slot<F, R, T>(u, h, g, in, scale, min, sums);
  }
}

// The R row blocks, T tokens, all of K.
template <Format F, int R, int T>
__attribute__((noinline)) void run_tile(const LinearArgs& args, const TileInput<T>& in, const BlockSet& blocks, int64_t token) {
  constexpr int kTileGroups = tile_len(F) / kGroupLen;
  const PackedWeight& weight = *args.weight;
  const __m512i table = unsigned_table(F == Format::q4_lut ? weight.lut : nullptr);
  const int64_t stride = blocks.step * weight.block_stride_bytes, num_groups = weight.row_len / kGroupLen;
  const uint8_t* tile = weight.tiles + blocks.first * weight.block_stride_bytes;
  Accumulators<R, T> sums;
#pragma GCC unroll 8
  for (int i = 0; i < T * R; ++i) sums.acc[i / R][i % R] = sums.low[i / R][i % R] = _mm512_setzero_ps();
  for (int64_t first = 0; first < num_groups; first += kTileGroups, tile += tile_bytes(F)) {
    TileScales shared[R];
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r) shared[r] = load_tile_scales<F>(tile + r * stride);
    for (int in_tile = 0; in_tile < kTileGroups; ++in_tile) {
      add_group<F, R, T>(tile, stride, blocks.prefetch_bytes, in_tile, first + in_tile, table, shared, in, sums);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < T * R; ++i) {
    const int t = i / R, r = i % R;
    store_block(args, token + t, blocks.first + r * blocks.step, join<F>(sums.acc[t][r], sums.low[t][r]));
  }
}

template <Format F, int R>
void run_blocks(const LinearArgs& args, BlockSet blocks, int64_t begin, int64_t end) {
  for (int64_t token = begin, size; token < end; token += size) {
    const int64_t left = end - token;
    size = left <= kMaxTokens ? left : left < 2 * kMaxTokens ? (left + 1) / 2 : kMaxTokens;
    const bool last_of_many = token > begin && left == size;
    blocks.prefetch_bytes = last_of_many ? args.weight->block_stride_bytes : kPrefetchBytes;
    switch (size) {
      case 1: run_tile<F, R, 1>(args, tile_input<F, 1>(args, token, begin), blocks, token); break;
      case 2: run_tile<F, R, 2>(args, tile_input<F, 2>(args, token, begin), blocks, token); break;
      case 3: run_tile<F, R, 3>(args, tile_input<F, 3>(args, token, begin), blocks, token); break;
      default: run_tile<F, R, 4>(args, tile_input<F, 4>(args, token, begin), blocks, token); break;
    }
  }
}

template <Format F>
void small(const LinearArgs& args) {
  const int64_t token_bytes = 2 * input_bytes<F>(args.weight->row_len), fit = kLinearScratchBytes / token_bytes;
  for (int64_t begin = 0; begin < args.num_tokens; begin += fit) {
    const int64_t end = begin + fit < args.num_tokens ? begin + fit : args.num_tokens;
    for (int64_t m = begin; m < end; ++m) prepare_token<F>(args, m, args.scratch + (m - begin) * token_bytes);
    int64_t block = args.block_begin;
    const int64_t step = (args.block_end - block) / 2;
    for (int64_t i = 0; i < step; ++i) run_blocks<F, 2>(args, {block + i, step, 0}, begin, end);
    block += 2 * step;
    if (block < args.block_end) run_blocks<F, 1>(args, {block, 1, 0}, begin, end);
  }
}

}  // namespace

void small_quantized(const LinearArgs& args) {
  switch (args.weight->format) {
    case Format::q4_0: return small<Format::q4_0>(args);
    case Format::q4_1: return small<Format::q4_1>(args);
    case Format::q5_0: return small<Format::q5_0>(args);
    case Format::q5_1: return small<Format::q5_1>(args);
    case Format::q8_0: return small<Format::q8_0>(args);
    case Format::q2_k: return small<Format::q2_k>(args);
    case Format::q4_k: return small<Format::q4_k>(args);
    case Format::q5_k: return small<Format::q5_k>(args);
    case Format::q6_k: return small<Format::q6_k>(args);
    case Format::q4_lut: return small<Format::q4_lut>(args);
    default: return;  // float formats have their own entry
  }
}

}  // namespace roofline::avx512
