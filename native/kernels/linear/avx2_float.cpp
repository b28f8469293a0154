// Weights kept as f32, f16 or bf16 on AVX2. A ymm holds four rows, each at an even and an odd k, as the tile does, so that one fma
// with a broadcast pair of x serves both chains of the contract.
#include "kernels/linear/avx2_parts.h"
#include "kernels/linear/avx2_unpack.h"

namespace roofline::avx2 {
namespace {

inline constexpr int kQuads = kRowBlock / 4;  // ymm of a row block
inline constexpr int kMaxTokens = 3;
inline constexpr int kPrefetchBytes = 1280;

// Four rows of a pair of k: (row 0 even, row 0 odd, row 1 even, ...).
template <Format F>
inline __m256 load_quad(const uint8_t* tile, int quad) {
  if constexpr (F == Format::f32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(tile) + 8 * quad);
  } else if constexpr (F == Format::f16) {
    return load_halves(tile + 16 * quad);
  } else {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(tile + 16 * quad));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
}

inline __m256 broadcast_pair(float even, float odd) { return _mm256_setr_ps(even, odd, even, odd, even, odd, even, odd); }

inline __m256 load_pair(const float* x) { return _mm256_castpd_ps(_mm256_broadcast_sd(reinterpret_cast<const double*>(x))); }

// Even + odd of two quads: eight rows in order.
inline __m256 join_chains(__m256 low, __m256 high) {
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_hadd_ps(low, high)), 0xd8));
}

template <Format F, int T>
void run(const LinearArgs& args, int64_t block, int64_t token) {
  const PackedWeight& weight = *args.weight;
  const uint8_t* tile = weight.tiles + block * weight.block_stride_bytes;
  const float* x[T];
  __m256 acc[T][kQuads];
  for (int t = 0; t < T; ++t) {
    x[t] = args.floats.x + activation_row(args, token + t) * args.floats.stride;
    for (__m256& quad : acc[t]) quad = _mm256_setzero_ps();
  }
  for (int64_t k = 0; k < weight.row_len; k += 2, tile += tile_bytes(F)) {
    _mm_prefetch(reinterpret_cast<const char*>(tile + kPrefetchBytes), _MM_HINT_T0);
    __m256 pair[T];
#pragma GCC unroll 3
    for (int t = 0; t < T; ++t) pair[t] = k + 1 < weight.row_len ? load_pair(x[t] + k) : broadcast_pair(x[t][k], 0.0f);
#pragma GCC unroll 4
    for (int quad = 0; quad < kQuads; ++quad) {
      const __m256 w = load_quad<F>(tile, quad);
#pragma GCC unroll 3
      for (int t = 0; t < T; ++t) acc[t][quad] = _mm256_fmadd_ps(w, pair[t], acc[t][quad]);
    }
  }
  for (int t = 0; t < T; ++t) {
    store_rows(args, token + t, block, 0, join_chains(acc[t][0], acc[t][1]));
    store_rows(args, token + t, block, 1, join_chains(acc[t][2], acc[t][3]));
  }
}

template <Format F>
void linear(const LinearArgs& args) {
  for (int64_t block = args.block_begin; block < args.block_end; ++block) {
    int64_t token = 0;
    for (; token + kMaxTokens <= args.num_tokens; token += kMaxTokens) run<F, kMaxTokens>(args, block, token);
    if (args.num_tokens - token == 2) run<F, 2>(args, block, token);
    if (args.num_tokens - token == 1) run<F, 1>(args, block, token);
  }
}

}  // namespace

void linear_float(const LinearArgs& args) {
  switch (args.weight->format) {
    case Format::f32: return linear<Format::f32>(args);
    case Format::f16: return linear<Format::f16>(args);
    default: return linear<Format::bf16>(args);
  }
}

}  // namespace roofline::avx2
