#include "executor/attention_phase.h"

#include <algorithm>

namespace roofline {
namespace {

constexpr int64_t kPiecesPerThread = 4;

}  // namespace

AttentionSchedule::AttentionSchedule(AttentionGeometry geometry, int num_threads, int64_t max_tokens, int64_t max_context)
    : geometry_(geometry), num_threads_(num_threads), group_len_(geometry.num_heads / geometry.num_kv_heads),
      tile_tokens_(std::max<int64_t>(1, kAttentionTileRows / group_len_)), max_context_(max_context),
      pieces_left_(new std::atomic<int32_t>[static_cast<size_t>(kPiecesPerThread * num_threads)]) {
  const auto most_tiles = static_cast<size_t>(max_tokens * geometry.num_kv_heads);
  whole_.reserve(most_tiles);
  pieces_.reserve(most_tiles + static_cast<size_t>(2 * kPiecesPerThread * num_threads));
  splits_.reserve(static_cast<size_t>(kPiecesPerThread * num_threads));
}

// A split tile costs more than 1/(kPiecesPerThread * threads) of the whole, so there are fewer of them than that.
int64_t AttentionSchedule::max_partial_bytes() const {
  if (num_threads_ == 1) return 0;
  const int64_t max_chunks = (max_context_ + kChunkLen - 1) / kChunkLen;
  return kPiecesPerThread * num_threads_ * max_chunks * attention_partial_floats(tile_rows(), geometry_.head_size) *
         static_cast<int64_t>(sizeof(float));
}

void AttentionSchedule::build(const Step& step) {
  if (is_built_) return;
  whole_.clear();
  for (int64_t seq = 0; seq < step.input.num_seqs; ++seq) add_tiles(step, seq);
  cut_tiles();
  is_built_ = true;
}

void AttentionSchedule::add_tiles(const Step& step, int64_t seq) {
  const int64_t begin = step.input.seq_starts[seq], end = step.input.seq_starts[seq + 1];
  for (int64_t row = begin; row < end; row += tile_tokens_) {
    AttentionTile tile{};
    tile.block_table = step.input.block_table(seq);
    tile.first_row = row;
    tile.first_position = step.input.positions[row];
    tile.num_tokens = std::min(tile_tokens_, end - row);
    const int64_t oldest = geometry_.window > 0 ? std::max<int64_t>(0, tile.first_position - geometry_.window + 1) : 0;
    tile.chunk_begin = oldest / kChunkLen;
    tile.chunk_end = (tile.first_position + tile.num_tokens - 1) / kChunkLen + 1;
    const int64_t cost = (tile.chunk_end - tile.chunk_begin) * tile.num_tokens;
    for (tile.kv_head = 0; tile.kv_head < geometry_.num_kv_heads; ++tile.kv_head) whole_.push_back({tile, -1, cost});
  }
}

void AttentionSchedule::cut_tiles() {
  pieces_.clear();
  splits_.clear();
  partials_used_ = 0;
  int64_t total = 0;
  for (const AttentionPiece& piece : whole_) total += piece.cost;
  const int64_t piece_cost = total / (kPiecesPerThread * num_threads_);
  for (const AttentionPiece& piece : whole_) {
    const bool is_short = piece.tile.chunk_end - piece.tile.chunk_begin == 1;
    if (num_threads_ == 1 || is_short || piece.cost <= piece_cost) {
      pieces_.push_back(piece);
    } else {
      cut_tile(piece, std::max<int64_t>(1, piece_cost));
    }
  }
  homes_.assign(static_cast<size_t>(num_threads_) + 1, static_cast<int32_t>(pieces_.size()));
  homes_[0] = 0;
  std::stable_sort(pieces_.begin(), pieces_.end(), [](const auto& a, const auto& b) { return a.cost > b.cost; });
}

void AttentionSchedule::cut_tile(const AttentionPiece& whole, int64_t piece_cost) {
  const int64_t chunks_per_piece = std::max<int64_t>(1, piece_cost / whole.tile.num_tokens);
  const auto split = static_cast<int32_t>(splits_.size());
  SplitTile entry{whole.tile, 0};
  entry.whole.partials = partials_ + partials_used_;
  const int64_t chunk_len = attention_partial_floats(whole.tile.num_tokens * group_len_, geometry_.head_size);
  for (int64_t chunk = whole.tile.chunk_begin; chunk < whole.tile.chunk_end; chunk += chunks_per_piece) {
    AttentionPiece piece = whole;
    piece.split = split;
    piece.tile.chunk_begin = chunk;
    piece.tile.chunk_end = std::min(chunk + chunks_per_piece, whole.tile.chunk_end);
    piece.tile.partials = entry.whole.partials + (chunk - whole.tile.chunk_begin) * chunk_len;
    piece.cost = (piece.tile.chunk_end - chunk) * whole.tile.num_tokens;
    pieces_.push_back(piece);
    ++entry.num_pieces;
  }
  partials_used_ += (whole.tile.chunk_end - whole.tile.chunk_begin) * chunk_len;
  pieces_left_[split].store(entry.num_pieces, std::memory_order_relaxed);
  splits_.push_back(entry);
}

bool AttentionSchedule::finish_piece(int32_t split) {
  if (pieces_left_[split].fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  pieces_left_[split].store(splits_[split].num_pieces, std::memory_order_relaxed);
  return true;
}

void AttentionPhase::prepare(const Step& step) {
  schedule_->build(step);
  args_.cache = *cache_;
  args_.q = q_->data;
  args_.q_stride = q_->stride;
  args_.out = out_->data;
  args_.out_stride = out_->stride;
}

void AttentionPhase::run_chunk(const Step&, const Lane& lane, int64_t chunk) {
  const AttentionPiece& piece = schedule_->pieces()[static_cast<size_t>(chunk)];
  kernels_.tile(args_, piece.tile, lane.attention);
  if (piece.split < 0 || !schedule_->finish_piece(piece.split)) return;
  const SplitTile& split = schedule_->split_tile(piece.split);
  kernels_.merge(args_, split.whole, split.whole.chunk_end - split.whole.chunk_begin);
}

}  // namespace roofline
