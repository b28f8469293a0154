// The panel that all multi-token kernels of quantized weights work on: up to four row blocks of a slice of K, the same for all formats
// (unsigned codes, float32 scales, minima apart), and the sums beside it in scratch. Internal linkage; avx512_gemm.cpp and amx.cpp.
#pragma once

#include "kernels/linear/avx512_unpack.h"

namespace roofline {
namespace {

inline constexpr int kMaxBlocks = 4;          // row blocks in a panel
inline constexpr int kPanelBytes = 36 * 1024; // leaves room in a 48 KB L1 for activations and sums
inline constexpr int kMaxGroups = 16;         // of 32 k in a slice
inline constexpr int64_t kMinimaAt = kPanelBytes, kMinimaBytes = 2 * kMaxGroups * kMaxBlocks * 64;
inline constexpr int64_t kSumsAt = kMinimaAt + kMinimaBytes;

// Tokens whose sums, one chain or two, fit in scratch.
constexpr int64_t chunk_tokens(bool with_min) { return with_min ? 384 : 768; }

static_assert(kSumsAt + chunk_tokens(false) * kMaxBlocks * 64 <= kLinearScratchBytes);
static_assert(kSumsAt + chunk_tokens(true) * kMaxBlocks * 64 * 2 <= kLinearScratchBytes);

// Bytes of one group in a panel: codes [8 lines][R], scales [halves][R], each entry one zmm. Minima lie apart: [slot][R].
constexpr int record_bytes(int num_blocks, int group_len) { return num_blocks * 64 * (8 + kGroupLen / group_len); }

constexpr int slice_groups(int group_len) {
  const int fit = kPanelBytes / record_bytes(kMaxBlocks, group_len);
  return fit < kMaxGroups ? fit : kMaxGroups;
}

// The two chains of sums, [token][R] zmm each.
struct Sums {
  float* acc;
  float* low;
};

// Groups [begin, end) of K; blocks first .. first + R.
struct Slice {
  int64_t begin, end, first_block;
};

// Bytes from a group of this slice to what is unpacked next: the same blocks' next slice, or the next blocks' first.
template <Format F, int R>
int64_t bytes_ahead(const PackedWeight& weight, const Slice& slice) {
  constexpr int kTileGroups = tile_len(F) / kGroupLen;
  const bool last = slice.end * kGroupLen == weight.row_len;
  if (last) return R * weight.block_stride_bytes - slice.begin / kTileGroups * tile_bytes(F);
  return (slice.end - slice.begin) * tile_bytes(F) / kTileGroups;
}

template <Format F, int R>
void unpack_panel(const PackedWeight& weight, const Slice& slice, uint8_t* panel, float* minima) {
  constexpr int kHalves = kGroupLen / scale_len(F), kTileGroups = tile_len(F) / kGroupLen;
  constexpr int kShare = tile_bytes(F) / kTileGroups;
  const __m512i table = unsigned_table(F == Format::q4_lut ? weight.lut : nullptr);
  const int64_t ahead = bytes_ahead<F, R>(weight, slice);
  for (int r = 0; r < R; ++r) {
    const uint8_t* block = weight.tiles + (slice.first_block + r) * weight.block_stride_bytes;
    uint8_t* record = panel + 64 * r;
    for (int64_t g = slice.begin; g < slice.end; ++g, record += record_bytes(R, scale_len(F))) {
      const uint8_t* tile = block + g / kTileGroups * tile_bytes(F);
      const int in_tile = int(g % kTileGroups);
#pragma GCC unroll 16
      for (int at = 0; at < kShare; at += 64) {  // into L2: it is read after this slice's tokens
        _mm_prefetch(reinterpret_cast<const char*>(tile + in_tile * kShare + ahead + at), _MM_HINT_T1);
      }
      const TileScales shared = load_tile_scales<F>(tile);
      __m512i u[8];
      unpack_codes<F>(group_codes<F>(tile, in_tile), table, u);
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) _mm512_store_si512(record + 64 * R * j, u[j]);
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h) {
        const int index = in_tile * kHalves + h;
        _mm512_store_ps(record + 64 * R * (8 + h), group_scale<F>(tile, shared, index));
        if constexpr (has_min(F)) {
          const int64_t slot = (g - slice.begin) * kHalves + h;
          _mm512_store_ps(minima + kRowBlock * (slot * R + r), group_min<F>(tile, shared, index));
        }
      }
    }
  }
}

template <int G, bool kMin>
void prepare_sums(const int32_t* sum16, const float* scale, int64_t num_groups, int offset, int32_t* compensation,
                  float* scaled_sum) {
  constexpr int kHalves = kGroupLen / G;
  for (int64_t i = 0; i < num_groups * kHalves; ++i) {
    const int32_t sum = kHalves == 2 ? sum16[i] : sum16[2 * i] + sum16[2 * i + 1];
    compensation[i] = -offset * sum;
    if constexpr (kMin) scaled_sum[i] = scale[i / kHalves] * float(sum);
  }
}

template <Format F, int R>
void store_chunk(const LinearArgs& args, int64_t first_block, int64_t token, int64_t end, const Sums& sums) {
  const float* acc = sums.acc;
  const float* low = sums.low;
  for (; token < end; ++token) {
    for (int r = 0; r < R; ++r, acc += kRowBlock, low += kRowBlock) {
      const __m512 low_sum = has_min(F) ? _mm512_load_ps(low) : _mm512_setzero_ps();
      store_block(args, token, first_block + r, join<F>(_mm512_load_ps(acc), low_sum));
    }
  }
}

}  // namespace
}  // namespace roofline
