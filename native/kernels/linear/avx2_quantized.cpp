// Quantized weights on AVX2: vpmaddubsw of unsigned codes with signed activations, summed in 16 bits for as many lines as cannot
// overflow. One token walks four row blocks side by side (memory); more tokens share the unpacking of one row block.
#include "kernels/linear/avx2_parts.h"
#include "kernels/linear/avx2_unpack.h"

namespace roofline::avx2 {
namespace {

inline constexpr int kStreams = 4;
inline constexpr int kMaxTokens = 4;
inline constexpr int kPrefetchBytes = 1280;

// Lines whose pair products, |code| * 127 * 2 each, add up within 16 bits.
constexpr int lines_per_sum(Format f) {
  if (f == Format::q6_k) return 2;                                    // 63 * 254 * 2 = 32004
  return code_bytes(f) == kNibbleBytes + kPlaneBytes ? 4 : 8;         // 31 * 254 * 4 = 31496; 15 * 254 * 8 = 30480
}

inline __m256i broadcast_four(const int8_t* q) {
  int32_t four;
  __builtin_memcpy(&four, q, 4);
  return _mm256_set1_epi32(four);
}

// Sum of code * activation over lines [begin, end), eight rows.
template <Format F>
inline __m256i dot_lines(const __m256i u[8], const int8_t* q, int begin, int end) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i dot = _mm256_setzero_si256();
  if constexpr (has_signed_codes(F)) {
#pragma GCC unroll 8
    for (int j = begin; j < end; ++j) {
      const __m256i a = _mm256_sign_epi8(broadcast_four(q + 4 * j), u[j]);
      dot = _mm256_add_epi32(dot, _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(u[j]), a), ones));
    }
  } else {
    constexpr int kStep = lines_per_sum(F);
#pragma GCC unroll 8
    for (int first = begin; first < end; first += kStep) {
      const int last = first + kStep < end ? first + kStep : end;
      __m256i pairs = _mm256_maddubs_epi16(u[first], broadcast_four(q + 4 * first));
#pragma GCC unroll 8
      for (int j = first + 1; j < last; ++j) {
        pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(u[j], broadcast_four(q + 4 * j)));
      }
      dot = _mm256_add_epi32(dot, _mm256_madd_epi16(pairs, ones));
    }
  }
  return dot;
}

// The two chains of the contract, eight rows.
struct Chains {
  __m256 acc, low;
};

// One token's activations of a group of 32 k.
struct GroupInput {
  const int8_t* q;
  const int32_t* sum16;
  float d;
};

inline GroupInput group_input(const QuantizedRows& x, int64_t row, int64_t group) {
  return {x.q + row * x.q_stride + group * kGroupLen, x.sum16 + row * x.sum_stride + 2 * group, x.scale[row * x.scale_stride + group]};
}

template <Format F>
inline void add_dot(const __m256i u[8], int h, const GroupInput& x, __m256 scale, __m256 min, Chains& sum) {
  constexpr int kHalves = kGroupLen / scale_len(F), kLines = 8 / kHalves;
  const int32_t total = kHalves == 2 ? x.sum16[h] : x.sum16[0] + x.sum16[1];
  __m256i dot = dot_lines<F>(u, x.q, h * kLines, (h + 1) * kLines);
  if constexpr (!has_signed_codes(F) && code_offset(F) != 0) {
    dot = _mm256_sub_epi32(dot, _mm256_set1_epi32(code_offset(F) * total));
  }
  sum.acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(scale, _mm256_set1_ps(x.d)), sum.acc);
  if constexpr (has_min(F)) sum.low = _mm256_fmadd_ps(min, _mm256_set1_ps(x.d * float(total)), sum.low);
}

// One group of eight rows for T tokens.
template <Format F, int T>
inline void add_group(const PackedWeight& weight, const uint8_t* tile, int in_tile, int half, const GroupInput x[T], Chains sum[T]) {
  constexpr int kHalves = kGroupLen / scale_len(F);
  const uint8_t* codes = tile + (is_super(F) ? super_codes_offset(F) + in_tile * code_bytes(F) : 0);
  __m256i u[8];
  unpack_codes<F>(codes + kHalfLine * half, weight.lut, u);
#pragma GCC unroll 2
  for (int h = 0; h < kHalves; ++h) {
    const int index = in_tile * kHalves + h;
    const __m256 scale = group_scale<F>(tile, half, index);
    const __m256 min = has_min(F) ? group_min<F>(tile, half, index) : _mm256_setzero_ps();
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) add_dot<F>(u, h, x[t], scale, min, sum[t]);
  }
}

