// Weights kept as f32, f16 or bf16: float32 fma in the two chains of the contract (even k, odd k). M = 1 streams eight row blocks
// side by side; M >= 2 widens a slice of up to four row blocks into a panel in L1, the even k apart from the odd, and runs tiles of
// six tokens over each half.
#include "kernels/linear/avx512_fma_tile.h"
#include "kernels/linear/avx512_parts.h"
#include "kernels/linear/avx512_unpack.h"

namespace roofline::avx512 {
namespace {

inline constexpr int kPrefetchBytes = 1280;
inline constexpr int kMaxBlocks = 4, kMaxTokens = 6;
inline constexpr int kSlicePairs = 72;        // of K in a panel: 36 KB
inline constexpr int64_t kChunkTokens = 416;  // whose sums, two chains each, fit in scratch
inline constexpr int64_t kPanelBytes = kSlicePairs * 2 * kMaxBlocks * 64;

static_assert(kPanelBytes + kChunkTokens * kMaxBlocks * 2 * 64 <= kLinearScratchBytes);

// Sixteen rows at an even and at an odd k.
struct Pair {
  __m512 even, odd;
};

template <Format F>
inline Pair load_pair(const uint8_t* tile) {
  if constexpr (F == Format::bf16) {
    const __m512i both = load_line(tile);
    return {_mm512_castsi512_ps(_mm512_slli_epi32(both, 16)),
            _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(int(0xffff0000u))))};
  } else if constexpr (F == Format::f16) {
    const __m512i both = load_line(tile);
    return {_mm512_cvtph_ps(_mm512_cvtepi32_epi16(both)), _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(both, 16)))};
  } else {
    const __m512 low = _mm512_loadu_ps(tile), high = _mm512_loadu_ps(tile + 64);
    const __m512i evens = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odds = _mm512_add_epi32(evens, _mm512_set1_epi32(1));
    return {_mm512_permutex2var_ps(low, evens, high), _mm512_permutex2var_ps(low, odds, high)};
  }
}

template <Format F, int S>
void run_streams(const LinearArgs& args, const float* x, int64_t first, int64_t step) {
  const PackedWeight& weight = *args.weight;
  const uint8_t* tile = weight.tiles + first * weight.block_stride_bytes;
  const int64_t stream_bytes = step * weight.block_stride_bytes;
  __m512 even[S], odd[S];
#pragma GCC unroll 8
  for (int s = 0; s < S; ++s) even[s] = odd[s] = _mm512_setzero_ps();
  for (int64_t k = 0; k < weight.row_len; k += 2, tile += tile_bytes(F)) {
    const __m512 x_even = _mm512_set1_ps(x[k]), x_odd = _mm512_set1_ps(k + 1 < weight.row_len ? x[k + 1] : 0.0f);
#pragma GCC unroll 8
    for (int s = 0; s < S; ++s) {
      const uint8_t* p = tile + s * stream_bytes;
      _mm_prefetch(reinterpret_cast<const char*>(p + kPrefetchBytes), _MM_HINT_T0);
      if constexpr (tile_bytes(F) > 64) _mm_prefetch(reinterpret_cast<const char*>(p + kPrefetchBytes + 64), _MM_HINT_T0);
      const Pair w = load_pair<F>(p);
      even[s] = _mm512_fmadd_ps(w.even, x_even, even[s]);
      odd[s] = _mm512_fmadd_ps(w.odd, x_odd, odd[s]);
    }
  }
#pragma GCC unroll 8
  for (int s = 0; s < S; ++s) store_block(args, 0, first + s * step, _mm512_add_ps(even[s], odd[s]));
}

template <Format F, int S>
void gemv_range(const LinearArgs& args, const float* x, int64_t begin, int64_t end) {
  const int64_t step = (end - begin) / S;
  for (int64_t i = 0; i < step; ++i) run_streams<F, S>(args, x, begin + i, step);
  if constexpr (S > 1) gemv_range<F, S / 2>(args, x, begin + step * S, end);
}

// Pairs [begin, end) of K; blocks first .. first + R.
struct Slice {
  int64_t begin, end, first_block;
};

// Panel: [chain][pair][R] zmm.
template <Format F, int R>
void widen_panel(const PackedWeight& weight, const Slice& slice, float* panel) {
  float* odd_half = panel + kSlicePairs * R * kRowBlock;
  for (int r = 0; r < R; ++r) {
    const uint8_t* block = weight.tiles + (slice.first_block + r) * weight.block_stride_bytes;
    for (int64_t pair = slice.begin; pair < slice.end; ++pair) {
      const Pair w = load_pair<F>(block + pair * tile_bytes(F));
      const int64_t at = ((pair - slice.begin) * R + r) * kRowBlock;
      _mm512_store_ps(panel + at, w.even);
      _mm512_store_ps(odd_half + at, w.odd);
    }
  }
}

