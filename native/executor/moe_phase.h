// Mixture of experts in five phases: route (a row operator), group the rows by expert, gate/up of every expert that has rows, down,
// and the weighted sum (a row operator). An expert reads its rows by number, so nothing is copied.
#pragma once

#include <vector>

#include "executor/linear_phase.h"
#include "executor/row_phase.h"

namespace roofline {

struct MoeShape {
  int64_t num_experts, top_k, expert_len, width;   // X, k, F, E
  bool operator==(const MoeShape&) const = default;
};

// What the phases of one MoE operator hand on; layers of one shape share it. An assignment is (token, rank), numbered token * k + rank.
struct MoeState {
  MoeState(MoeShape shape, int64_t max_tokens)
      : shape(shape), experts(static_cast<size_t>(max_tokens * shape.top_k)), token_ids(experts.size()), slots(experts.size()),
        first_slot(static_cast<size_t>(shape.num_experts + 1)), probabilities(experts.size()) {}

  MoeShape shape;
  std::vector<int32_t> experts;        // of each assignment
  std::vector<int32_t> token_ids;      // of each slot: rows sorted by expert
  std::vector<int32_t> slots;          // of each assignment
  std::vector<int32_t> first_slot;     // of each expert, and the end
  std::vector<int32_t> active;         // experts that have rows
  std::vector<float> probabilities;    // of each assignment
};

// Softmax of x . router^T, the top k by probability (lowest index on equal ones), renormalized or not.
struct RouteOp final : RowOp {
  const PointwiseKernels& kernels;
  const FloatBuffer& x;
  const float* router;                 // [X, E]
  const FloatBuffer& scores;           // [T, X]
  MoeState& state;
  bool renormalize;
  RouteOp(const PointwiseKernels& kernels, const FloatBuffer& x, const float* router, const FloatBuffer& scores, MoeState& state,
          bool renormalize)
      : kernels(kernels), x(x), router(router), scores(scores), state(state), renormalize(renormalize) {}
  void run(const Step& step, int64_t row) const override;
};

// out[t] = sum over ranks, in order, of probability * down row.
struct CombineOp final : RowOp {
  const PointwiseKernels& kernels;
  const MoeState& state;
  const FloatBuffer &down, &out;
  CombineOp(const PointwiseKernels& kernels, const MoeState& state, const FloatBuffer& down, const FloatBuffer& out)
      : kernels(kernels), state(state), down(down), out(out) {}
  void run(const Step& step, int64_t row) const override;
};

class GroupRowsPhase final : public Phase {
 public:
  GroupRowsPhase(std::string name, MoeState* state) : Phase(std::move(name)), state_(*state) {}
  bool is_serial(const Step&) const override { return true; }
  const Homes& homes(const Step&) const override { return homes_; }
  void run_chunk(const Step& step, const Lane& lane, int64_t chunk) override;

 private:
  Homes homes_{0, 1};
  MoeState& state_;
};

// A phase of (expert, block range) pieces, taken from a counter.
class ExpertPhase : public Phase {
 public:
  ExpertPhase(std::string name, const MoeState* state, int64_t num_blocks, int num_threads)
      : Phase(std::move(name)), state_(*state), num_blocks_(num_blocks), homes_(static_cast<size_t>(num_threads) + 1) {}
  void prepare(const Step& step) override;
  const Homes& homes(const Step&) const override { return homes_; }
  void run_chunk(const Step& step, const Lane& lane, int64_t chunk) override;

 protected:
  virtual void run_expert(const Lane& lane, int64_t expert, BlockRange blocks) = 0;

  const MoeState& state_;
  int64_t num_blocks_;                 // row blocks of one expert's weight

 private:
  Homes homes_;                        // one line for all threads
};

class ExpertGatedPhase final : public ExpertPhase {
 public:
  ExpertGatedPhase(std::string name, const MoeState* state, GatedColumns columns, std::vector<GatedWeights> experts,
                   int num_threads);

 protected:
  void run_expert(const Lane& lane, int64_t expert, BlockRange blocks) override;

 private:
  GatedColumns columns_;
  std::vector<GatedWeights> experts_;
};

class ExpertDownPhase final : public ExpertPhase {
 public:
  ExpertDownPhase(std::string name, const MoeState* state, const LinearKernels& kernels, LinearInput input,
                  std::vector<const Weight*> experts, const FloatBuffer* out, int num_threads);

 protected:
  void run_expert(const Lane& lane, int64_t expert, BlockRange blocks) override;

 private:
  const LinearKernels& kernels_;
  LinearInput input_;
  std::vector<const Weight*> experts_;
  const FloatBuffer* out_;             // [T * k, E] by slot
};

}  // namespace roofline