template <Format F>
inline void prefetch_group(const uint8_t* tile, int in_tile) {
  constexpr int kShare = tile_bytes(F) / (tile_len(F) / kGroupLen);
#pragma GCC unroll 16
  for (int at = 0; at < kShare; at += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(tile + in_tile * kShare + kPrefetchBytes + at), _MM_HINT_T0);
  }
}

// Row blocks first, first + step, ... (S of them) and T tokens, all of K.
template <Format F, int S, int T>
void run(const LinearArgs& args, int64_t first, int64_t step, int64_t token) {
  constexpr int kTileGroups = tile_len(F) / kGroupLen;
  const PackedWeight& weight = *args.weight;
  Chains sum[S][2][T];
  for (auto& block : sum) {
    for (auto& half : block) {
      for (Chains& chain : half) chain.acc = chain.low = _mm256_setzero_ps();
    }
  }
  for (int64_t g = 0; g < weight.row_len / kGroupLen; ++g) {
    GroupInput x[T];
    for (int t = 0; t < T; ++t) x[t] = group_input(args.quantized, activation_row(args, token + t), g);
    for (int s = 0; s < S; ++s) {
      const uint8_t* tile = weight.tiles + (first + s * step) * weight.block_stride_bytes + g / kTileGroups * tile_bytes(F);
      const int in_tile = int(g % kTileGroups);
      prefetch_group<F>(tile, in_tile);
      add_group<F, T>(weight, tile, in_tile, 0, x, sum[s][0]);
      add_group<F, T>(weight, tile, in_tile, 1, x, sum[s][1]);
    }
  }
  for (int s = 0; s < S; ++s) {
    for (int half = 0; half < 2; ++half) {
      for (int t = 0; t < T; ++t) {
        const Chains& chain = sum[s][half][t];
        store_rows(args, token + t, first + s * step, half, has_min(F) ? _mm256_add_ps(chain.acc, chain.low) : chain.acc);
      }
    }
  }
}

template <Format F, int T>
void gemv(const LinearArgs& args) {
  const int64_t step = (args.block_end - args.block_begin) / kStreams;
  for (int64_t i = 0; i < step; ++i) run<F, kStreams, T>(args, args.block_begin + i, step, 0);
  for (int64_t block = args.block_begin + kStreams * step; block < args.block_end; ++block) run<F, 1, T>(args, block, 0, 0);
}

template <Format F>
void gemm_block(const LinearArgs& args, int64_t block) {
  int64_t token = 0;
  for (; token + kMaxTokens <= args.num_tokens; token += kMaxTokens) run<F, 1, kMaxTokens>(args, block, 0, token);
  switch (args.num_tokens - token) {
    case 1: return run<F, 1, 1>(args, block, 0, token);
    case 2: return run<F, 1, 2>(args, block, 0, token);
    case 3: return run<F, 1, 3>(args, block, 0, token);
    default: return;
  }
}

template <Format F>
void linear(const LinearArgs& args) {
  if (args.num_tokens == 1) return gemv<F, 1>(args);
  if (args.num_tokens == 2) return gemv<F, 2>(args);
  for (int64_t block = args.block_begin; block < args.block_end; ++block) gemm_block<F>(args, block);
}

}  // namespace

void linear_quantized(const LinearArgs& args) {
  switch (args.weight->format) {
    case Format::q4_0: return linear<Format::q4_0>(args);
    case Format::q4_1: return linear<Format::q4_1>(args);
    case Format::q5_0: return linear<Format::q5_0>(args);
    case Format::q5_1: return linear<Format::q5_1>(args);
    case Format::q8_0: return linear<Format::q8_0>(args);
    case Format::q2_k: return linear<Format::q2_k>(args);
    case Format::q4_k: return linear<Format::q4_k>(args);
    case Format::q5_k: return linear<Format::q5_k>(args);
    case Format::q6_k: return linear<Format::q6_k>(args);
    case Format::q4_lut: return linear<Format::q4_lut>(args);
    default: return;  // float formats have their own entry
  }
}

}  // namespace roofline::avx2