// Both chains. An odd K has no last odd x: its weight is the padding zero, and so is the x that stands in.
template <int R, int T>
void run_tile(const LinearArgs& args, const Slice& slice, int64_t token, const float* panel, float* even, float* odd) {
  const float* x[T];
  const float* x_odd[T];
  for (int t = 0; t < T; ++t) {
    x[t] = args.floats.x + activation_row(args, token + t) * args.floats.stride + 2 * slice.begin;
    x_odd[t] = x[t] + 1;
  }
  const bool lacks_last = 2 * slice.end > args.weight->row_len;
  const int64_t num_pairs = slice.end - slice.begin, num_odd = num_pairs - (lacks_last ? 1 : 0);
  const float* odd_panel = panel + kSlicePairs * R * kRowBlock;
  multiply_floats<R, T, 2>(panel, x, num_pairs, even);
  multiply_floats<R, T, 2>(odd_panel, x_odd, num_odd, odd);
  if (!lacks_last) return;
  const float zero = 0.0f;
  for (int t = 0; t < T; ++t) x_odd[t] = &zero;
  multiply_floats<R, T, 2>(odd_panel + num_odd * R * kRowBlock, x_odd, 1, odd);
}

template <int R>
void multiply_chunk(const LinearArgs& args, const Slice& slice, int64_t token, int64_t end, const float* panel, float* even,
                    float* odd) {
  for (int64_t size; token < end; token += size, even += size * R * kRowBlock, odd += size * R * kRowBlock) {
    size = end - token < kMaxTokens ? end - token : kMaxTokens;
    switch (size) {
      case 1: run_tile<R, 1>(args, slice, token, panel, even, odd); break;
      case 2: run_tile<R, 2>(args, slice, token, panel, even, odd); break;
      case 3: run_tile<R, 3>(args, slice, token, panel, even, odd); break;
      case 4: run_tile<R, 4>(args, slice, token, panel, even, odd); break;
      case 5: run_tile<R, 5>(args, slice, token, panel, even, odd); break;
      default: run_tile<R, 6>(args, slice, token, panel, even, odd); break;
    }
  }
}

template <int R>
void store_chunk(const LinearArgs& args, int64_t first_block, int64_t token, int64_t end, const float* even, const float* odd) {
  for (; token < end; ++token, even += R * kRowBlock, odd += R * kRowBlock) {
    for (int r = 0; r < R; ++r) {
      const __m512 acc = _mm512_add_ps(_mm512_load_ps(even + r * kRowBlock), _mm512_load_ps(odd + r * kRowBlock));
      store_block(args, token, first_block + r, acc);
    }
  }
}

template <Format F, int R>
void gemm_blocks(const LinearArgs& args, int64_t first_block) {
  float* panel = reinterpret_cast<float*>(args.scratch);
  float* even = reinterpret_cast<float*>(args.scratch + kPanelBytes);
  float* odd = even + kChunkTokens * R * kRowBlock;
  const int64_t num_pairs = (args.weight->row_len + 1) / 2;
  for (int64_t token = 0; token < args.num_tokens; token += kChunkTokens) {
    const int64_t end = token + kChunkTokens < args.num_tokens ? token + kChunkTokens : args.num_tokens;
    const size_t sum_bytes = size_t(end - token) * R * kRowBlock * sizeof(float);
    __builtin_memset(even, 0, sum_bytes);
    __builtin_memset(odd, 0, sum_bytes);
    for (int64_t begin = 0; begin < num_pairs; begin += kSlicePairs) {
      const Slice slice{begin, begin + kSlicePairs < num_pairs ? begin + kSlicePairs : num_pairs, first_block};
      widen_panel<F, R>(*args.weight, slice, panel);
      multiply_chunk<R>(args, slice, token, end, panel, even, odd);
    }
    store_chunk<R>(args, first_block, token, end, even, odd);
  }
}

template <Format F>
void gemm(const LinearArgs& args) {
  int64_t block = args.block_begin;
  for (; block + 4 <= args.block_end; block += 4) gemm_blocks<F, 4>(args, block);
  if (block + 2 <= args.block_end) gemm_blocks<F, 2>(args, block), block += 2;
  if (block < args.block_end) gemm_blocks<F, 1>(args, block);
}

template <Format F>
void gemv(const LinearArgs& args) {
  const float* x = args.floats.x + activation_row(args, 0) * args.floats.stride;
  gemv_range<F, 8>(args, x, args.block_begin, args.block_end);
}

}  // namespace

void gemv_float(const LinearArgs& args) {
  switch (args.weight->format) {
    case Format::f32: return gemv<Format::f32>(args);
    case Format::f16: return gemv<Format::f16>(args);
    default: return gemv<Format::bf16>(args);
  }
}

void gemm_float(const LinearArgs& args) {
  switch (args.weight->format) {
    case Format::f32: return gemm<Format::f32>(args);
    case Format::f16: return gemm<Format::f16>(args);
    default: return gemm<Format::bf16>(args);
  }
}

}  // namespace roofline::avx512
