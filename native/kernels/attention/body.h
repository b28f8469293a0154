// The attention family, once for every tier: included by <tier>.cpp after simd/<tier>.h. Rows of a tile are taken in blocks of R
// that share each widened vector of K and V; R changes speed and never a row's arithmetic.
#pragma once

#include <utility>

#include "kernels/attention/contract.h"
#include "kernels/simd/elementary.h"

namespace roofline::ROOFLINE_TIER {
namespace {

// Scores of one row and chunk; sixteen floats more than a chunk, or all rows of a block would share four cache sets.
constexpr int64_t kScoreStride = kChunkLen + kLanes;
constexpr int64_t kHalfLen = 16;         // tokens that lie as lanes in K

struct KvF32 {
  using Element = float;
  static ROOFLINE_INLINE F32x16 load_row(const float* p) { return load(p, All{}); }
  static ROOFLINE_INLINE void store_row(float* p, F32x16 x) { store(p, x, All{}); }
};

struct KvF16 {
  using Element = uint16_t;
  static ROOFLINE_INLINE F32x16 load_row(const uint16_t* p) { return load_f16(p); }
  static ROOFLINE_INLINE void store_row(uint16_t* p, F32x16 x) { store_f16(p, min(set1(65504.0f), max(set1(-65504.0f), x))); }
};

// The largest bf16, 0x7f7f: rounding may not make an infinity out of a finite value.
constexpr float kBf16Largest = 3.38953139e38f;

struct KvBf16 {
  using Element = uint16_t;
  static ROOFLINE_INLINE F32x16 load_row(const uint16_t* p) { return load_bf16(p); }
  static ROOFLINE_INLINE void store_row(uint16_t* p, F32x16 x) {
    uint32_t bits[16];
    const F32x16 clamped = min(set1(kBf16Largest), max(set1(-kBf16Largest), x));
    memcpy(bits, &clamped, sizeof bits);
    for (int i = 0; i < 16; i++) {
      const bool nan = (bits[i] & 0x7fffffff) > 0x7f800000;
      const uint32_t rounded = bits[i] + 0x7fff + (bits[i] >> 16 & 1);
      p[i] = static_cast<uint16_t>(nan ? bits[i] >> 16 | 0x40 : rounded >> 16);
    }
  }
};

ROOFLINE_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
ROOFLINE_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
ROOFLINE_INLINE int64_t padded_size(int64_t head_size) { return (head_size + kLanes - 1) / kLanes * kLanes; }
ROOFLINE_INLINE int64_t partial_stride(int64_t head_size) { return padded_size(head_size) + 2; }

// ---- the cache --------------------------------------------------------------------------------------------------------------

template <class Kv>
ROOFLINE_INLINE auto* head_block(const KvCache& cache, int32_t block, int64_t kv_head) {
  uint8_t* start = cache.base + block * cache.block_stride_bytes + kv_head * kv_head_bytes(cache.type, cache.head_size);
  return reinterpret_cast<typename Kv::Element*>(start);
}

template <class Kv>
void append_head(typename Kv::Element* block, int64_t head_size, int64_t slot, const float* k, const float* v) {
  typename Kv::Element narrow[16];
  auto* k_out = block + slot / kHalfLen * head_size * kHalfLen + slot % kHalfLen;
  auto* v_out = block + kBlockLen * head_size + slot * padded_size(head_size);
  for_vectors(head_size, [&](int64_t d, auto part) {
    Kv::store_row(narrow, load(k + d, part));
    for (int64_t i = 0; i < smaller(16, head_size - d); i++) k_out[(d + i) * kHalfLen] = narrow[i];
    Kv::store_row(v_out + d, load(v + d, part));
  });
}

template <class Kv>
void append_as(const KvCache& cache, const int32_t* block_table, int64_t position, const float* k, const float* v) {
  for (int64_t h = 0; h < cache.num_kv_heads; h++) {
    auto* block = head_block<Kv>(cache, block_table[position / kBlockLen], h);
    append_head<Kv>(block, cache.head_size, position % kBlockLen, k + h * cache.head_size, v + h * cache.head_size);
  }
}

void append(const KvCache& cache, const int32_t* block_table, int64_t position, const float* k, const float* v) {
  switch (cache.type) {
    case KvType::f32: return append_as<KvF32>(cache, block_table, position, k, v);
    case KvType::f16: return append_as<KvF16>(cache, block_table, position, k, v);
    case KvType::bf16: return append_as<KvBf16>(cache, block_table, position, k, v);
  }
}

// ---- one block of rows against the tokens of a chunk --------------------------------------------------------------------------

struct Span {
  int64_t begin, end;                    // tokens, counted from the start of the chunk
  bool empty() const { return begin >= end; }
};

// One KV head's part of a chunk's blocks, and the tokens in it that some row of the tile can see.
struct ChunkView {
  const uint8_t* blocks[kChunkLen / kBlockLen + 1];      // one more: where the last block's work looks ahead
  int64_t head_size;
  Span span;

