// Contract of the attention family: causal attention of a step's query rows over a paged KV cache, and the append to it.
// No score matrix is ever stored: scores live for one chunk of kChunkLen tokens in scratch. A row's result does not depend on the
// rows beside it, on the split of chunks among threads, or on where its blocks lie (roofline/numeric.h).
#pragma once

#include <cstdint>

#include "roofline/isa.h"
#include "roofline/numeric.h"

namespace roofline {

enum class KvType : int { f32, f16, bf16 };

// One layer's cache. Block b starts at base + b * block_stride_bytes and holds, per KV head, first K then V:
//   K [kBlockLen/16][D][16 tokens]: sixteen tokens are lanes of a vector, so a score needs no horizontal sum
//   V [kBlockLen][Dp], Dp = D rounded up to 16, zero past D
struct KvCache {
  uint8_t* base;
  int64_t block_stride_bytes;
  KvType type;
  int64_t num_kv_heads;    // Hk
  int64_t head_size;       // D, even
};

int64_t kv_head_bytes(KvType type, int64_t head_size);      // K and V of one head in one block; a block holds Hk of them (plain_layout.cpp)

struct AttentionArgs {
  KvCache cache;
  int64_t num_heads;           // H, a multiple of Hk; head h reads KV head h / (H / Hk)
  float scale;                 // multiplies q . k
  float soft_cap;              // 0: none; else s = cap * tanh(s / cap) before the mask
  int64_t window;              // 0: none; else a token at position p sees positions p - window + 1 .. p
  const float* q; int64_t q_stride;       // [T, H * D]
  float* out; int64_t out_stride;         // [T, H * D]
};

// Query rows (token, head) of one sequence and one KV head: tokens first..first+num_tokens of the step, all H/Hk heads of the group,
// against chunks chunk_begin..chunk_end of the sequence.
struct AttentionTile {
  const int32_t* block_table;
  int64_t kv_head;
  int64_t first_row;           // row in q and out of the tile's first token
  int64_t first_position;      // its position in the sequence
  int64_t num_tokens;
  int64_t chunk_begin, chunk_end;   // canonical chunks; the caller clips to what some row of the tile can see
  float* partials;             // null: merge all chunks and write `out`. Else [chunk_end - chunk_begin][rows][Dp + 2] gets
                               // (output, max, sum) of each chunk, for attention_merge
};

struct AttentionKernels {
  // Rows of K and V [Hk * D] of one token into slot position % kBlockLen of block_table[position / kBlockLen]. f16 saturates to +-65504.
  void (*append)(const KvCache&, const int32_t* block_table, int64_t position, const float* k, const float* v);
  void (*tile)(const AttentionArgs&, const AttentionTile&, float* scratch);
  // Merge partials of chunks 0..num_chunks (in order) laid out as `tile` wrote them, write `out`.
  void (*merge)(const AttentionArgs&, const AttentionTile&, int64_t num_chunks);
};

// Most (token, head) rows a tile may have, unless one token has more heads: cut evenly, 22 to 28 rows fill the 14-row register
// blocks of the avx512 tier at every ratio.
inline constexpr int64_t kAttentionTileRows = 28;
int64_t attention_partial_floats(int64_t rows, int64_t head_size);      // floats that `partials` takes per chunk
int64_t attention_scratch_bytes(int64_t max_rows, int64_t head_size);   // plain_layout.cpp

// plain_select.cpp: the highest tier up to `cap` that was built, and which one it is. The caller has checked the machine runs `cap`.
const AttentionKernels& attention_kernels(Isa cap, Isa* chosen);

namespace ref { const AttentionKernels& attention_kernels(); }
namespace avx2 { const AttentionKernels& attention_kernels(); }
namespace avx512 { const AttentionKernels& attention_kernels(); }

}  // namespace roofline
