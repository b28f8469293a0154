#include "executor/moe_phase.h"

#include <algorithm>

namespace roofline {
namespace {

constexpr int64_t kPieceBlocks = 16;     // row blocks of one expert that a thread takes at a time

// The largest score that is not among the `num_chosen` experts so far, the lowest index on equal ones. Always an expert, even among NaNs.
int32_t next_expert(const float* scores, int64_t num_experts, const int32_t* chosen, int64_t num_chosen) {
  int64_t best = -1;
  for (int64_t e = 0; e < num_experts; ++e) {
    if (std::find(chosen, chosen + num_chosen, static_cast<int32_t>(e)) != chosen + num_chosen) continue;
    if (best < 0 || scores[e] > scores[best]) best = e;
  }
  return static_cast<int32_t>(best);
}

}  // namespace

void RouteOp::run(const Step&, int64_t row) const {
  const int64_t num_experts = state.shape.num_experts, top_k = state.shape.top_k;
  float* score = scores.row(row);
  for (int64_t e = 0; e < num_experts; ++e) score[e] = kernels.dot(x.row(row), router + e * x.width, x.width);
  int32_t* chosen = &state.experts[static_cast<size_t>(row * top_k)];
  for (int64_t rank = 0; rank < top_k; ++rank) chosen[rank] = next_expert(score, num_experts, chosen, rank);
  kernels.softmax(score, num_experts);
  float* share = &state.probabilities[static_cast<size_t>(row * top_k)];
  float sum = 0.0f;
  for (int64_t rank = 0; rank < top_k; ++rank) sum += share[rank] = score[chosen[rank]];
  if (!renormalize) return;
  for (int64_t rank = 0; rank < top_k; ++rank) share[rank] /= sum;
}

void CombineOp::run(const Step&, int64_t row) const {
  const int64_t top_k = state.shape.top_k;
  for (int64_t rank = 0; rank < top_k; ++rank) {
    const auto assignment = static_cast<size_t>(row * top_k + rank);
    const float* y = down.row(state.slots[assignment]);
    if (rank == 0) {
      kernels.scale(y, state.probabilities[assignment], out.width, out.row(row));
    } else {
      kernels.scaled_add(y, state.probabilities[assignment], out.width, out.row(row));
    }
  }
}

// A counting sort of a few thousand integers.
void GroupRowsPhase::run_chunk(const Step& step, const Lane&, int64_t) {
  const int64_t num_assignments = step.input.num_tokens * state_.shape.top_k;
  std::vector<int32_t>& first = state_.first_slot;
  std::fill(first.begin(), first.end(), 0);
  for (int64_t i = 0; i < num_assignments; ++i) ++first[state_.experts[i] + 1];
  for (int64_t e = 0; e < state_.shape.num_experts; ++e) first[e + 1] += first[e];
  for (int64_t i = 0; i < num_assignments; ++i) {
    const int32_t slot = first[state_.experts[i]]++;
    state_.slots[i] = slot;
    state_.token_ids[slot] = static_cast<int32_t>(i / state_.shape.top_k);
  }
  for (int64_t e = state_.shape.num_experts; e > 0; --e) first[e] = first[e - 1];   // the sort moved each start to its end
  first[0] = 0;
  state_.active.clear();
  for (int64_t e = 0; e < state_.shape.num_experts; ++e) {
    if (first[e] < first[e + 1]) state_.active.push_back(static_cast<int32_t>(e));
  }
}

// How many experts have rows is known only when the router has run: there are chunks for as many as there can be.
void ExpertPhase::prepare(const Step& step) {
  const int64_t most_active = std::min(state_.shape.num_experts, step.input.num_tokens * state_.shape.top_k);
  const int64_t per_expert = (num_blocks_ + kPieceBlocks - 1) / kPieceBlocks;
  std::fill(homes_.begin() + 1, homes_.end(), static_cast<int32_t>(most_active * per_expert));
}

void ExpertPhase::run_chunk(const Step&, const Lane& lane, int64_t chunk) {
  const int64_t per_expert = (num_blocks_ + kPieceBlocks - 1) / kPieceBlocks;
  const auto order = static_cast<size_t>(chunk / per_expert);
  if (order >= state_.active.size()) return;
  const int64_t begin = chunk % per_expert * kPieceBlocks;
  run_expert(lane, state_.active[order], {begin, std::min(begin + kPieceBlocks, num_blocks_)});
}

ExpertGatedPhase::ExpertGatedPhase(std::string name, const MoeState* state, GatedColumns columns, std::vector<GatedWeights> experts,
                                   int num_threads)
    : ExpertPhase(std::move(name), state, round_up(state->shape.expert_len, kRowBlock) / kRowBlock, num_threads), columns_(columns),
      experts_(std::move(experts)) {}

void ExpertGatedPhase::run_expert(const Lane& lane, int64_t expert, BlockRange blocks) {
  GatedColumns columns = columns_;
  columns.weights = experts_[expert];
  columns.first_out_row = state_.first_slot[expert];
  columns.num_rows = state_.first_slot[expert + 1] - columns.first_out_row;
  columns.row_ids = &state_.token_ids[columns.first_out_row];
  columns.run(lane, blocks);
}

ExpertDownPhase::ExpertDownPhase(std::string name, const MoeState* state, const LinearKernels& kernels, LinearInput input,
                                 std::vector<const Weight*> experts, const FloatBuffer* out, int num_threads)
    : ExpertPhase(std::move(name), state, round_up(state->shape.width, kRowBlock) / kRowBlock, num_threads), kernels_(kernels), input_(input),
      experts_(std::move(experts)), out_(out) {}

void ExpertDownPhase::run_expert(const Lane& lane, int64_t expert, BlockRange blocks) {
  const int64_t first = state_.first_slot[expert];
  LinearArgs args{};
  args.weight = &experts_[expert]->packed;
  input_.fill(args.weight->format, first, &args);
  args.num_tokens = state_.first_slot[expert + 1] - first;
  args.y = out_->row(first);
  args.y_stride = out_->stride;
  args.block_begin = blocks.begin;
  args.block_end = blocks.end;
  args.scratch = lane.linear;
  kernels_.linear(args);
}

}  // namespace roofline