  template <class Kv>
  const typename Kv::Element* elements(int64_t b) const {
    return reinterpret_cast<const typename Kv::Element*>(blocks[b]);
  }
};

// fn(block number, first token of the block) for the blocks that the span touches.
template <class Fn>
ROOFLINE_INLINE void for_blocks(Span span, Fn fn) {
  for (int64_t b = span.begin / kBlockLen; b * kBlockLen < span.end; b++) fn(b, b * kBlockLen);
}

// Blocks lie anywhere, so the hardware can't guess the next one: while a block is worked on, its successor is fetched.
// MEASURED Ice Lake Xeon, decode of 67 MB: 6.0 to 9.0 GB/s at ratio 7, where a plain read of that memory gets 10.5.
template <size_t kBytes>
ROOFLINE_INLINE void look_ahead(const void* p) {
#pragma GCC unroll 8
  for (size_t i = 0; i < kBytes; i += 64) prefetch(static_cast<const uint8_t*>(p) + i);
}

// scores[r][token] = scale * (q[., r] . k[., token]) for kHalves * 16 tokens. q is [D][R]; a dot product is one chain in d order.
template <class Kv, int kRows, int kHalves>
ROOFLINE_INLINE void score_halves(const typename Kv::Element* k, const typename Kv::Element* next, int64_t head_size,
                                  const float* q, float scale, float* scores) {
  F32x16 sums[kHalves][kRows];
#pragma GCC unroll 32
  for (int i = 0; i < kHalves * kRows; i++) sums[i / kRows][i % kRows] = set1(0.0f);
  for (int64_t d = 0; d < head_size; d++, k += kHalfLen, q += kRows) {
    look_ahead<kHalves * kHalfLen * sizeof(*k)>(next + d * kHalves * kHalfLen);
    F32x16 keys[kHalves];
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; h++) keys[h] = Kv::load_row(k + h * head_size * kHalfLen);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; r++) {
      const F32x16 query = set1(q[r]);
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; h++) sums[h][r] = fma(keys[h], query, sums[h][r]);
    }
  }
#pragma GCC unroll 32
  for (int i = 0; i < kHalves * kRows; i++) {
    const int h = i / kRows, r = i % kRows;
    store(scores + r * kScoreStride + h * kHalfLen, sums[h][r] * set1(scale), All{});
  }
}

// Scores of all blocks that the span touches; some lie outside of it and are never read.
template <class Kv, int kRows>
void score_chunk(const ChunkView& chunk, const float* q, float scale, float* scores) {
  constexpr int kHalves = 2 * kRows <= kBlockVectors ? 2 : 1;
  for_blocks(chunk.span, [&](int64_t b, int64_t token) {
    const auto* k = chunk.elements<Kv>(b);
    const auto* next = chunk.elements<Kv>(b + 1);
    for (int64_t h = 0; h < 2; h += kHalves, k += kHalfLen * chunk.head_size, next += kHalfLen * chunk.head_size) {
      score_halves<Kv, kRows, kHalves>(k, next, chunk.head_size, q, scale, scores + token + h * kHalfLen);
    }
  });
}

