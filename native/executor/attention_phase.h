// The attention phase: a step's query rows cut into tiles of (sequence, KV head, tokens), long tiles cut again into runs of canonical
// chunks whose partials the last thread to finish merges. Pieces are taken longest first from a counter. How tiles are cut never
// changes a row (roofline/numeric.h).
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "executor/buffers.h"
#include "executor/phase.h"

namespace roofline {

// Layers with equal geometry share one schedule a step.
struct AttentionGeometry {
  int64_t num_heads, num_kv_heads, head_size, window;
  bool operator==(const AttentionGeometry&) const = default;
};

struct AttentionPiece {
  AttentionTile tile;      // its own chunk range; `partials` is where its first chunk's go, or null
  int32_t split;           // number of its split tile, or -1
  int64_t cost;
};

struct SplitTile {
  AttentionTile whole;
  int32_t num_pieces;
};

class AttentionSchedule {
 public:
  AttentionSchedule(AttentionGeometry geometry, int num_threads, int64_t max_tokens, int64_t max_context);
  const AttentionGeometry& geometry() const { return geometry_; }
  int64_t max_partial_bytes() const;       // of any step's split tiles together
  int64_t tile_rows() const { return tile_tokens_ * group_len_; }
  void place(float* partials) { partials_ = partials; }
  void build(const Step& step);            // once a step, by the first phase that needs it
  void forget() { is_built_ = false; }

  const std::vector<AttentionPiece>& pieces() const { return pieces_; }
  const Homes& homes() const { return homes_; }         // one line for all threads: the longest goes first, whoever takes it
  // True for the thread that finishes the last piece of a split tile; the count is then ready for the next layer.
  bool finish_piece(int32_t split);
  const SplitTile& split_tile(int32_t split) const { return splits_[split]; }

 private:
  void add_tiles(const Step& step, int64_t seq);
  void cut_tiles();
  void cut_tile(const AttentionPiece& whole, int64_t piece_cost);

  AttentionGeometry geometry_;
  int num_threads_;
  int64_t group_len_, tile_tokens_, max_context_;
  bool is_built_ = false;
  float* partials_ = nullptr;
  int64_t partials_used_ = 0;              // floats
  std::vector<AttentionPiece> whole_, pieces_;
  Homes homes_;
  std::vector<SplitTile> splits_;
  std::unique_ptr<std::atomic<int32_t>[]> pieces_left_;
};

class AttentionPhase final : public Phase {
 public:
  AttentionPhase(std::string name, const AttentionKernels& kernels, AttentionSchedule* schedule, AttentionArgs args,
                 const KvCache* cache, const FloatBuffer* q, const FloatBuffer* out)
      : Phase(std::move(name)), kernels_(kernels), schedule_(schedule), args_(args), cache_(cache), q_(q), out_(out) {}
  void prepare(const Step& step) override;
  const Homes& homes(const Step&) const override { return schedule_->homes(); }
  void run_chunk(const Step& step, const Lane& lane, int64_t chunk) override;

 private:
  const AttentionKernels& kernels_;
  AttentionSchedule* schedule_;
  AttentionArgs args_;                     // completed by prepare: the arena exists by then
  const KvCache* cache_;
  const FloatBuffer *q_, *out_;
};

}  // namespace roofline
