// Tier `amx` of the linear family: M >= 16 over quantized weights. The panel of avx512 is a stack of B tiles as it lies; sixteen tokens
// are the A tile. A tile product spans one group of 16 or 32 k, no more, since the contract scales each group by itself: half the
// depth of the unit, and the price of exactness. Everything else goes to the avx512 kernels.
#include "kernels/linear/amx_parts.h"
#include "kernels/linear/amx_tile.h"
#include "kernels/linear/avx512_fma_tile.h"
#include "kernels/linear/avx512_panel.h"
#include "kernels/linear/avx512_parts.h"

namespace roofline::amx {
namespace {

inline constexpr int kTileTokens = 16;
inline constexpr int64_t kSliceBytes = kMaxGroups * kGroupLen;  // of one token's activations
inline constexpr int64_t kRowsAt = kSumsAt + chunk_tokens(false) * kMaxBlocks * 64;
inline constexpr int64_t kDotsAt = kRowsAt + kTileTokens * kSliceBytes;

static_assert(chunk_tokens(true) * 2 <= chunk_tokens(false));
static_assert(kDotsAt + kMaxBlocks * kTileTokens * 64 <= kLinearScratchBytes);

// Tiles 0..3: sums of four row blocks, 4: activations, 5: codes.
inline constexpr int kActivations = 4, kCodes = 5;

TileConfig tile_config(int group_len) {
  TileConfig config;
  for (int r = 0; r < kMaxBlocks; ++r) config.set(r, kTileTokens, 64);
  config.set(kActivations, kTileTokens, group_len);
  config.set(kCodes, group_len / 4, 64);
  return config;
}

// Up to sixteen tokens of a slice. Rows past `count` repeat stale bytes: their sums are never read.
struct TokenTile {
  int count;
  const float* scale[kTileTokens];
  alignas(64) int32_t compensation[kTileTokens][2 * kMaxGroups];
  alignas(64) float scaled_sum[kTileTokens][2 * kMaxGroups];
};

template <int G, bool kMin>
void gather_tile(const LinearArgs& args, const Slice& slice, int64_t token, TokenTile& tile) {
  const QuantizedRows& x = args.quantized;
  const int64_t num_groups = slice.end - slice.begin;
  for (int t = 0; t < tile.count; ++t) {
    const int64_t row = activation_row(args, token + t);
    __builtin_memcpy(args.scratch + kRowsAt + t * kSliceBytes, x.q + row * x.q_stride + slice.begin * kGroupLen,
                     size_t(num_groups * kGroupLen));
    tile.scale[t] = x.scale + row * x.scale_stride + slice.begin;
    prepare_sums<G, kMin>(x.sum16 + row * x.sum_stride + 2 * slice.begin, tile.scale[t], num_groups,
                          code_offset(args.weight->format), tile.compensation[t], tile.scaled_sum[t]);
  }
}

// dots[r][t] = codes of row block r times token t, over the group_len k at `rows` and `codes`.
template <class Tiles, int R, int r = 0>
inline void multiply_blocks(Tiles& tiles, const uint8_t* codes, uint8_t* dots) {
  tiles.template zero<r>();
  tiles.template load<kCodes>(codes + 64 * r, 64 * R);
  tiles.template multiply_signed_unsigned<r, kActivations, kCodes>();
  tiles.template store<r>(dots + r * kTileTokens * 64, 64);
  if constexpr (r + 1 < R) multiply_blocks<Tiles, R, r + 1>(tiles, codes, dots);
}

// One slot (scale_len elements of K): sums[t][r] += float(dot) * (scale * d).
template <int R>
inline void add_slot(const TokenTile& tile, int64_t group, int64_t slot, const float* scales, const uint8_t* dots, float* sums) {
  for (int t = 0; t < tile.count; ++t) {
    const __m512 d = _mm512_set1_ps(tile.scale[t][group]);
    const __m512i compensation = _mm512_set1_epi32(tile.compensation[t][slot]);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      float* sum = sums + kRowBlock * (t * R + r);
      const __m512i dot = _mm512_add_epi32(_mm512_load_si512(dots + (r * kTileTokens + t) * 64), compensation);
      const __m512 product = _mm512_mul_ps(_mm512_load_ps(scales + kRowBlock * r), d);
      _mm512_store_ps(sum, _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), product, _mm512_load_ps(sum)));
    }
  }
}

template <int R, int G>
void add_minima(const LinearArgs& args, const TokenTile& tile, int64_t num_slots, float* sums) {
  const float* minima = reinterpret_cast<const float*>(args.scratch + kMinimaAt);
  for (int t = 0; t < tile.count; ++t) {
    const float* scaled_sum = tile.scaled_sum[t];
    multiply_floats<R, 1, 1>(minima, &scaled_sum, num_slots, sums + t * R * kRowBlock);
  }
}