// out[r][16 kVectors] = sum over the span's tokens of p[r][token] * v[token][d..], in token order.
template <class Kv, int kRows, int kVectors>
ROOFLINE_INLINE void weigh_vectors(const ChunkView& chunk, int64_t d, const float* p, float* out) {
  const int64_t v_stride = padded_size(chunk.head_size), out_stride = partial_stride(chunk.head_size);
  F32x16 sums[kRows][kVectors];
#pragma GCC unroll 32
  for (int i = 0; i < kRows * kVectors; i++) sums[i / kVectors][i % kVectors] = set1(0.0f);
  for (int64_t b = chunk.span.begin / kBlockLen; b * kBlockLen < chunk.span.end; b++) {
    const int64_t begin = larger(chunk.span.begin, b * kBlockLen), end = smaller(chunk.span.end, (b + 1) * kBlockLen);
    const int64_t offset = kBlockLen * chunk.head_size + (begin - b * kBlockLen) * v_stride + d;
    const auto* v = chunk.elements<Kv>(b) + offset;
    const auto* next = chunk.elements<Kv>(b + 1) + offset;
    for (int64_t t = begin; t < end; t++, v += v_stride, next += v_stride) {
      look_ahead<kVectors * 16 * sizeof(*v)>(next);
      F32x16 values[kVectors];
#pragma GCC unroll 4
      for (int n = 0; n < kVectors; n++) values[n] = Kv::load_row(v + 16 * n);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; r++) {
        const F32x16 weight = set1(p[r * kScoreStride + t]);
#pragma GCC unroll 4
        for (int n = 0; n < kVectors; n++) sums[r][n] = fma(values[n], weight, sums[r][n]);
      }
    }
  }
#pragma GCC unroll 32
  for (int i = 0; i < kRows * kVectors; i++) {
    store(out + i / kVectors * out_stride + i % kVectors * 16, sums[i / kVectors][i % kVectors], All{});
  }
}

constexpr int vectors_beside(int rows) {
  if (4 * rows <= kBlockVectors) return 4;
  return 2 * rows <= kBlockVectors ? 2 : 1;
}

template <class Kv, int kRows>
void weigh_chunk(const ChunkView& chunk, const float* p, float* out) {
  constexpr int kVectors = vectors_beside(kRows);
  const int64_t padded = padded_size(chunk.head_size);
  int64_t d = 0;
  for (; d + 16 * kVectors <= padded; d += 16 * kVectors) weigh_vectors<Kv, kRows, kVectors>(chunk, d, p, out + d);
  for (; d < padded; d += 16) weigh_vectors<Kv, kRows, 1>(chunk, d, p, out + d);
}

struct BlockKernels {
  void (*score)(const ChunkView& chunk, const float* q, float scale, float* scores);
  void (*weigh)(const ChunkView& chunk, const float* p, float* out);
};

struct BlockKernelsByRows {
  BlockKernels rows[kMaxBlockRows + 1];  // index = rows in the block
};

template <class Kv, int... kIndex>
constexpr BlockKernelsByRows by_rows(std::integer_sequence<int, kIndex...>) {
  return {{{nullptr, nullptr}, {score_chunk<Kv, kIndex + 1>, weigh_chunk<Kv, kIndex + 1>}...}};
}

constexpr BlockKernelsByRows kBlockKernels[3] = {
    by_rows<KvF32>(std::make_integer_sequence<int, kMaxBlockRows>{}),
    by_rows<KvF16>(std::make_integer_sequence<int, kMaxBlockRows>{}),
    by_rows<KvBf16>(std::make_integer_sequence<int, kMaxBlockRows>{}),
};

// ---- one row ----------------------------------------------------------------------------------------------------------------

ROOFLINE_INLINE Mask16 lanes_within(Span span, int64_t first_lane) {
  const uint32_t from = ~0u << larger(span.begin - first_lane, 0);
  const uint32_t until = span.end - first_lane >= 16 ? 0xffffu : (1u << (span.end - first_lane)) - 1;
  return mask_from_bits(from & until);
}

// The weights are zero in the vectors that only other rows of the tile can see.
void clear_outside(float* p, Span tile, Span row) {
  const int64_t begin = tile.begin / 16 * 16, end = (tile.end + 15) / 16 * 16;
  const int64_t row_begin = row.empty() ? end : row.begin / 16 * 16, row_end = row.empty() ? end : (row.end + 15) / 16 * 16;
  for (int64_t t = begin; t < row_begin; t += 16) store(p + t, set1(0.0f), All{});
  for (int64_t t = row_end; t < end; t += 16) store(p + t, set1(0.0f), All{});
}

// The row sees only some lanes of its first and last vector.
void hide_outside(float* scores, Span row) {
  const int64_t first = row.begin / 16 * 16, last = (row.end - 1) / 16 * 16;
  for (const int64_t t : {first, last}) {
    store(scores + t, select(lanes_within(row, t), load(scores + t, All{}), set1(-INFINITY)), All{});
  }
}

float largest_score(float* scores, Span row, float cap) {
  if (cap > 0.0f) {
    for (int64_t t = row.begin / 16 * 16; t < row.end; t += 16) {
      store(scores + t, set1(cap) * tanh(load(scores + t, All{}) / set1(cap)), All{});
    }
  }
  hide_outside(scores, row);
  F32x16 top = set1(-INFINITY);
  for (int64_t t = row.begin / 16 * 16; t < row.end; t += 16) top = max(top, load(scores + t, All{}));
  return max_lanes(top);
}

// Scores to weights exp(s - top), in place; returns their sum.
float weights_from_scores(float* scores, Span row, float top) {
  F32x16 sums = set1(0.0f);
  for (int64_t t = row.begin / 16 * 16; t < row.end; t += 16) {
    const F32x16 weight = exp_nonpositive(load(scores + t, All{}) - set1(top));
    store(scores + t, weight, All{});
    sums = sums + weight;
  }
  return sum_lanes(sums);
}

// total = total (+) part for one row, each (output[Dp], max, sum). Chunks that the row does not see leave it as it is.
void merge_row(float* total, const float* part, int64_t padded) {
  if (part[padded + 1] == 0.0f) return;
  if (total[padded + 1] == 0.0f) {
    memcpy(total, part, static_cast<size_t>(padded + 2) * sizeof(float));
    return;
  }
  const float top = total[padded] > part[padded] ? total[padded] : part[padded];
  const F32x16 keep = set1(first_lane(exp_nonpositive(set1(total[padded] - top))));
  const F32x16 gain = set1(first_lane(exp_nonpositive(set1(part[padded] - top))));
  for (int64_t d = 0; d < padded; d += 16) {
    store(total + d, fma(load(total + d, All{}), keep, load(part + d, All{}) * gain), All{});
  }
  total[padded] = top;
  total[padded + 1] = fmaf(total[padded + 1], first_lane(keep), part[padded + 1] * first_lane(gain));
}

void write_row(const float* total, int64_t head_size, float* out) {
  const float sum = total[padded_size(head_size) + 1];
  const F32x16 inverse = set1(sum == 0.0f ? 0.0f : 1.0f / sum);
  for_vectors(head_size, [&](int64_t d, auto part) { store(out + d, load(total + d, part) * inverse, part); });
}

// ---- a tile -----------------------------------------------------------------------------------------------------------------

struct Tile {
  const AttentionArgs& args;
  const AttentionTile& where;
  int64_t heads_per_kv;                  // rows are (token, head of the group), head fastest
  int64_t num_rows;
  float* q;                              // row blocks one after another, each [D][rows of the block]
  float* scores;                         // [num_rows][kScoreStride]
};

float* align_to_line(float* p) { return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(p) + 63) & ~uintptr_t{63}); }