template <class Tiles, int R, int G, bool kMin>
void run_tile(Tiles& tiles, const LinearArgs& args, const Slice& slice, int64_t token, int count, const Sums& sums) {
  constexpr int kHalves = kGroupLen / G;
  TokenTile tile;
  tile.count = count;
  gather_tile<G, kMin>(args, slice, token, tile);
  uint8_t* dots = args.scratch + kDotsAt;
  const uint8_t* record = args.scratch;
  const int64_t num_groups = slice.end - slice.begin;
  for (int64_t g = 0; g < num_groups; ++g, record += record_bytes(R, G)) {
    for (int h = 0; h < kHalves; ++h) {
      tiles.template load<kActivations>(args.scratch + kRowsAt + g * kGroupLen + h * G, kSliceBytes);
      multiply_blocks<Tiles, R>(tiles, record + h * (G / 4) * R * 64, dots);
      const float* scales = reinterpret_cast<const float*>(record) + kRowBlock * R * (8 + h);
      add_slot<R>(tile, g, g * kHalves + h, scales, dots, sums.acc);
    }
  }
  if constexpr (kMin) add_minima<R, G>(args, tile, num_groups * kHalves, sums.low);
}

template <class Tiles, Format F, int R>
void gemm_blocks(Tiles& tiles, const LinearArgs& args, int64_t first_block) {
  constexpr int64_t kSlice = slice_groups(scale_len(F)), kChunk = chunk_tokens(has_min(F));
  float* minima = reinterpret_cast<float*>(args.scratch + kMinimaAt);
  float* acc = reinterpret_cast<float*>(args.scratch + kSumsAt);
  const int64_t num_groups = args.weight->row_len / kGroupLen, num_slices = (num_groups + kSlice - 1) / kSlice;
  for (int64_t token = 0; token < args.num_tokens; token += kChunk) {
    const int64_t end = token + kChunk < args.num_tokens ? token + kChunk : args.num_tokens;
    const int64_t num_sums = (end - token) * R * kRowBlock;
    __builtin_memset(acc, 0, size_t(num_sums) * sizeof(float) * (has_min(F) ? 2 : 1));
    for (int64_t s = 0; s < num_slices; ++s) {
      const Slice slice{num_groups * s / num_slices, num_groups * (s + 1) / num_slices, first_block};
      unpack_panel<F, R>(*args.weight, slice, args.scratch, minima);
      for (int64_t m = token; m < end; m += kTileTokens) {
        float* at = acc + (m - token) * R * kRowBlock;
        const int count = end - m < kTileTokens ? int(end - m) : kTileTokens;
        run_tile<Tiles, R, scale_len(F), has_min(F)>(tiles, args, slice, m, count, {at, at + num_sums});
      }
    }
    store_chunk<F, R>(args, first_block, token, end, {acc, acc + num_sums});
  }
}

template <class Tiles, Format F>
void gemm(const LinearArgs& args) {
  Tiles tiles(tile_config(scale_len(F)));
  int64_t block = args.block_begin;
  for (; block + 4 <= args.block_end; block += 4) gemm_blocks<Tiles, F, 4>(tiles, args, block);
  for (; block < args.block_end; ++block) gemm_blocks<Tiles, F, 1>(tiles, args, block);
}

template <class Tiles>
void linear(const LinearArgs& args) {
  const Format format = args.weight->format;
  if (args.num_tokens < kTileTokens || is_float(format)) return avx512::linear_kernels().linear(args);
  switch (format) {
    case Format::q4_0: return gemm<Tiles, Format::q4_0>(args);
    case Format::q4_1: return gemm<Tiles, Format::q4_1>(args);
    case Format::q5_0: return gemm<Tiles, Format::q5_0>(args);
    case Format::q5_1: return gemm<Tiles, Format::q5_1>(args);
    case Format::q8_0: return gemm<Tiles, Format::q8_0>(args);
    case Format::q2_k: return gemm<Tiles, Format::q2_k>(args);
    case Format::q4_k: return gemm<Tiles, Format::q4_k>(args);
    case Format::q5_k: return gemm<Tiles, Format::q5_k>(args);
    case Format::q6_k: return gemm<Tiles, Format::q6_k>(args);
    default: return gemm<Tiles, Format::q4_lut>(args);
  }
}

const char* describe(Format format, int64_t num_tokens) {
  if (num_tokens < kTileTokens || is_float(format)) return avx512::linear_kernels().describe(format, num_tokens);
  return "amx int8 panel gemm, 4 blocks x 16 tokens";
}

}  // namespace

const LinearKernels& linear_kernels() {
  static constexpr LinearKernels kernels{linear<HardwareTiles>, describe};
  return kernels;
}

const LinearKernels& emulated_linear_kernels() {
  static constexpr LinearKernels kernels{linear<EmulatedTiles>, describe};
  return kernels;
}

}  // namespace roofline::amx