const float* query_row(const Tile& tile, int64_t row) {
  const int64_t token = tile.where.first_row + row / tile.heads_per_kv;
  const int64_t head = tile.where.kv_head * tile.heads_per_kv + row % tile.heads_per_kv;
  return tile.args.q + token * tile.args.q_stride + head * tile.args.cache.head_size;
}

float* out_row(const AttentionArgs& args, const AttentionTile& where, int64_t heads_per_kv, int64_t row) {
  const int64_t head = where.kv_head * heads_per_kv + row % heads_per_kv;
  return args.out + (where.first_row + row / heads_per_kv) * args.out_stride + head * args.cache.head_size;
}

// Calls fn(first row, rows) for blocks of nearly equal height, none above kMaxBlockRows.
template <class Fn>
ROOFLINE_INLINE void for_row_blocks(int64_t num_rows, Fn fn) {
  const int64_t num_blocks = (num_rows + kMaxBlockRows - 1) / kMaxBlockRows;
  for (int64_t b = 0; b < num_blocks; b++) {
    const int64_t begin = num_rows * b / num_blocks;
    fn(begin, num_rows * (b + 1) / num_blocks - begin);
  }
}

void pack_queries(const Tile& tile) {
  const int64_t head_size = tile.args.cache.head_size;
  for_row_blocks(tile.num_rows, [&](int64_t first, int64_t rows) {
    for (int64_t r = 0; r < rows; r++) {
      const float* q = query_row(tile, first + r);
      for (int64_t d = 0; d < head_size; d++) tile.q[first * head_size + d * rows + r] = q[d];
    }
  });
}

// Tokens of the chunk that a query at `position` sees, or all of first..last positions' queries together.
Span visible(const Tile& tile, int64_t chunk, int64_t first_position, int64_t last_position) {
  const int64_t start = chunk * kChunkLen;
  const int64_t oldest = tile.args.window > 0 ? larger(0, first_position - tile.args.window + 1) : 0;
  return {larger(oldest - start, 0), smaller(last_position + 1 - start, kChunkLen)};
}

ChunkView view_chunk(const Tile& tile, int64_t chunk, Span span) {
  const KvCache& cache = tile.args.cache;
  const int64_t head_offset = tile.where.kv_head * kv_head_bytes(cache.type, cache.head_size);
  const int32_t* table = tile.where.block_table + chunk * (kChunkLen / kBlockLen);
  ChunkView view{{}, cache.head_size, span};
  for_blocks(span, [&](int64_t b, int64_t) { view.blocks[b] = cache.base + table[b] * cache.block_stride_bytes + head_offset; });
  const int64_t last = (span.end - 1) / kBlockLen;
  const bool has_next = tile.where.first_position + tile.where.num_tokens > (chunk + 1) * kChunkLen;
  const int32_t next = table[has_next ? last + 1 : last];
  view.blocks[last + 1] = cache.base + next * cache.block_stride_bytes + head_offset;
  return view;
}

// Scores to weights with the maximum and sum of each row; a row that sees nothing of the chunk has sum 0. The maxima of all rows
// come first: row by row, each row would wait for its own chain of maxima, exponentials and sums.
void soften_rows(const Tile& tile, int64_t chunk, Span span, int64_t first_row, int64_t num_rows, float* partial) {
  const int64_t padded = padded_size(tile.args.cache.head_size), stride = padded + 2;
  const auto span_of = [&](int64_t row) {
    const int64_t position = tile.where.first_position + row / tile.heads_per_kv;
    return visible(tile, chunk, position, position);
  };
  for (int64_t row = first_row; row < first_row + num_rows; row++) {
    float* scores = tile.scores + row * kScoreStride;
    const Span own = span_of(row);
    clear_outside(scores, span, own);
    partial[row * stride + padded] = own.empty() ? -INFINITY : largest_score(scores, own, tile.args.soft_cap);
  }
  for (int64_t row = first_row; row < first_row + num_rows; row++) {
    const Span own = span_of(row);
    const float top = partial[row * stride + padded];
    partial[row * stride + padded + 1] = own.empty() ? 0.0f : weights_from_scores(tile.scores + row * kScoreStride, own, top);
  }
}

// partial[row] = (output, max, sum) of one chunk.
void attend_chunk(const Tile& tile, int64_t chunk, float* partial) {
  const int64_t head_size = tile.args.cache.head_size, stride = partial_stride(head_size);
  const int64_t first_position = tile.where.first_position;
  const Span span = visible(tile, chunk, first_position, first_position + tile.where.num_tokens - 1);
  if (span.empty()) {
    memset(partial, 0, static_cast<size_t>(tile.num_rows * stride) * sizeof(float));
    return;
  }
  const ChunkView view = view_chunk(tile, chunk, span);
  for_row_blocks(tile.num_rows, [&](int64_t first, int64_t rows) {
    const BlockKernels& kernels = kBlockKernels[static_cast<int>(tile.args.cache.type)].rows[rows];
    kernels.score(view, tile.q + first * head_size, tile.args.scale, tile.scores + first * kScoreStride);
    soften_rows(tile, chunk, span, first, rows, partial);
    kernels.weigh(view, tile.scores + first * kScoreStride, partial + first * stride);
  });
}

void merge_chunk(float* total, const float* partial, int64_t num_rows, int64_t head_size) {
  const int64_t stride = partial_stride(head_size);
  for (int64_t row = 0; row < num_rows; row++) merge_row(total + row * stride, partial + row * stride, padded_size(head_size));
}

void write_tile(const AttentionArgs& args, const AttentionTile& where, const float* total) {
  const int64_t heads_per_kv = args.num_heads / args.cache.num_kv_heads, head_size = args.cache.head_size;
  for (int64_t row = 0; row < where.num_tokens * heads_per_kv; row++) {
    write_row(total + row * partial_stride(head_size), head_size, out_row(args, where, heads_per_kv, row));
  }
}

void attend_tile(const AttentionArgs& args, const AttentionTile& where, float* scratch) {
  const int64_t heads_per_kv = args.num_heads / args.cache.num_kv_heads, num_rows = where.num_tokens * heads_per_kv;
  const int64_t partial_floats = num_rows * partial_stride(args.cache.head_size);
  float* q = align_to_line(scratch);
  float* scores = align_to_line(q + num_rows * args.cache.head_size);
  float* total = align_to_line(scores + num_rows * kScoreStride);
  const Tile tile{args, where, heads_per_kv, num_rows, q, scores};
  pack_queries(tile);
  if (where.partials != nullptr) {
    for (int64_t c = where.chunk_begin; c < where.chunk_end; c++) {
      attend_chunk(tile, c, where.partials + (c - where.chunk_begin) * partial_floats);
    }
    return;
  }
  memset(total, 0, static_cast<size_t>(partial_floats) * sizeof(float));
  float* partial = align_to_line(total + partial_floats);
  for (int64_t c = where.chunk_begin; c < where.chunk_end; c++) {
    attend_chunk(tile, c, partial);
    merge_chunk(total, partial, num_rows, args.cache.head_size);
  }
  write_tile(args, where, total);
}

// The first chunk's slot becomes the running total.
void merge_tile(const AttentionArgs& args, const AttentionTile& where, int64_t num_chunks) {
  const int64_t num_rows = where.num_tokens * (args.num_heads / args.cache.num_kv_heads);
  const int64_t partial_floats = num_rows * partial_stride(args.cache.head_size);
  for (int64_t c = 1; c < num_chunks; c++) {
    merge_chunk(where.partials, where.partials + c * partial_floats, num_rows, args.cache.head_size);
  }
  write_tile(args, where, where.partials);
}

constexpr AttentionKernels kAttentionKernels{append, attend_tile, merge_tile};

}  // namespace

const AttentionKernels& attention_kernels() { return kAttentionKernels; }

}  // namespace roofline::ROOFLINE_TIER
